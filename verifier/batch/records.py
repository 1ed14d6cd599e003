"""The lines of `results.jsonl`, read back: each is the JSON of a run, and what a batch adds to it.

A run may have been killed in the midst of a line, or come from another version of the program: a key that is missing,
or of another type, is unknown.  Whether a line that cannot be used at all matters, is for the caller to say.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verifier.batch.instances import Listed
from verifier.errors import InputError
from verifier.files import blamed
from verifier.result.result import PHASES
from verifier.result.verdict import Verdict


@dataclass(frozen=True, slots=True)
class StoredWitness:
    """The numbers of a counterexample."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    exact: bool = True
    real: bool = True  # False if only the network's own run confirms it


@dataclass(frozen=True, slots=True)
class StoredProof:
    """The proof of an `unsat`, as it was written."""

    file: str
    sha256: str
    bytes: int | None = None
    leaves: int | None = None
    seconds: float | None = None  # of writing


@dataclass(frozen=True, slots=True)
class Record(Listed):
    """One instance of one run; None where a line does not tell."""

    verdict: Verdict
    reason: str | None = None  # the sentence of an undecided result
    timeout: float | None = None
    run_time: float = 0.0
    prepare_time: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    domains: int | None = None
    lower_bound: float | None = None
    peak_rss_mb: float | None = None
    witness: StoredWitness | None = None
    rounding_witness: StoredWitness | None = None  # where the network's own run violates what was proved
    proof: StoredProof | None = None
    proof_wanted: bool = False
    unproved: str | None = None  # why there is no proof of an `unsat` though one was wanted
    command: str = ""
    network_sha256: str | None = None
    property_sha256: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    device: str | None = None
    threads: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    listed: bool = True  # whether the line itself names the instance, as those of a batch do

    @property
    def digests(self) -> tuple[str | None, str | None]:
        """SHA-256 of network and property."""
        return (self.network_sha256, self.property_sha256)

    @property
    def why(self) -> str:
        """The sentence of an undecided result, or else its verdict."""
        return self.reason or self.verdict.value

    @property
    def par2(self) -> float:
        """The seconds of a decided instance, twice the limit of any other; without a limit, twice the time spent."""
        if self.verdict.decided:
            return self.run_time
        return 2 * (self.run_time if self.timeout is None else self.timeout)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The text of a file of results.  Raises InputError."""
    with blamed("the results cannot be read", path):
        return Path(path).read_bytes()


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """The records of a file that another batch wrote; the last of several about one instance.

    A last line that a killed run left unfinished is passed over.  Raises InputError for any other bad line.
    """
    records, _ = split_lines(path, read_bytes(path))
    return list({record.names: record for record in records}.values())


def split_lines(path: str | os.PathLike[str], data: bytes) -> tuple[list[Record], int]:
    """The records in the text of a file, and the number of bytes that hold them whole.

    Only the last line may be torn: lines are written one after the other.  A last line that lacks nothing but its
    end is whole.  Raises InputError for any other line that is not the result of a batch.
    """
    records: list[Record] = []
    whole = 0
    for number, line, record in parsed(data):
        if record is not None and record.listed:
            records.append(record)
        elif line and whole + len(line) == len(data) and not _is_json(line):
            break
        elif line.strip():
            raise InputError("this line is not the result of a batch", path, number)
        whole += len(line)
    return records, whole


def parsed(data: bytes) -> Iterator[tuple[int, bytes, Record | None]]:
    """The lines of a file with their numbers and what they say; None for what is no result."""
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        yield number, line, parse(line)


def parse(line: bytes | str) -> Record | None:
    """The record of one line, or None if it is torn or no result."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):  # torn, or brackets without end
        return None
    if not isinstance(data, dict):
        return None
    try:
        verdict = Verdict(data.get("verdict"))
    except ValueError:
        return None
    network, prop = _text(data, "network") or "", _text(data, "property") or ""
    onnx, vnnlib = _text(data, "onnx"), _text(data, "vnnlib")
    category = _text(data, "category")
    time, statistics = _object(data, "time"), _object(data, "statistics")
    seconds = next((s for s in (_number(data, "run_time"), _number(time, "total")) if s is not None), 0.0)
    timeout = _number(data, "timeout")
    return Record(
        category=category or _family(onnx or network),
        onnx=onnx or network,
        vnnlib=vnnlib or prop,
        network=network,
        prop=prop,
        verdict=verdict,
        reason=_reason(data, verdict),
        timeout=timeout,
        run_time=max(seconds, 0.0),
        prepare_time=_number(data, "prepare_time") or 0.0,
        phases={name: max(_number(time, name) or 0.0, 0.0) for name in PHASES},
        domains=_integer(statistics, "domains"),
        lower_bound=_number(data, "lower_bound"),
        peak_rss_mb=_number(statistics, "peak_rss_mb"),
        witness=_witness(data, "counterexample") if verdict is Verdict.SAT else None,
        rounding_witness=_witness(data, "rounding_witness") if verdict is Verdict.UNSAT else None,
        proof=_proof(data) if verdict is Verdict.UNSAT else None,
        proof_wanted=data.get("proof_wanted") is True,
        unproved=_unproved(data, verdict),
        command=_command(data, (network, prop), timeout),
        network_sha256=_text(data, "network_sha256"),
        property_sha256=_text(data, "property_sha256"),
        config=_object(data, "config"),
        seed=_integer(data, "seed"),
        device=_text(data, "device"),
        threads=_integer(data, "threads"),
        versions={str(name): str(version) for name, version in _object(data, "versions").items()},
        listed=None not in (category, onnx, vnnlib) and bool(network and prop),
    )


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested configuration with dotted names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _reason(data: Mapping[str, Any], verdict: Verdict) -> str | None:
    """The sentence of the result; else its reason, unless that only repeats the verdict."""
    if verdict.decided:
        return None
    reason = _text(data, "message") or _text(data, "reason")
    return None if reason == verdict.value else reason


