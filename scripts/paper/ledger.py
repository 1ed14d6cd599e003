"""Results as JSON lines: what is in the file is done, and a run that is started again skips it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Line(Protocol):
    """A record; `key` says what it is the result of."""

    @property
    def key(self) -> str: ...


LineT = TypeVar("LineT", bound=Line)


@dataclass(frozen=True)
class Root:
    """CROWN's bounds of all clauses of a property, by which problems are chosen."""

    network: str
    problem: str
    lower: tuple[float, ...]

    @property
    def key(self) -> str:
        return f"{self.network} {self.problem}"


@dataclass(frozen=True)
class Bounded:
    """The bound of one clause of a property by one method, and the CPU seconds that it took."""

    network: str
    problem: str
    clause: int
    method: str
    lower: float
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return bound_key(self.network, self.problem, self.clause, self.method, self.options)

    @property
    def place(self) -> tuple[str, str, int]:
        """What was bounded."""
        return self.network, self.problem, self.clause


def bound_key(network: str, problem: str, clause: int, method: str, options: dict[str, Any]) -> str:
    """A method of the same name with other options is another one."""
    return f"{network} {problem} {clause} {method} {json.dumps(options, sort_keys=True)}"


@dataclass(frozen=True)
class Peak:
    """Megabytes that a method takes at most, beside the network."""

    method: str
    what: str
    width: int
    megabytes: float

    @property
    def key(self) -> str:
        return f"{self.method}, {self.what}, {self.width}"


class Ledger(Generic[LineT]):
    """A file of records of one kind.  Several processes may append to it at the same time."""

    def __init__(self, path: Path, kind: type[LineT]) -> None:
        self.path = path
        self.kind = kind
        self.lines = {line.key: line for line in self._read()}

    def __contains__(self, key: str) -> bool:
        return key in self.lines

    def __iter__(self) -> Iterator[LineT]:
        return iter(self.lines.values())

    def add(self, line: LineT) -> None:
        """One write per line, behind what others have written.  The file is then as good as the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(line), allow_nan=False) + "\n"  # type: ignore[call-overload]
        with self.path.open("ab", buffering=0) as file:
            file.write(text.encode())
        self.lines[line.key] = line

    def mend(self) -> None:
        """Ends a line that a killed process has left unfinished, so that the next one begins its own."""
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size:
            with self.path.open("ab", buffering=0) as file:
                file.write(b"\n")

    def _read(self) -> Iterator[LineT]:
        if not self.path.exists():
            return
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                data = json.loads(text)
            except json.JSONDecodeError:  # torn: it is computed again
                continue
            yield self.kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})
