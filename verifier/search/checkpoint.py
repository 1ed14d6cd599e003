"""The file of a checkpoint: whole or not there, and refused for any other instance than its own.

    strata checkpoint 2
    {"network": SHA-256, "property": SHA-256, "version": ..., "options": {...}}
    SHA-256 of the line above and all bytes below, and how many these are
    what was saved (`verifier.search.codec`)

It is written beside its place, brought to disk and then renamed, so that a reader sees the old one or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.errors import InputError
from verifier.files import blamed
from verifier.output import aside
from verifier.search import saved
from verifier.search.boxes.boxes import BoxDomains
from verifier.search.codec import decoded, encoded
from verifier.search.domains import Counts, Progress
from verifier.search.keeper import SavedRun
from verifier.search.look import Look, Tried
from verifier.search.signs.kept import KeptSigns

log = logging.getLogger(__name__)

MAGIC = b"strata checkpoint 2"
NAME, LOCK, NOTES = "checkpoint", "lock", "notes"

PATIENCE = 3.0
"""Seconds for which the processes of a run that was killed may still hold the folder."""

CLASSES = (
    SavedRun,
    saved.SavedRegion,
    saved.SavedRoot,
    saved.SavedPart,
    saved.SavedTree,
    saved.SavedSharpening,
    saved.SavedSlices,
    saved.SavedRunner,
    saved.SavedRace,
    saved.SavedGroups,
    Counts,
    Look,
    Tried,
    Progress,
    BoxDomains,
    KeptSigns,
)


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to: the files by their digests, the options that shape a search, the program.

    `proof` says whether a proof is to be written, because such a search closes domains by other means.
    """

    network: str | None
    property: str | None
    version: str
    options: Mapping[str, Any]
    proof: bool = False

    def line(self) -> bytes:
        return json.dumps(vars(self), sort_keys=True).encode()

    def difference(self, line: bytes) -> str | None:
        """What another one, given by its line, differs in; None if it is the same."""
        other, own = json.loads(line), json.loads(self.line())
        for key, what in (("network", "network"), ("property", "property")):
            if other[key] != own[key]:
                return f"is about another {what} (SHA-256 {str(other[key])[:12]}..., not {str(own[key])[:12]}...)"
        if other["version"] != own["version"]:
            return f"was written by version {other['version']}, this is {own['version']}"
        if other["proof"] != own["proof"]:
            return f"is one of a run {'with' if other['proof'] else 'without'} --proof"
        there, here = _flat(other["options"]), _flat(own["options"])
        for key in sorted({*there, *here}):
            if there.get(key) != here.get(key):
                return f"was made with other options: {key} was {there.get(key)}, now it is {here.get(key)}"
        return None


class Checkpoint:
    """The checkpoint of one run, in a folder of its own that no other run uses at the same time."""

    def __init__(self, folder: str, identity: Identity) -> None:
        """Makes the folder, takes it, and reads what is there.  Raises InputError for what cannot be used."""
        self._folder, self._identity = Path(folder), identity
        self._path = str(self._folder / NAME)
        with blamed("checkpoints cannot be written here", folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        release = weakref.finalize(self, os.close, self._lock)
        self._complained = False
        try:
            self._take()
            for begun in self._folder.glob(f".*.{NAME}"):  # of a run that was killed while it wrote
                begun.unlink(missing_ok=True)
            self.found: SavedRun | None = self._read()
        except BaseException:
            release()
            raise

    @property
    def notes(self) -> str:
        """The file for the notes of a proof; a run without one does not have it."""
        return str(self._folder / NOTES)

    def _take(self) -> None:
        """Other runs are kept out until the last process of this one has ended."""
        try:
            import fcntl
        except ImportError:  # elsewhere than on Unix nobody is kept out
            return
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() >= end:
                    raise InputError("another run uses this folder of checkpoints", str(self._folder)) from None
                time.sleep(0.05)

    def _read(self) -> SavedRun | None:
        """Raises InputError, in one sentence, for a file that is damaged or belongs to something else."""
        try:
            raw = Path(self._path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"the checkpoint cannot be read: {error.strerror or error}", self._path) from error
        magic, _, rest = raw.partition(b"\n")
        if magic != MAGIC:
            other = magic.startswith(MAGIC.rsplit(b" ", 1)[0])
            why = "is one of another version of this program" if other else "is no checkpoint"
            raise InputError(f"this file {why}", self._path)
        line, _, rest = rest.partition(b"\n")
        sums, _, body = rest.partition(b"\n")
        if sums != _sums(line, body):
            raise InputError("the checkpoint is truncated or damaged; remove it to begin anew", self._path)
        difference = self._identity.difference(line)
        if difference is not None:
            raise InputError(f"the checkpoint {difference}; remove it to begin anew", self._path)
        run = decoded(body, CLASSES)
        assert isinstance(run, SavedRun)
        return run

    def write(self, run: SavedRun) -> None:
        """Takes the place of what was there.  A disk that takes no more ends the checkpoints, not the search."""
        line, body = self._identity.line(), encoded(run)
        try:
            with aside(self._path) as temporary, temporary.open("wb") as stream:
                stream.writelines((MAGIC, b"\n", line, b"\n", _sums(line, body), b"\n", body))
                stream.flush()
                os.fsync(stream.fileno())
            self._sync()
        except OSError as error:
            self.complain(error)

    def complain(self, error: OSError) -> None:
        """There is no checkpoint this time; the first such error is told."""
        if not self._complained:
            log.warning("a checkpoint could not be written: %s", error.strerror or error)
        self._complained = True

    def _sync(self) -> None:
        """Brings the new name to disk, where folders can be."""
        with contextlib.suppress(OSError):
            number = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def forget(folder: str) -> None:
    """Removes a checkpoint whose instance is decided.  Require: this run uses the folder."""
    with contextlib.suppress(OSError):
        for name in (NAME, NOTES):
            (Path(folder) / name).unlink(missing_ok=True)


def _sums(line: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(line)
    digest.update(body)
    return f"{digest.hexdigest()} {len(body)}".encode()


def _flat(options: Any, name: str = "") -> dict[str, Any]:
    """Nested options by their full names."""
    if not isinstance(options, dict):
        return {name: options}
    return {k: v for key, value in options.items() for k, v in _flat(value, f"{name}.{key}" if name else key).items()}
