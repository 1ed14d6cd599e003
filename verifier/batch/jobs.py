"""What a worker is asked for and what it replies; the line of `results.jsonl` that a batch makes of it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from verifier.batch.instances import Instance, Listed
from verifier.config import Config
from verifier.errors import InputError
from verifier.files import digest, read_stored
from verifier.machine import Machine
from verifier.naming import networks_of, paths_of
from verifier.network.models.identity import digest_of, digest_of_several
from verifier.result.result import Setting
from verifier.result.status import Status

LONGEST = 50
"""Characters of each name in the name of a proof: file systems take 255 bytes."""


class Job(msgspec.Struct, frozen=True):
    """What a worker process is asked for."""

    network: str
    prop: str
    config: dict[str, Any]  # resolved
    machine: Machine
    seed: int = 0
    proof: str | None = None  # the file that gets the proof of an `unsat`

    def status(self, start: float | None = None) -> Status:
        """Nothing is known yet; the time limit counts from `start` (default: now)."""
        setting = Setting(self.network, self.prop, self.machine.timeout, self.config, self.seed)
        return Status(setting, self.machine.clock(start), threads=self.machine.threads)


@dataclass(frozen=True, slots=True)
class Terms:
    """How every instance of a batch is treated.  `words` are the same options as words of a command line.

    `proofs` is the folder, as an absolute path, that gets the proof of every `unsat`.
    """

    config: Config = field(default_factory=Config)
    machine: Machine = field(
        default_factory=partial(Machine, threads=1)
    )  # of each worker; the time limits are those of the instances
    seed: int = 0
    words: tuple[str, ...] = ()
    proofs: str | None = None

    def job(self, instance: Instance) -> Job:
        machine = replace(self.machine, timeout=instance.timeout)
        return Job(instance.network, instance.prop, self.config.resolved(), machine, self.seed, self.proof(instance))

    def proof(self, instance: Listed) -> str | None:
        """The file for the proof of this instance, if proofs are wanted."""
        return None if self.proofs is None else os.path.join(self.proofs, proof_name(instance))

    def command(self, instance: Instance) -> list[str]:
        """The command line that decides this instance alone.  Its proof goes to the folder where it is typed."""
        limit = [] if instance.timeout is None else ["--timeout", f"{instance.timeout:g}"]
        machine = ["--device", self.machine.device, "--threads", str(self.machine.cores)]
        proof = [] if self.proofs is None else ["--proof", proof_name(instance)]
        seed = ["--seed", str(self.seed)]
        return ["verify", instance.network, instance.prop, *limit, *self.words, *machine, *seed, *proof]


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
        "proof_wanted": terms.proofs is not None,
        "prepare_time": round(reply.prepare_time, 6),
        "run_time": round(reply.run_time, 6),
    }
    return json.dumps(data, allow_nan=False).encode()


def proof_name(instance: Listed) -> str:
    """A name for the proof of an instance: readable, and no other instance of a batch has it."""
    nets = "+".join(
        os.path.basename(path).removesuffix(".gz").removesuffix(".onnx") for path in paths_of(instance.onnx)
    )
    stems = [nets, os.path.basename(instance.vnnlib).removesuffix(".gz")]
    words = [instance.category, stems[0].removesuffix(".onnx"), stems[1].removesuffix(".vnnlib")]
    readable = "-".join(re.sub(r"[^\w.+=,]+", "_", word, flags=re.ASCII)[:LONGEST] for word in words)
    # Names alone do not tell instances apart: two lists may lie in folders of one name.
    return f"{readable}-{digest(repr(instance.key).encode())[:12]}.proof"


def network_digest(path: str) -> str | None:
    """SHA-256 of a network, or of several, with all files that belong to it; None if it cannot be read."""
    try:
        pairs = networks_of(path) or (("", path),)
        return digest_of_several([(name, digest_of(part, read_stored(part))) for name, part in pairs])
    except InputError:
        return None


def file_digest(path: str) -> str | None:
    """SHA-256 of a file as it lies there; None if it cannot be read."""
    try:
        return digest(read_stored(path))
    except InputError:
        return None
