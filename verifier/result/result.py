"""The result of one run with its counters and timings, and its JSON form."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from verifier.errors import SoundnessError
from verifier.result.counterexample import Counterexample
from verifier.result.undecided import Explanation
from verifier.result.verdict import Reason, Verdict

PHASES = ("load", "attack", "root", "search")


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the search did.  All counters are zero for an instance that was decided without a search."""

    domains: int = 0
    domains_by_tier: dict[str, int] = field(default_factory=dict)
    leaves_lp: int = 0
    max_open: int = 0
    batches: int = 0
    bound_iterations: int = 0
    looks: tuple[dict[str, object], ...] = ()  # comparisons of the lowest tier with the same without cuts
    claimed: str | None = None  # the verdict of a solver without proofs, if one was asked
    peak_rss_mb: float = 0.0
    earlier_runs: int = 0  # that this one has continued; the counters are those of all
    earlier_seconds: float = 0.0  # that they took


@dataclass(frozen=True, slots=True)
class Setting:
    """What was asked: the instance and how it was to be treated."""

    network: str | None = None
    property: str | None = None
    timeout: float | None = None
    config: dict[str, Any] = field(default_factory=dict)  # resolved: every option with its value
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances(ABC):
    """What an answer speaks of and how it came about: the same for verdicts and for bounds."""

    setting: Setting = field(default_factory=Setting)
    network_sha256: str | None = None
    property_sha256: str | None = None
    time: dict[str, float] = field(default_factory=dict)  # "total" and the phases, in seconds
    device: str | None = None
    threads: int | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def around(self, phases: tuple[str, ...], said: dict[str, Any]) -> dict[str, Any]:
        """The keys of `--json` that stand before and after what is said."""
        return {
            "network": self.setting.network,
            "property": self.setting.property,
            "network_sha256": self.network_sha256,
            "property_sha256": self.property_sha256,
            "timeout": self.setting.timeout,
            "time": {name: round(self.time.get(name, 0.0), 6) for name in ("total", *phases)},
            **said,
            "config": self.setting.config,
            "seed": self.setting.seed,
            "device": self.device,
            "threads": self.threads,
            "versions": self.versions,
        }

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`."""

    def as_json(self) -> str:
        """`as_dict` on one line.  Infinities and NaN have no JSON form and become null."""
        return json.dumps(finite(self.as_dict()), allow_nan=False)


@dataclass(frozen=True, slots=True, repr=False)
class Result(Circumstances):
    """The answer of one run.

    Guarantees: `sat` if and only if there is a replayed counterexample; `unsat` has no reason; any other verdict has
    a reason, or for an error a message.

    `unsat` speaks of real arithmetic.  `rounding_witness` then says where the network's own run differs: at that point
    rounding takes it into the unsafe set.
    """

    verdict: Verdict
    reason: Reason | None = None
    message: str | None = None  # one sentence for people
    counterexample: Counterexample | None = None
    rounding_witness: Counterexample | None = None
    lower_bound: float | None = None  # of the largest row of the worst clause; see docs/formats.md; None: not known
    statistics: Statistics = field(default_factory=Statistics)
    undecided: Explanation | None = None  # why, and what to try
    proof: dict[str, Any] | None = None  # of an `unsat`: its file, bytes, SHA-256, leaves, seconds of writing

    def __post_init__(self) -> None:
        if (self.verdict is Verdict.SAT) != (self.counterexample is not None):
            raise SoundnessError("a verdict is sat if and only if there is a replayed counterexample")
        if self.rounding_witness is not None and self.verdict is not Verdict.UNSAT:
            raise SoundnessError("rounding can only differ from a proof where there is one")
        if self.verdict.decided and self.reason is not None:
            raise SoundnessError("a definite verdict has no reason for being undecided")
        if not self.verdict.decided and self.reason is None and not self.message:
            raise SoundnessError(f"the verdict {self.verdict.value} needs a reason")

    def __repr__(self) -> str:
        said = f"{self.verdict.value}, {self.reason.value}" if self.reason is not None else self.verdict.value
        said = said if self.verdict.value != "timeout" else "timeout"
        bound = "" if self.lower_bound is None or self.verdict.decided else f", lower bound {self.lower_bound:.4g}"
        point = "" if self.counterexample is None else f", witness of shape {list(self.counterexample.input.shape)}"
        return f"<Result {said} in {self.time.get('total', 0.0):.2f} s{bound}{point}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from verifier.result.html import result_html

        return result_html(self)

    @property
    def witness(self) -> str | None:
        """The counterexample in the form of VNN-COMP, or None."""
        return None if self.counterexample is None else self.counterexample.text()

    @property
    def arithmetic(self) -> str | None:
        """What a definite verdict speaks of: `real` arithmetic, or only the network's own `run`; None if undecided."""
        if self.counterexample is not None:
            return "real" if self.counterexample.sharp else "run"
        return "real" if self.verdict is Verdict.UNSAT else None

    @property
    def note(self) -> str | None:
        """What people should know beside the verdict: where the network's run and real arithmetic differ."""
        if self.arithmetic == "run":
            return "the witness is one of the network's own run; real arithmetic does not confirm it"
        if self.rounding_witness is None:
            return None
        place = "a point of the box" if self.rounding_witness.exact else "a float next to the box"
        return f"this holds in real arithmetic; the network's own run violates the property by rounding at {place}"

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`: the documented keys in the documented order, and `message` beside them."""
        reason = self.reason.value if self.reason is not None else None
        if self.verdict is Verdict.ERROR and reason is None:
            reason = self.message
        said = {
            "lower_bound": self.lower_bound,
            "counterexample": _witness(self.counterexample),
            "arithmetic": self.arithmetic,
            "rounding_witness": _witness(self.rounding_witness),
            "statistics": asdict(self.statistics),
            "undecided": None if self.undecided is None else self.undecided.as_dict(),
            "proof": self.proof,
        }
        head = {"verdict": self.verdict.value, "reason": reason, "message": self.message}
        return head | self.around(PHASES, said)


def _witness(counterexample: Counterexample | None) -> dict[str, Any] | None:
    if counterexample is None:
        return None
    # A float32 becomes the double of the same value, so the numbers read back exactly.
    x, y = counterexample.declared
    values: dict[str, Any] = {"x": x.tolist(), "y": y.tolist()}
    if counterexample.image is not None:
        values["image"] = counterexample.image.tolist()
    return values if counterexample.exact else values | {"exact": False}


def finite(value: Any) -> Any:
    """The same data for JSON: infinities and NaN, which have no form there, become None."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value


def peak_rss_mb() -> float:
    """The largest resident memory of this process so far, in megabytes; 0 where the system does not tell."""
    try:
        # Linux.  Not getrusage first: its peak survives exec, so a child would report its parent's memory.
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:", 1)[1].split()[0]) * 1024 / 1e6
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6  # macOS counts bytes, others kilobytes
