"""The tiers by name: which solver, how long on the whole boxes and in the tree, and how many domains at a time."""

from __future__ import annotations

from dataclasses import replace

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.cuts.masks import Threshold
from verifier.bounding.solvers.active_set import ActiveSet, ActiveSetOptions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.bdd_plus import BddPlus, BddPlusOptions
from verifier.bounding.solvers.big_m import BigM, BigMOptions
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.saddle_point import SaddlePoint, SaddlePointOptions
from verifier.bounding.solvers.solver import Solver
from verifier.registry import AscentOptions, Count, Positive, Share, Step
from verifier.search import TIERS
from verifier.search.tiers import Tier

SCOUT = Ascent(15, Steps(0.05, 0.02), check_every=5)
"""On the whole boxes, before each cut."""


def slopes(first: Ascent, ascent: Ascent) -> Tier:
    """alpha-CROWN: slopes, split multipliers and row weights."""
    return Tier("alpha_crown", AlphaCrown(first), AlphaCrown(ascent), ascent.iterations)


def cuts(
    first: Ascent,
    ascent: Ascent,
    thresholds: tuple[Threshold, ...] = (0.5,),
    scout: Ascent = SCOUT,
    learn: bool = False,
) -> Tier:
    """For every threshold also a cut at each kink; its masks are found on the whole boxes and inherited.

    Those of a single cut may be learned from there on, in every domain.
    """
    name = "propagated" if len(thresholds) == 1 else f"propagated_{len(thresholds)}"
    on_boxes = Propagated.one_by_one(scout, first, thresholds)
    if learn:
        on_boxes = on_boxes.learned()
    in_tree, plain, kept = replace(on_boxes, ascent=ascent), slopes(first, ascent), None
    if on_boxes.learns:
        kept = Tier(f"{name}_kept", on_boxes, replace(in_tree, keeps=True), ascent.iterations)
    return Tier(name, on_boxes, in_tree, ascent.iterations, plain=plain, kept=kept)


def multipliers(name: str, solver: Solver, iterations: int, together: int = 64) -> Tier:
    """A dual solver of the paper.  The weights of a clause's rows are those that alpha-CROWN finds on the whole box."""
    return Tier(name, solver, solver, iterations, together)


class SlopeTierOptions(AscentOptions, frozen=True):
    """alpha-CROWN in the tree: slopes, split multipliers and row weights go from parent to child."""

    iterations: Positive = 10
    first_step: Step = 0.1
    last_step: Step = 0.02
    root: AscentOptions = AscentOptions()  # on the whole box


class CutTierOptions(SlopeTierOptions, frozen=True):
    """Propagated Anderson cuts in the tree, one per threshold; masks are found at the root and inherited."""

    last_step: Step = 0.05
    root: AscentOptions = AscentOptions(15, 0.1, 0.005)  # domains go on climbing, so the whole boxes need not be done
    scout: AscentOptions = AscentOptions(15, 0.05, 0.02)  # without cuts; its forward points are where masks are found
    thresholds: tuple[Share | None, ...] = (0.5,)  # null: exact masks, one bit per weight
    learn: bool = True  # the masks too, if there is one cut per neuron and its threshold is 1/2


class BddPlusTierOptions(BddPlusOptions, frozen=True):
    """BDD+ in the tree; the multipliers of all neurons are inherited."""

    iterations: Count = 100
    first_weight: Step = 100.0
    last_weight: Step = 100.0
    momentum: Share = 0.0


class BigMTierOptions(BigMOptions, frozen=True):
    """Big-M in the tree, with the paper's values for complete verification."""

    iterations: Count = 180


class ActiveSetTierOptions(ActiveSetOptions, frozen=True):
    """Active Set in the tree; masks are found anew in every domain, Big-M multipliers are inherited."""

    iterations: Count = 100
    resume: Count = 0  # iterations of Big-M that come first, with the steps of `initial`


class SaddlePointTierOptions(SaddlePointOptions, frozen=True):
    """Saddle Point in the tree; Big-M multipliers are inherited."""

    resume: Count = 0  # iterations of Big-M that come first, with the steps of `initial`


@TIERS.register("alpha_crown", SlopeTierOptions)
def slope_tier(options: SlopeTierOptions) -> Tier:
    return slopes(_short(options.root), _short(options))


@TIERS.register("propagated", CutTierOptions)
def cut_tier(options: CutTierOptions) -> Tier:
    first, then, scout = _short(options.root), _short(options), _short(options.scout)
    if not options.thresholds:
        return slopes(first, then)
    return cuts(first, then, options.thresholds, scout, options.learn)


@TIERS.register("bdd_plus", BddPlusTierOptions)
def bdd_plus_tier(options: BddPlusTierOptions) -> Tier:
    return multipliers("bdd_plus", BddPlus.of(options), options.iterations, together=256)


@TIERS.register("big_m", BigMTierOptions)
def big_m_tier(options: BigMTierOptions) -> Tier:
    return multipliers("big_m", BigM.of(options), options.iterations, together=256)


@TIERS.register("active_set", ActiveSetTierOptions)
def active_set_tier(options: ActiveSetTierOptions) -> Tier:
    solver = ActiveSet.of(options).resuming(options.resume)
    return multipliers("active_set", solver, options.resume + options.iterations)


@TIERS.register("saddle_point", SaddlePointTierOptions)
def saddle_point_tier(options: SaddlePointTierOptions) -> Tier:
    solver = SaddlePoint.of(options).resuming(options.resume)
    return multipliers("saddle_point", solver, options.resume + options.iterations)


def _short(options: AscentOptions) -> Ascent:
    """An ascent that looks often at who is done."""
    return Ascent.of(options, check_every=5)
