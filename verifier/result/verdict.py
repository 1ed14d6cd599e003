"""What a run can answer, and why it may not know."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """The answer of one run, in the words of VNN-COMP."""

    SAT = "sat"  # the property is violated, and a replayed counterexample says so
    UNSAT = "unsat"  # the property holds
    UNKNOWN = "unknown"
    TIMEOUT = "timeout"
    ERROR = "error"

    @property
    def decided(self) -> bool:
        """True for the two definite answers."""
        return self in (Verdict.SAT, Verdict.UNSAT)

    @property
    def exit_code(self) -> int:
        """The process's exit code; an error has its own, 2 or 4, that depends on whose fault it was."""
        return {Verdict.UNSAT: 0, Verdict.SAT: 1, Verdict.UNKNOWN: 3, Verdict.TIMEOUT: 3}.get(self, 4)


class Reason(Enum):
    """Why there is no definite answer."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    NUMERICS = "numerics"  # rounding errors stand between the bounds and an answer
    INTERRUPTED = "interrupted"
    LIMIT = "limit"  # the configured methods ended without a decision
    UNSUPPORTED = "unsupported"
    CLAIMED = "claimed"  # a solver without proofs has an answer, and nothing confirms it
