"""One line of `results.jsonl`: the JSON of a run, and what the batch adds to it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from verifier.batch.instances import Files, Instance, Names
from verifier.config import Config
from verifier.errors import InputError
from verifier.network.models.identity import digest_of
from verifier.result.result import Setting
from verifier.result.verdict import Verdict


class Job(msgspec.Struct, frozen=True):
    """What a worker process is asked for."""

    network: str
    prop: str
    timeout: float | None
    config: dict[str, Any]  # resolved
    device: str = "auto"
    threads: int = 1
    seed: int = 0

    @property
    def setting(self) -> Setting:
        return Setting(self.network, self.prop, self.timeout, self.config, self.seed)


@dataclass(frozen=True, slots=True)
class Terms:
    """How every instance of a batch is treated.  `words` are the same options as words of a command line."""

    config: Config = field(default_factory=Config)
    device: str = "auto"
    threads: int = 1
    seed: int = 0
    words: tuple[str, ...] = ()

    def job(self, instance: Instance) -> Job:
        plain = self.config.resolved()
        return Job(instance.network, instance.prop, instance.timeout, plain, self.device, self.threads, self.seed)

    def command(self, instance: Instance) -> list[str]:
        """The command line that decides this instance alone."""
        limit = [] if instance.timeout is None else ["--timeout", f"{instance.timeout:g}"]
        options = ["--device", self.device, "--threads", str(self.threads), "--seed", str(self.seed)]
        return ["verify", instance.network, instance.prop, *limit, *self.words, *options]


class Record(msgspec.Struct, frozen=True, rename={"prop": "property"}):
    """What a batch itself reads of a line; the rest of the line is for other readers."""

    category: str
    onnx: str
    vnnlib: str
    network: str
    prop: str
    verdict: Verdict
    reason: str | None = None
    message: str | None = None
    timeout: float | None = None
    run_time: float = 0.0
    prepare_time: float = 0.0
    network_sha256: str | None = None
    property_sha256: str | None = None
    config: dict[str, Any] = {}
    seed: int = 0
    versions: dict[str, str] = {}

    @property
    def names(self) -> Names:
        return (self.category, self.onnx, self.vnnlib)

    @property
    def files(self) -> Files:
        return (self.network, self.prop)

    @property
    def key(self) -> tuple[str, Files]:
        """What makes two lines speak about the same instance."""
        return (self.category, self.files)

    @property
    def why(self) -> str:
        """The sentence of an undecided result."""
        return self.message or self.reason or self.verdict.value

    @property
    def par2(self) -> float:
        """The seconds of a decided instance, twice the limit of any other; without a limit, twice the time spent."""
        if self.verdict.decided:
            return self.run_time
        return 2 * (self.run_time if self.timeout is None else self.timeout)


@dataclass(frozen=True, slots=True)
class Reply:
    """The JSON of a run, the seconds it took, and those in which a worker was started for it (0 if it was warm)."""

    result: bytes
    run_time: float
    prepare_time: float = 0.0


def line_of(instance: Instance, terms: Terms, reply: Reply) -> bytes:
    """The line of an instance, without its end."""
    data = json.loads(reply.result)
    # A run that failed early has not come so far as to hash its files; a later batch must see whether they changed.
    data["network_sha256"] = data.get("network_sha256") or network_digest(instance.network)
    data["property_sha256"] = data.get("property_sha256") or file_digest(instance.prop)
    data |= {
        "category": instance.category,
        "onnx": instance.onnx,
        "vnnlib": instance.vnnlib,
        "command": terms.command(instance),
        "prepare_time": round(reply.prepare_time, 6),
        "run_time": round(reply.run_time, 6),
    }
    return json.dumps(data, allow_nan=False).encode()


def parse(line: bytes) -> Record:
    """The record of a line.  Raises msgspec.ValidationError for other data, msgspec.DecodeError for a torn line."""
    return msgspec.json.decode(line, type=Record)


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """The records of a file that another batch wrote; the last of several about one instance.

    A last line that a killed run left unfinished is passed over.  Raises InputError for any other bad line.
    """
    records, _ = split_lines(path, read_bytes(path))
    return list({record.names: record for record in records}.values())


def split_lines(path: str | os.PathLike[str], data: bytes) -> tuple[list[Record], int]:
    """The records in the text of a file, and the number of bytes that hold them whole.

    Only the last line may be torn: lines are written one after the other.  A last line that lacks nothing but its
    end is whole.  Raises InputError for any other line that is not a result.
    """
    records: list[Record] = []
    whole = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            records += [parse(line)] if line.strip() else []
        except msgspec.DecodeError as error:
            if whole + len(line) == len(data) and not isinstance(error, msgspec.ValidationError):
                break
            raise InputError("this line is not the result of a batch", path, number) from error
        whole += len(line)
    return records, whole


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise InputError(f"the results cannot be read: {error.strerror or error}", path) from error


def network_digest(path: str) -> str | None:
    """SHA-256 of a network with all files that belong to it; None if it cannot be read."""
    try:
        return digest_of(path, Path(path).read_bytes())
    except OSError:
        return None


def file_digest(path: str) -> str | None:
    """SHA-256 of a file as it lies there; None if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None
