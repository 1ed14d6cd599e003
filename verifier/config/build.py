"""From options to methods: the only place that knows algorithms by name.  Building imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from verifier.config.options import (
    ActiveSet,
    ActiveSetTier,
    Additions,
    AlphaCrown,
    AsSp,
    BigM,
    BigMTier,
    Bounding,
    Climb,
    CutTier,
    Initial,
    PrimalStart,
    Propagated,
    SaddlePoint,
    SaddlePointTier,
    Search,
    Sharpen,
    SlopeTier,
    Tier,
)
from verifier.errors import ConfigError, InputError

if TYPE_CHECKING:
    from verifier.bounding.core.ascent import Ascent
    from verifier.bounding.core.base import Bounder
    from verifier.bounding.hidden import GroupBounds
    from verifier.bounding.solvers import active_set
    from verifier.bounding.solvers.solver import Solver
    from verifier.search import tiers
    from verifier.search.loop import Limits
    from verifier.search.sharpen import Sharpening
    from verifier.search.signs.space import Policy

METHODS = tuple(
    "interval crown wong_kolter alpha_crown propagated big_m active_set saddle_point as_sp lp lp_cuts".split()
)
"""The bounding methods by name."""

_COUNTS = dict.fromkeys(("alpha_crown", "propagated", "big_m", "active_set", "saddle_point", "as_sp"), "iterations")
_COUNTS["lp_cuts"] = "rounds"


def iteration_overrides(methods: Iterable[str], count: int) -> list[str]:
    """Overrides of the number of (main) iterations, for those of the methods that have one."""
    overrides = [f"bounding.{name}.{_COUNTS[name]}={count}" for name in methods if name in _COUNTS]
    if not overrides:
        raise InputError(f"only iterative methods take a number of iterations: {', '.join(_COUNTS)}")
    return overrides


def build_bounder(method: str, options: Bounding) -> Bounder:
    """The bounding method of that name.  Guarantee: in float64 its bounds are rigorous, but for linear programs."""
    from verifier.bounding.lp import bounder as lp
    from verifier.bounding.relaxation import interval
    from verifier.bounding.solvers import alpha_crown, big_m, crown
    from verifier.bounding.solvers.solver import Certified

    if method not in METHODS:
        raise InputError(f"there is no method '{method}'; the methods are {', '.join(METHODS)}")
    if method == "alpha_crown":
        return Certified(alpha_crown.AlphaCrown(_ascent(options.alpha_crown)))
    if method == "propagated":
        return Certified(_propagated(options.propagated))
    if method == "big_m":
        return Certified(big_m.BigM(_ascent(options.big_m), big_m.Start(options.big_m.start)))
    if method == "lp_cuts":
        return lp.CutLP(options.lp_cuts.rounds, options.lp_cuts.tolerance)
    if method in ("active_set", "saddle_point", "as_sp"):
        return Certified(_with_masks(method, options))
    fixed = {"interval": interval.Interval(), "lp": lp.PlanetLP()}
    return fixed[method] if method in fixed else crown.Linear(crown.Slope(method))


def build_intermediate(options: Bounding) -> GroupBounds:
    """How the hidden neurons get their bounds."""
    from verifier.bounding.hidden import Intermediate, RootBounds, Sharpened

    base = RootBounds(Intermediate(options.intermediate))
    return base if options.sharpen == "none" else Sharpened(base, build_bounder(options.sharpen, options))


def _with_masks(method: str, options: Bounding) -> Solver:
    from verifier.bounding.solvers import saddle_point

    if method == "active_set":
        return _active_set(options.active_set)
    if method == "as_sp":
        return saddle_point.SaddlePoint(*_saddle(options.as_sp, options.as_sp.initial))
    no_masks = ActiveSet(iterations=0, initial=options.saddle_point.initial, additions=Additions(most=0))
    return saddle_point.SaddlePoint(*_saddle(options.saddle_point, no_masks))


def _saddle(options: SaddlePoint | AsSp, initial: ActiveSet) -> tuple[int, int, active_set.ActiveSet, Ascent]:
    return options.iterations, options.offset, _active_set(initial), _ascent(options.primal_start)


def _active_set(options: ActiveSet) -> active_set.ActiveSet:
    from verifier.bounding.cuts.masks import Form
    from verifier.bounding.solvers import active_set, big_m

    return active_set.ActiveSet(
        _ascent(options),
        _ascent(options.initial),
        active_set.Additions(options.additions.every, options.additions.count, options.additions.most),
        big_m.Start(options.initial.start),
        Form(options.masks),
        active_set.OraclePoint(options.point),
        options.threshold,
    )


def _propagated(options: Propagated) -> Bounder:
    from verifier.bounding.solvers import propagated

    first, then = _ascent(options.initial), _ascent(options)
    return propagated.Propagated.in_rounds(first, then, options.thresholds, options.rounds, options.averaged)


def _ascent(options: AlphaCrown | Propagated | BigM | Initial | ActiveSet | PrimalStart) -> Ascent:
    from verifier.bounding.core import ascent

    linear = not isinstance(options, AlphaCrown | Propagated)
    return ascent.Ascent(options.iterations, ascent.Steps(options.first_step, options.last_step, linear))


def build_policy(options: Search) -> Policy:
    """How domains are bounded and split."""
    from verifier.bounding.hidden import Intermediate, RootBounds
    from verifier.branching import babsr, fsb, intercept
    from verifier.search.ladder import Ladder
    from verifier.search.signs.space import Policy
    from verifier.search.signs.tighten import AfterSplit, Never

    branchers = {"intercept": intercept.Intercept(), "babsr": babsr.BaBSR(), "fsb": fsb.FilteredSmart()}
    if not options.tiers:
        raise ConfigError("at least one tier is needed", "search.tiers")
    steps = len(options.tiers) - 1
    if options.cost_ratios is not None and len(options.cost_ratios) != steps:
        raise ConfigError(f"{steps + 1} tiers need {steps} ratio(s)", "search.cost_ratios")
    tighten = options.tighten
    method = RootBounds(Intermediate(tighten.method))
    return Policy(
        Ladder(tuple(build_tier(tier) for tier in options.tiers), options.cost_ratios, options.patience),
        branchers[options.branching],
        AfterSplit(method, tighten.every) if tighten.every else Never(),
        options.batch,
        options.fill,
    )


def build_tier(options: Tier) -> tiers.Tier:
    """One rung of the ladder."""
    from verifier.search.tiers import propagated_tier, slope_tier

    if isinstance(options, SlopeTier):
        return slope_tier(_climb(options.root), _climb(options))
    if isinstance(options, CutTier):
        first, then, scout = _climb(options.root), _climb(options), _climb(options.scout)
        return propagated_tier(first, then, options.thresholds, scout, options.refresh)
    return _multipliers(options)


def _climb(options: Climb | SlopeTier | CutTier) -> Ascent:
    """A short ascent of the search, which looks often at who is done."""
    from verifier.bounding.core import ascent

    return ascent.Ascent(options.iterations, ascent.Steps(options.first_step, options.last_step), check_every=5)


def _multipliers(options: BigMTier | ActiveSetTier | SaddlePointTier) -> tiers.Tier:
    """A tier of the paper's solvers."""
    from verifier.bounding.solvers import big_m
    from verifier.search.tiers import Tier

    if isinstance(options, BigMTier):
        solver: Solver = big_m.BigM(_ascent(options), big_m.Start(options.start))
        return Tier("big_m", solver, solver, options.iterations, together=256)
    if isinstance(options, ActiveSetTier):
        solver = _active_set(options)
        return Tier("active_set", solver, solver, options.iterations, together=64)
    solver = _with_masks("saddle_point", Bounding(saddle_point=options))
    return Tier("saddle_point", solver, solver, options.iterations, together=64)


def build_sharpening(options: Sharpen) -> Sharpening | None:
    """How long searches get better bounds of hidden neurons."""
    from verifier.bounding.solvers.propagated import Propagated
    from verifier.bounding.solvers.solver import Certified
    from verifier.search.sharpen import Sharpening

    if options.after is None:
        return None

    first, then = _climb(options.initial), _climb(options.cuts)
    bounder = Certified(Propagated.in_rounds(first, then, averaged=max(1, first.iterations // 2)))
    return Sharpening(bounder, options.after, options.share)


def build_limits(options: Search) -> Limits:
    """When a search gives up or turns depth-first."""
    from verifier.search.loop import Limits

    return Limits(options.memory_mb * 2**20, options.max_domains, options.max_batches)
