"""The result folder: one line per instance, on disk before the next one counts as done."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from verifier.batch.instances import Key
from verifier.batch.records import Record, parse, parsed, read_bytes, split_lines
from verifier.errors import InputError
from verifier.files import blamed
from verifier.output import aside

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

LINES = "results.jsonl"
TABLE = "results.csv"
CHECKS = "checks.jsonl"
LOCK = ".lock"


class Store:
    """The results of one folder.  Made by `opened`, which keeps other batches out of it.

    Guarantees: whatever ends the process, the file holds every line that `append` has returned for, each whole, and
    at most one torn line after them, which the next `opened` takes away.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / LINES
        self.records: dict[Key, Record] = {}
        self.load()

    def append(self, line: bytes) -> Record:
        """Adds a line and waits until it is on disk.

        Raises InputError if it cannot be written (a full disk, say); the file is then as it was.
        """
        record = parse(line)
        assert record is not None
        try:
            with open(self.path, "ab", buffering=0) as stream:
                size = stream.tell()
                try:
                    _write(stream, line + b"\n")
                except OSError:
                    stream.truncate(size)
                    raise
        except OSError as error:
            message = f"cannot be written: {error.strerror or error}; what is done is kept, the same command goes on"
            raise InputError(message, self.path) from error
        self.records[record.key] = record
        return record

    def forget(self, keys: Iterable[Key] | None = None) -> None:
        """Takes these results, or all, out of the file, in one step."""
        gone = set(self.records) if keys is None else set(keys)
        if not gone:
            return
        lines = parsed(read_bytes(self.path))
        _replace(
            self.path, b"".join(line for _, line, record in lines if record is not None and record.key not in gone)
        )
        self.records = {key: record for key, record in self.records.items() if key not in gone}

    def write_table(self, first: Iterable[Key] = ()) -> None:
        """`results.csv` in the columns of VNN-COMP: the results of `first` in this order, then all others."""
        order = dict.fromkeys(key for key in first if key in self.records) | dict.fromkeys(self.records)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for record in map(self.records.__getitem__, order):
            times = (f"{record.prepare_time:.3f}", record.verdict.value, f"{record.run_time:.3f}")
            writer.writerow([*record.names, *times])
        _replace(self.folder / TABLE, text.getvalue().encode())

    def remove_table(self) -> None:
        """Takes `results.csv` away."""
        with blamed("cannot be removed", self.folder / TABLE):
            (self.folder / TABLE).unlink(missing_ok=True)

    def load(self) -> None:
        """Takes over what the file holds, and repairs its end."""
        if not self.path.exists():
            return
        data = read_bytes(self.path)
        records, whole = split_lines(self.path, data)
        torn = len(data) - whole
        if torn:
            log.warning("%s: the last line was not finished and is taken away", self.path)
        with blamed("cannot be repaired", self.path):
            if torn:
                os.truncate(self.path, whole)
            if data[:whole] and not data[:whole].endswith(b"\n"):
                with open(self.path, "ab", buffering=0) as stream:
                    _write(stream, b"\n")
        self.records = {record.key: record for record in records}


@contextlib.contextmanager
def opened(folder: str, fresh: bool = False) -> Iterator[Store]:
    """The store of a folder, which is made if needed; `fresh` forgets what is in it.

    Raises InputError if another batch is at work in the folder.
    """
    path = Path(folder)
    with blamed("the folder of the results cannot be used", folder):
        path.mkdir(parents=True, exist_ok=True)
        lock = open(path / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 (closed below)
    with lock:
        _exclude(lock, folder)
        if fresh:
            with blamed("the old results cannot be removed", folder):
                for name in (LINES, TABLE, CHECKS):
                    (path / name).unlink(missing_ok=True)
        yield Store(path)


def _exclude(lock: io.TextIOWrapper, folder: str) -> None:
    """Locks the folder until the file is closed, at the latest when this process ends, however it ends.

    The file is not inherited by workers: one that outlives its parent for a moment must not keep the lock.
    """
    if sys.platform == "win32":  # nothing keeps two batches from one folder there
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        owner = lock.read().strip()
        who = f" (process {owner})" if owner else ""
        raise InputError(
            f"another batch{who} is at work in this folder; wait for it or choose another", folder
        ) from error
    except OSError as error:  # some network file systems have no locks
        log.warning("%s: the folder cannot be locked (%s); run one batch at a time", folder, error.strerror)
        return
    with contextlib.suppress(OSError):  # a full disk: the name in the message is all that is lost
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _write(stream: io.FileIO, data: bytes) -> None:
    """All of it, and on disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]
    os.fsync(stream.fileno())


def _replace(path: Path, data: bytes) -> None:
    """A reader, or a crash, finds the old file or the new one."""
    with (
        blamed("cannot be written", path),
        aside(str(path)) as temporary,
        open(temporary, "wb", buffering=0) as stream,
    ):
        _write(stream, data)
