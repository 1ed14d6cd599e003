"""The result of incomplete verification, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verifier.result.result import Circumstances
from verifier.result.verdict import Reason

PHASES = ("load", "intermediate", "bounding")


@dataclass(frozen=True, slots=True)
class RowBound:
    """A lower bound of A y + B x - c over the box of a clause, for one of its rows; None if there was no time."""

    clause: int
    row: int
    lower: float | None


@dataclass(frozen=True, slots=True)
class LowerBounds(Circumstances):
    """What one method found out about an instance.

    Guarantees: if `rigorous`, every bound includes all rounding errors, and no clause in `closed` holds a point.
    """

    method: str
    rows: tuple[RowBound, ...] = ()
    clauses: int = 0
    iterations: int = 0
    rigorous: bool = True
    reason: Reason | None = None  # why the method was ended early, if it was
    curve: tuple[tuple[float, float], ...] | None = None  # seconds of bounding, and the worst bound by then

    @property
    def best_per_clause(self) -> tuple[float | None, ...]:
        """The largest bound among the rows of each clause; None where there is none."""
        best: list[float | None] = [None] * self.clauses
        for row in self.rows:
            known = best[row.clause]
            if row.lower is not None and (known is None or row.lower > known):
                best[row.clause] = row.lower
        return tuple(best)

    @property
    def positive(self) -> tuple[int, ...]:
        """The clauses with a bound above zero.  A bound of exactly zero proves nothing."""
        return tuple(k for k, lower in enumerate(self.best_per_clause) if lower is not None and lower > 0)

    @property
    def closed(self) -> tuple[int, ...]:
        """The clauses that are proved to hold no point."""
        return self.positive if self.rigorous else ()

    @property
    def worst(self) -> float | None:
        """The bound of the clause that is furthest from being closed; None if some clause has no bound."""
        best = self.best_per_clause
        known = [lower for lower in best if lower is not None]
        return min(known) if known and len(known) == len(best) else None

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        head = {
            "method": self.method,
            "iterations": self.iterations,
            "rows": [{"clause": r.clause, "row": r.row, "lower": r.lower} for r in self.rows],
            "best_per_clause": list(self.best_per_clause),
            "closed": list(self.closed),
            "lower_bound": self.worst,
            "rigorous": self.rigorous,
            "reason": None if self.reason is None else self.reason.value,
        }
        curve = None if self.curve is None else [[round(t, 6), lower] for t, lower in self.curve]
        return head | self.around(PHASES, {"curve": curve})
