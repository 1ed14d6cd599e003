"""Why a run has no definite answer, in numbers and in words, and what to try.

Nothing is loaded when this is asked for: an answer may be due while the main thread is in the midst of an import.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from verifier.processes import cores
from verifier.result.verdict import Reason

NOTICED = 0.1
"""Seconds of a run from which on it matters what took them."""

FEW = 0.002
"""Of a tree this share must be settled before its size is estimated."""
TOO_LONG = 100.0
"""Times the time that was given: what would take longer is not worth a longer limit."""
PAUSE = 0.5
"""Seconds between two bounds that are remembered."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What a run leaves behind that explains its end: the bounds of the whole box, and how the worst bound rose."""

    clauses: int | None = None
    open_clauses: int | None = None  # that the bounds of the whole box left open
    worst_clause: int | None = None  # the one that was furthest from a proof then
    root_bound: float | None = None  # and its bound
    left: float | None = None  # the share of the tree that waits, if every split halves a domain
    bounds: tuple[tuple[float, float], ...] = ()  # moments (time.monotonic) and worst bounds of the search

    def after(self, lower: float, left: float) -> Trail:
        """The same, a moment later."""
        now = time.monotonic()
        if self.bounds and now - self.bounds[-1][0] < PAUSE:
            bounds = self.bounds
        else:
            bounds = (*(self.bounds if len(self.bounds) < 512 else self.bounds[::2]), (now, lower))
        return Trail(self.clauses, self.open_clauses, self.worst_clause, self.root_bound, left, bounds)

    @property
    def rise(self) -> float | None:
        """How much the worst bound rose per minute, over the last half of the search; None if that is not known."""
        last = self.bounds[len(self.bounds) // 2 :]
        if len(last) < 2:
            return None
        (began, first), (ended, bound) = last[0], last[-1]
        return (bound - first) / (ended - began) * 60.0 if math.isfinite(bound - first) else None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about a run that ended without a definite answer; None where nothing is known."""

    reason: Reason
    seconds: float
    phase: str | None  # that took the most time; `start-up` is what went before and between them
    phase_seconds: float
    trail: Trail
    lower_bound: float | None
    open_domains: int
    domains: int
    domains_per_second: float | None
    settled: float | None  # the share of the tree that is done
    estimated_domains: int | None  # of the whole tree
    hints: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        known = {key: value for key, value in asdict(self.trail).items() if key not in ("left", "bounds")}
        rates = {
            "rise_per_minute": self.trail.rise,
            "open_domains": self.open_domains,
            "domains_per_second": self.domains_per_second,
            "settled": self.settled,
            "estimated_domains": self.estimated_domains,
        }
        return {"phase": self.phase, "phase_seconds": self.phase_seconds, **known, **rates, "hints": list(self.hints)}

    def lines(self) -> list[str]:
        """The same for people, a sentence per line."""
        found = []
        if self.phase is not None and self.seconds >= NOTICED:
            found.append(f"of {self.seconds:.1f} s the phase '{self.phase}' took most: {self.phase_seconds:.1f} s")
        found += [text for text in (self._bounds(), self._tree()) if text]
        return found + [f"try: {hint}" for hint in self.hints]

    def _bounds(self) -> str:
        trail = self.trail
        if trail.worst_clause is None or trail.root_bound is None:
            return ""
        text = f"{trail.open_clauses} of {trail.clauses} clauses stayed open at the root"
        if trail.clauses == 1:
            text = "the only clause stayed open at the root"
        text += f"; the worst, number {trail.worst_clause}, had the bound {trail.root_bound:.4g}"
        if self.lower_bound is None or not self.domains:
            return text
        rise = trail.rise
        rising = "" if rise is None else ", and does not rise" if rise <= 0 else f", and rises by {rise:.2g} per minute"
        return f"{text}; the worst bound of an open domain is {self.lower_bound:.4g}{rising}"

    def _tree(self) -> str:
        if not self.domains:
            return ""
        rate = "" if self.domains_per_second is None else f", {self.domains_per_second:.3g} per second"
        text = f"domains: {self.domains} done{rate}, {self.open_domains} open"
        if self.estimated_domains is None or self.settled is None:
            return f"{text}; too little of the tree is settled to tell its size"
        return f"{text}; about {100 * self.settled:.2g} % of a tree of some {self.estimated_domains:.2g} domains"


def undecided(
    reason: Reason, seconds: dict[str, float], trail: Trail, domains: tuple[int, int], known: Asked
) -> Explanation:
    """Draws it up from what a status holds; `domains` are those that are done and those that are open."""
    phases = {name: spent for name, spent in seconds.items() if name != "total"}
    phases["start-up"] = max(0.0, seconds["total"] - sum(phases.values()))  # imports, mostly
    phase = max(phases, key=lambda name: phases[name]) if any(phases.values()) else None
    done, waiting = domains
    spent = phases.get("search", 0.0)
    settled = None if trail.left is None or not done else min(1.0, max(0.0, 1.0 - trail.left))
    estimate = None if settled is None or settled < FEW else round(done / settled)
    found = Explanation(
        reason,
        seconds["total"],
        phase,
        0.0 if phase is None else phases[phase],
        trail,
        known.lower_bound,
        waiting,
        done,
        done / spent if done and spent > 0 else None,
        settled,
        estimate,
    )
    return replace(found, hints=tuple(_hints(found, known)))


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for and what was used, as far as hints depend on it."""

    lower_bound: float | None = None
    timeout: float | None = None
    threads: int | None = None
    config: dict[str, Any] = field(default_factory=dict)


def _hints(found: Explanation, known: Asked) -> list[str]:
    """What may help, best first."""
    hints = {
        Reason.TIMEOUT: _more_time,
        Reason.INTERRUPTED: _nothing,
        Reason.MEMORY: _less_memory,
        Reason.NUMERICS: _numerics,
        Reason.LIMIT: _limits,
        Reason.UNSUPPORTED: _unsupported,
        Reason.CLAIMED: _claimed,
    }[found.reason](found, known)
    threads = known.threads
    if found.reason is Reason.TIMEOUT and threads is not None and threads < cores():
        hints.append(f"--threads {cores()}: this machine has more cores than were used")
    if not known.config.get("falsify", {"enabled": True}).get("enabled", True):
        hints.append("falsify.enabled=true: nothing looked for counterexamples")
    return hints


def _more_time(found: Explanation, known: Asked) -> list[str]:
    if found.phase in (None, "start-up"):
        return ["a longer --timeout: most of it went by before anything was read"]
    if found.phase in ("load", "root", "attack"):
        return [f"a longer --timeout: the phase '{found.phase}' left no time for a search"]
    if found.settled is None or found.settled < FEW:
        return [
            "--set search.splitting=relus or =inputs, whichever was not used, or another preset (`verify config list`)",
            "a smaller box, or one clause at a time: the tree is far larger than this time allows",
        ]
    factor = 1.0 / found.settled
    if known.timeout is not None and factor <= TOO_LONG:
        return [f"--timeout {math.ceil(1.5 * factor * known.timeout)}, if the tree goes on as it began"]
    return [f"a smaller box: the whole tree would take about {factor:.2g} times as long"]


def _nothing(found: Explanation, known: Asked) -> list[str]:
    return []


def _less_memory(found: Explanation, known: Asked) -> list[str]:
    return ["--set bounding.memory_mb=N and --set search.memory_mb=N with less than this machine has", "--threads 1"]


def _numerics(found: Explanation, known: Asked) -> list[str]:
    return ["a slightly smaller or larger box: what is to be decided is as small as rounding errors (docs/numerics.md)"]


def _limits(found: Explanation, known: Asked) -> list[str]:
    limits = [name for name in ("max_domains", "max_batches") if known.config.get("search", {}).get(name) is not None]
    return [f"a larger search.{name}" for name in limits if found.domains] or ["`verify NET PROP`, which searches too"]


def _unsupported(found: Explanation, known: Asked) -> list[str]:
    return ["`verify show NET`, which lists all operators that stand in the way"]


def _claimed(found: Explanation, known: Asked) -> list[str]:
    return ["the preset auto, whose answers are proofs"]
