"""Ranges of outputs, and how they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.output import text_table
from verifier.result.result import Circumstances
from verifier.result.verdict import Reason


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """One end of a range.

    Guarantees: in real arithmetic no input leads beyond `outer`, which includes all rounding errors.  `inner` is the
    value that the original network itself gives at `point`, an input of the set; None if no point was tried yet.
    """

    outer: float
    inner: float | None = None
    point: NDArray[np.floating] | None = None

    @property
    def gap(self) -> float:
        """How far the end may still be from `outer`; the network's own rounding may take a point beyond it."""
        return float("inf") if self.inner is None else max(0.0, abs(self.outer - self.inner))

    def as_dict(self) -> dict[str, Any]:
        point = None if self.point is None else [float(v) for v in self.point]
        return {"outer": self.outer, "inner": self.inner, "gap": self.gap, "point": point}


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Between which numbers a linear function of the outputs lies."""

    name: str
    lower: End
    upper: End

    def __str__(self) -> str:
        return f"{self.name} in [{self.lower.outer:.6g}, {self.upper.outer:.6g}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ranges(Circumstances):
    """The ranges of several functions over one input set; `gap` is what was aimed at.

    `reason` says why some end is not as close as that, if one is not.
    """

    ranges: tuple[Range, ...] = ()
    gap: float = 0.0
    reason: Reason | None = None
    domains: int = 0  # that were bounded in all searches

    def __len__(self) -> int:
        return len(self.ranges)

    def __getitem__(self, row: int) -> Range:
        return self.ranges[row]

    @property
    def lower(self) -> NDArray[np.float64]:
        """The certified lower ends."""
        return np.array([one.lower.outer for one in self.ranges])

    @property
    def upper(self) -> NDArray[np.float64]:
        """The certified upper ends."""
        return np.array([one.upper.outer for one in self.ranges])

    @property
    def closed(self) -> bool:
        """Whether every end is as close as was asked for."""
        ends = [end for one in self.ranges for end in (one.lower, one.upper)]
        return all(end.gap <= allowed(self.gap, end.inner) for end in ends)

    def lines(self) -> list[str]:
        """A table: of every function the certified ends and, between them, the values that points reach."""
        head = ["output", "certified >=", "reached", "reached", "certified <=", "gap"]
        rows = [
            [
                one.name,
                _number(one.lower.outer),
                _number(one.lower.inner),
                _number(one.upper.inner),
                _number(one.upper.outer),
                _number(max(one.lower.gap, one.upper.gap)),
            ]
            for one in self.ranges
        ]
        return text_table([head, *rows])

    def summary(self) -> str:
        ends = [end for one in self.ranges for end in (one.lower, one.upper)]
        done = sum(end.gap <= allowed(self.gap, end.inner) for end in ends)
        parts = [f"{done} of {len(ends)} ends within {self.gap:g}", f"{self.time.get('total', 0.0):.1f} s"]
        return "; ".join([*parts, *([] if self.reason is None else [_WHY[self.reason]])])

    def __str__(self) -> str:
        return "\n".join([*self.lines(), self.summary()])

    def __repr__(self) -> str:
        return f"<Ranges of {len(self)} functions: {self.summary()}>"

    def as_dict(self) -> dict[str, Any]:
        head = {
            "ranges": [
                {"name": one.name, "lower": one.lower.as_dict(), "upper": one.upper.as_dict()} for one in self.ranges
            ],
            "gap": self.gap,
            "closed": self.closed,
            "domains": self.domains,
            "reason": None if self.reason is None else self.reason.value,
        }
        return head | self.around(("load", "attack", "root", "search"), {})


_WHY = {
    Reason.TIMEOUT: "the time limit was reached",
    Reason.INTERRUPTED: "the run was interrupted",
    Reason.MEMORY: "the memory did not suffice",
    Reason.NUMERICS: "floating-point arithmetic could not decide the rest",
    Reason.LIMIT: "the limit of domains was reached",
    Reason.CLAIMED: "what a mixed-integer program claims is not proved",
}


def allowed(gap: float, value: float | None) -> float:
    """The gap of one end: of values beyond 1 it is a share."""
    return gap if value is None else gap * max(1.0, abs(value))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
