"""Result folders: what `verify batch` wrote, read back with patience.

A run may have been killed in the midst of a line, or come from another version of the program.  A line that cannot be
used is left out and counted; a key that is missing is unknown.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verifier.errors import InputError
from verifier.result.statistics import PHASES
from verifier.result.verdict import Verdict

NAME = "results.jsonl"

Key = tuple[str, str, str]
"""What two runs have in common about an instance: family, network, property."""


@dataclass(frozen=True, slots=True)
class Witness:
    """The numbers of a counterexample."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    exact: bool = True
    real: bool = True  # False if only the network's own run confirms it


@dataclass(frozen=True, slots=True)
class Setting:
    """What the instances of one run usually share."""

    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    device: str | None = None
    threads: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One instance of one run; None where a line does not tell."""

    family: str
    onnx: str  # as the list of instances names it
    vnnlib: str
    verdict: Verdict
    reason: str | None = None
    seconds: float = 0.0
    timeout: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    domains: int | None = None
    lower_bound: float | None = None
    peak_rss_mb: float | None = None
    witness: Witness | None = None
    rounding_witness: Witness | None = None  # where the network's own run violates what was proved
    command: str = ""
    files: tuple[str, str] = ("", "")  # network and property, as they were opened
    digests: tuple[str | None, str | None] = (None, None)  # their SHA-256
    setting: Setting = field(default_factory=Setting)

    @property
    def key(self) -> Key:
        return (self.family, self.onnx, self.vnnlib)


@dataclass(frozen=True, slots=True)
class Run:
    """A result folder: its instances by family and in the order in which they were listed."""

    name: str
    source: str
    records: tuple[Record, ...]
    skipped: int = 0  # lines that could not be read

    @property
    def by_key(self) -> dict[Key, Record]:
        return {record.key: record for record in self.records}


def read_runs(folders: Sequence[str]) -> tuple[Run, ...]:
    """One run per folder (or `results.jsonl` file), in this order, with different names.

    Raises InputError for a folder without results.
    """
    names = _names([Path(folder) for folder in folders])
    return tuple(_read(folder, name) for folder, name in zip(folders, names, strict=True))


def _read(folder: str, name: str) -> Run:
    path = Path(folder)
    file = path / NAME if path.is_dir() else path
    if not file.exists():
        raise InputError(f"there is no {NAME} in this folder" if path.is_dir() else "no such folder", folder)
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file) from error
    written = [line for line in lines if line.strip()]
    found = [record for record in map(parse, written) if record is not None]
    if not found:
        raise InputError("the file holds no result" + (" that can be read" if written else ""), file)
    unique = {record.key: record for record in found}  # of an instance that stands there twice, the last one counts
    ordered = sorted(unique.values(), key=lambda record: record.family)  # stable: else as listed
    return Run(name, folder, tuple(ordered), len(written) - len(found))


def _names(paths: list[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart; a number for a path that is given twice."""
    parts = [path.resolve().parts for path in paths]
    parts = [p[:-1] if p[-1] == NAME and len(p) > 1 else p for p in parts]
    short = {p: next(n for n in range(1, len(p) + 1) if _alone(p, n, parts)) for p in parts}
    names = ["/".join(p[-short[p] :]) for p in parts]
    return [n if names.count(n) == 1 else f"{n} ({names[: i + 1].count(n)})" for i, n in enumerate(names)]


def _alone(path: tuple[str, ...], length: int, others: list[tuple[str, ...]]) -> bool:
    """Whether no other path ends in the same `length` parts; all parts together always do."""
    return length == len(path) or all(other == path or other[-length:] != path[-length:] for other in others)


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
    files = (_text(data, "network") or "", _text(data, "property") or "")
    onnx = _text(data, "onnx") or files[0]
    time, statistics = _object(data, "time"), _object(data, "statistics")
    seconds = next((s for s in (_number(data, "run_time"), _number(time, "total")) if s is not None), 0.0)
    timeout = _number(data, "timeout")
    return Record(
        family=_text(data, "category") or _family(onnx),
        onnx=onnx,
        vnnlib=_text(data, "vnnlib") or files[1],
        verdict=verdict,
        reason=_reason(data, verdict),
        seconds=max(seconds, 0.0),
        timeout=timeout,
        phases={name: max(_number(time, name) or 0.0, 0.0) for name in PHASES},
        domains=_integer(statistics, "domains"),
        lower_bound=_number(data, "lower_bound"),
        peak_rss_mb=_number(statistics, "peak_rss_mb"),
        witness=_witness(data, "counterexample") if verdict is Verdict.SAT else None,
        rounding_witness=_witness(data, "rounding_witness") if verdict is Verdict.UNSAT else None,
        command=_command(data, files, timeout),
        files=files,
        digests=(_text(data, "network_sha256"), _text(data, "property_sha256")),
        setting=_setting(data),
    )


def _reason(data: Mapping[str, Any], verdict: Verdict) -> str | None:
    """The sentence of the result; else its reason, unless that only repeats the verdict."""
    if verdict.decided:
        return None
    reason = _text(data, "message") or _text(data, "reason")
    return None if reason == verdict.value else reason


def _setting(data: Mapping[str, Any]) -> Setting:
    return Setting(
        config=_object(data, "config"),
        seed=_integer(data, "seed"),
        device=_text(data, "device"),
        threads=_integer(data, "threads"),
        versions={str(name): str(version) for name, version in _object(data, "versions").items()},
    )


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


def _witness(line: Mapping[str, Any], key: str) -> Witness | None:
    data = _object(line, key)
    x, y = (data.get(name) for name in ("x", "y"))
    if not (isinstance(x, list) and isinstance(y, list) and x and all(_finite(v) for v in [*x, *y])):
        return None
    real = key == "counterexample" and line.get("arithmetic") != "run"
    return Witness(tuple(map(float, x)), tuple(map(float, y)), data.get("exact") is not False, real)


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
