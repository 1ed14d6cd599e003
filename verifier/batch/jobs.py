"""What a worker is asked for and what it replies; the line of `results.jsonl` that a batch makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from verifier.batch.instances import Instance
from verifier.config import Config
from verifier.errors import InputError
from verifier.files import digest, read_stored
from verifier.machine import Machine
from verifier.network.models.identity import digest_of
from verifier.result.result import Setting
from verifier.result.status import Status


class Job(msgspec.Struct, frozen=True):
    """What a worker process is asked for."""

    network: str
    prop: str
    config: dict[str, Any]  # resolved
    machine: Machine
    seed: int = 0

    def status(self, start: float | None = None) -> Status:
        """Nothing is known yet; the time limit counts from `start` (default: now)."""
        setting = Setting(self.network, self.prop, self.machine.timeout, self.config, self.seed)
        return Status(setting, self.machine.clock(start), threads=self.machine.threads)


@dataclass(frozen=True, slots=True)
class Terms:
    """How every instance of a batch is treated.  `words` are the same options as words of a command line."""

    config: Config = field(default_factory=Config)
    machine: Machine = field(
        default_factory=partial(Machine, threads=1)
    )  # of each worker; the time limits are those of the instances
    seed: int = 0
    words: tuple[str, ...] = ()

    def job(self, instance: Instance) -> Job:
        machine = replace(self.machine, timeout=instance.timeout)
        return Job(instance.network, instance.prop, self.config.resolved(), machine, self.seed)

    def command(self, instance: Instance) -> list[str]:
        """The command line that decides this instance alone."""
        limit = [] if instance.timeout is None else ["--timeout", f"{instance.timeout:g}"]
        machine = ["--device", self.machine.device, "--threads", str(self.machine.cores)]
        return ["verify", instance.network, instance.prop, *limit, *self.words, *machine, "--seed", str(self.seed)]


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


def network_digest(path: str) -> str | None:
    """SHA-256 of a network with all files that belong to it; None if it cannot be read."""
    try:
        return digest_of(path, read_stored(path))
    except InputError:
        return None


def file_digest(path: str) -> str | None:
    """SHA-256 of a file as it lies there; None if it cannot be read."""
    try:
        return digest(read_stored(path))
    except InputError:
        return None
