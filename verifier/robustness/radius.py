"""The radius of robustness of an input: between what is proved and what a counterexample refutes."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from verifier.result.counterexample import Counterexample
from verifier.result.result import PHASES, Circumstances
from verifier.result.verdict import Reason

DIGITS = 15
"""Significant digits of decimals that floats hold and print."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A radius that was tried, what came of it (certified, falsified, undecided), by what, and in how many seconds."""

    eps: float
    outcome: str
    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Known:
    """What is known so far.  `falsified` is the radius of a ball that holds the last witness."""

    certified: float | None = None
    falsified: float | None = None
    witnesses: tuple[Counterexample, ...] = ()  # each nearer than the one before
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class Radius(Circumstances):
    """How far an input may move without losing its class.

    Guarantees: within `certified` every input has the class `label`, in real arithmetic, with all rounding errors
    included; within `falsified` lies `counterexample`, which has not, as the original network and real arithmetic
    confirm.  The true radius lies between them.  Both are decimals: `verify robust --eps` with the same number asks the
    same.  None: nothing is known on that side.
    """

    label: int
    norm: str
    certified: float | None = None
    falsified: float | None = None
    counterexample: Counterexample | None = None
    reason: Reason | None = None  # why the tolerance was not reached
    tolerance: float = 0.01
    trials: tuple[Trial, ...] = ()

    @property
    def other(self) -> int | None:
        """The network's class at the counterexample."""
        return None if self.counterexample is None else int(self.counterexample.y.argmax())

    @property
    def answered(self) -> bool:
        """Whether anything is known."""
        return self.certified is not None or self.falsified is not None

    def lines(self) -> list[str]:
        """Two lines, and a third if the search was ended early."""
        total = f"{self.time.get('total', 0.0):.1f} s"
        proved = "nothing" if self.certified is None else f"{self.certified:g}"
        broken = "nothing" if self.falsified is None else f"{self.falsified:g}"
        name = {"inf": "the maximum norm"}.get(self.norm, f"the norm {self.norm}")
        lines = [
            f"certified  {proved:<12} no input within it, in {name}, leaves class {self.label}",
            f"falsified  {broken:<12} "
            + ("no counterexample was found" if self.other is None else f"a counterexample has class {self.other}"),
        ]
        if self.certified is None:
            lines[0] = f"certified  {proved}"
        ended = {Reason.TIMEOUT: "the time limit was reached", Reason.INTERRUPTED: "interrupted"}
        if self.reason is not None:
            lines.append(f"{ended.get(self.reason, self.reason.value)} after {total}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        ended = "" if self.reason is None else f", {self.reason.value}"
        return f"Radius(certified={self.certified}, falsified={self.falsified}, label={self.label}{ended})"

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        point = self.counterexample
        head = {
            "certified": self.certified,
            "falsified": self.falsified,
            "label": self.label,
            "norm": self.norm,
            "reason": None if self.reason is None else self.reason.value,
            "tolerance": self.tolerance,
        }
        said = {
            "counterexample": None if point is None else {"x": point.x.tolist(), "y": point.y.tolist()},
            "trials": [
                {"eps": t.eps, "outcome": t.outcome, "by": t.by, "seconds": round(t.seconds, 6)} for t in self.trials
            ],
        }
        return head | self.around(PHASES, said)


def rounded(value: Fraction, digits: int, rounding: str) -> Fraction:
    """A decimal of so many significant digits at or beside the value."""
    context = decimal.Context(prec=digits, rounding=rounding, Emin=-999999, Emax=999999, traps=[])
    return Fraction(context.divide(decimal.Decimal(value.numerator), decimal.Decimal(value.denominator)))


def between(low: Fraction, high: Fraction, share: float = 0.5) -> Fraction:
    """A short decimal near the point at this share of the way from low to high, and well inside of both."""
    aim = low + (high - low) * Fraction(share)
    room = min(aim - low, high - aim) / 4
    for digits in range(1, DIGITS):
        found = rounded(aim, digits, decimal.ROUND_HALF_EVEN)
        if abs(found - aim) <= room:
            return found
    return rounded(aim, DIGITS, decimal.ROUND_HALF_EVEN)
