"""The one mutable record of a run, from which a result can be drawn up at any time."""

from __future__ import annotations

import functools
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import verifier
from verifier.clock import Clock
from verifier.errors import UnsupportedOperator, VerifierError
from verifier.result.counterexample import Counterexample, Reserve
from verifier.result.result import PHASES, Result, Setting, Statistics, peak_rss_mb
from verifier.result.undecided import Asked, Explanation, Trail, undecided
from verifier.result.verdict import Reason, Verdict

LIBRARIES = ("torch", "onnx", "onnxruntime", "onnx2torch", "numpy", "highspy")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a run is: what is known at one moment.  As text it is one line."""

    seconds: float
    phase: str | None  # load, attack, root or search
    domains: int = 0  # that were bounded
    open: int = 0  # that wait
    lower_bound: float | None = None  # of the worst domain; the property holds once none is open
    tier: str | None = None  # the bounding method at work
    shares: tuple[tuple[str, float], ...] = ()  # of the domains, by tier; what is left were exact leaves
    per_second: float | None = None  # domains
    threads: int | None = None  # cores that are used

    def __str__(self) -> str:
        between = "..." if self.tier is not None else "starting"
        parts = [f"{self.seconds:.1f} s", self.phase or between]
        if self.lower_bound is not None:
            parts.append(f"bound {self.lower_bound:.4g}")
        if self.domains or self.open:
            rate = "" if self.per_second is None else f", {self.per_second:.3g}/s"
            parts.append(f"{self.open} open, {self.domains} done{rate}")
        if self.threads is not None and self.phase == "search":
            parts.append(f"{self.threads} core{'s' if self.threads > 1 else ''}")
        if len(self.shares) > 1:
            parts.append(", ".join(f"{name} {100 * share:.0f} %" for name, share in self.shares))
        elif self.shares or self.tier is not None:
            parts.append(self.shares[0][0] if self.shares else str(self.tier))
        return " | ".join(parts)


@dataclass(slots=True)
class Status:
    """What is known so far about a run that may still be going on.

    The phases write into it, and whoever must answer early (the deadline, Ctrl-C) or wants to show progress reads
    it.  Every field is replaced as a whole, so a reader in another thread sees old or new values, never half.
    """

    setting: Setting = field(default_factory=Setting)
    clock: Clock = field(default_factory=Clock.begin)
    network_sha256: str | None = None
    property_sha256: str | None = None
    device: str | None = None
    threads: int | None = None
    lower_bound: float | None = None
    open: int = 0  # domains that wait
    tier: str | None = None  # the bounding method at work
    statistics: Statistics = field(default_factory=Statistics)
    phases: tuple[str, ...] = PHASES
    seconds: dict[str, float] = field(default_factory=dict)  # finished phases
    running: tuple[str, float] | None = None  # the current phase and when it began (time.monotonic)
    trail: Trail = field(default_factory=Trail)  # what explains an end without an answer
    reserve: Reserve | None = None  # for a witness that only the network's own run confirms

    def computes_on(self, device: object, threads: int) -> None:
        """Notes the part of the machine that is used."""
        self.device = str(device)
        self.threads = threads

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to one of the `phases`; they do not nest."""
        self.running = (name, time.monotonic())
        try:
            yield
        finally:
            self.seconds = self.times()
            self.running = None

    def times(self) -> dict[str, float]:
        """Seconds per phase, the running one included."""
        seconds = {name: self.seconds.get(name, 0.0) for name in self.phases}
        if self.running is not None:
            name, began = self.running
            seconds[name] += time.monotonic() - began
        return seconds

    def snapshot(self) -> Snapshot:
        """What is known now."""
        running, counts = self.running, self.statistics
        by_tier = counts.domains_by_tier.items() if counts.domains else ()
        shares = tuple((name, count / counts.domains) for name, count in by_tier)
        phase = None if running is None else running[0]
        spent = self.times().get("search", 0.0)
        return Snapshot(
            self.clock.elapsed(),
            phase,
            counts.domains,
            self.open,
            self.lower_bound,
            self.tier,
            shares,
            counts.domains / spent if counts.domains and spent > 0 else None,
            self.threads,
        )

    def conclude(
        self,
        verdict: Verdict,
        reason: Reason | None = None,
        message: str | None = None,
        counterexample: Counterexample | None = None,
    ) -> Result:
        """The result with this verdict and all that is known now.

        A witness in reserve decides what would be undecided otherwise; beside a proof it is only mentioned.
        """
        kept = None if self.reserve is None else self.reserve.found()
        if kept is not None and verdict in (Verdict.UNKNOWN, Verdict.TIMEOUT):
            verdict, reason, message, counterexample = Verdict.SAT, None, None, kept
        return Result(
            verdict,
            reason,
            message,
            counterexample,
            kept if verdict is Verdict.UNSAT else None,
            self.lower_bound,
            replace(self.statistics, peak_rss_mb=round(peak_rss_mb(), 1)),
            self._undecided(reason) if verdict in (Verdict.UNKNOWN, Verdict.TIMEOUT) else None,
            **self.circumstances(),
        )

    def _undecided(self, reason: Reason | None) -> Explanation | None:
        if reason is None:
            return None
        seconds = {"total": self.clock.elapsed()} | self.times()
        known = Asked(self.lower_bound, self.setting.timeout, self.threads, self.setting.config)
        return undecided(reason, seconds, self.trail, (self.statistics.domains, self.open), known)

    def circumstances(self) -> dict[str, Any]:
        """The fields of `Circumstances`, as they are now."""
        return {
            "setting": self.setting,
            "network_sha256": self.network_sha256,
            "property_sha256": self.property_sha256,
            "time": {"total": self.clock.elapsed()} | self.times(),
            "device": self.device,
            "threads": self.threads,
            "versions": dict(versions()),
        }

    def fail(self, error: BaseException) -> Result:
        """The result of a run that ended in an error."""
        reason = Reason.UNSUPPORTED if isinstance(error, UnsupportedOperator) else None
        return self.conclude(Verdict.ERROR, reason, sentence(error))


def sentence(error: BaseException) -> str:
    """One line about an error; what was not raised on purpose is called internal."""
    text = f"internal error: {type(error).__name__}: {error}"
    if isinstance(error, VerifierError):
        text = str(error)
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split())


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what takes part, as they are installed, whether it has been imported by now or not."""
    found = {"strata-verifier": verifier.__version__, "python": platform.python_version()}
    return found | {name: version for name in LIBRARIES if (version := _installed(name))}


def _installed(name: str) -> str | None:
    from importlib import metadata  # here: it takes a moment, and torch loads it anyway

    try:
        return metadata.version(name)
    except Exception:  # of any kind: an installation that is damaged must not cost the answer
        # Some builds have another name (onnxruntime-gpu): the module tells, if it is there.
        return getattr(sys.modules.get(name), "__version__", None)