def _command(data: Mapping[str, Any], files: tuple[str, str], timeout: float | None) -> str:
    """What to type to run the instance again; put together from the rest if it is not told."""
    told = data.get("command")
    if isinstance(told, list) and told:
        return shlex.join(map(str, told))
    if isinstance(told, str) and told:
        return told
    if not all(files):
        return ""
    return shlex.join(["verify", *files, *([] if timeout is None else ["--timeout", f"{timeout:g}"])])


def _witness(line: Mapping[str, Any], key: str) -> StoredWitness | None:
    data = _object(line, key)
    x, y = (data.get(name) for name in ("x", "y"))
    if not (isinstance(x, list) and isinstance(y, list) and x and all(_finite(v) for v in [*x, *y])):
        return None
    real = key == "counterexample" and line.get("arithmetic") != "run"
    return StoredWitness(tuple(map(float, x)), tuple(map(float, y)), data.get("exact") is not False, real)


def _proof(line: Mapping[str, Any]) -> StoredProof | None:
    data = _object(line, "proof")
    file, sha256 = _text(data, "file"), _text(data, "sha256")
    if file is None or sha256 is None:
        return None
    return StoredProof(file, sha256, _integer(data, "bytes"), _integer(data, "leaves"), _number(data, "seconds"))


def _unproved(line: Mapping[str, Any], verdict: Verdict) -> str | None:
    wanted = line.get("proof_wanted") is True and verdict is Verdict.UNSAT
    if not wanted or _proof(line) is not None:
        return None
    return _text(line, "message") or "no proof was written"


def _family(network: str) -> str:
    """The folder of a benchmark, from `family/onnx/net.onnx` or `family/net.onnx`."""
    folders = [part for part in Path(network).parent.parts if part not in ("onnx", "nets", ".", "..")]
    return folders[-1] if folders else "instances"


def _object(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    return value if isinstance(value, str) and value else None


def _number(data: Mapping[str, Any], key: str) -> float | None:
    value = data.get(key)
    return float(value) if isinstance(value, int | float) and _finite(value) else None


def _integer(data: Mapping[str, Any], key: str) -> int | None:
    value = _number(data, key)
    return None if value is None else int(value)


def _finite(value: object) -> bool:
    """Whether this is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False
