"""All options of a run and their defaults, as frozen structs.  Nothing heavy is imported here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Effort = Annotated[float, Meta(gt=0)]
Step = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Start = Literal["linear", "zero"]  # the multipliers of the CROWN bound, or the paper's zeros


class Falsify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The search for counterexamples by gradients."""

    enabled: bool = True
    samples: Count = 1024  # points of each box that are tried first
    restarts: Positive = 64  # starting points of the descents, per clause
    steps: Positive = 40  # steps of each descent
    effort: Effort = 0.15  # the work of one attack, in seconds of a nominal core
    seconds: Seconds = 10.0  # the most that one attack may take


class AlphaCrown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slopes of the propagated Planet dual."""

    iterations: Count = 100
    first_step: Step = 0.2
    last_step: Step = 0.01


class Propagated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """alpha-CROWN first, then rounds that bend the upper faces by Anderson cuts, one per threshold."""

    iterations: Count = 150  # of each round
    first_step: Step = 0.05
    last_step: Step = 0.005
    initial: AlphaCrown = AlphaCrown()
    thresholds: tuple[Share | None, ...] = (0.5,)  # null: exact masks, one bit per weight
    rounds: Count = 1
    averaged: Positive = 40  # forward points at whose mean the masks are found


class BigM(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dual of the Big-M relaxation; the paper's values for incomplete verification."""

    iterations: Count = 850
    first_step: Step = 1e-2
    last_step: Step = 1e-4
    start: Start = "linear"


class Initial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Big-M ascent that comes before masks: as above, but shorter."""

    iterations: Count = 500
    first_step: Step = 1e-2
    last_step: Step = 1e-4
    start: Start = "linear"


class Additions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When masks are added to an active set: `count` of them every `every` iterations, up to `most`."""

    every: Positive = 450
    count: Count = 2
    most: Count = 7


class ActiveSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dual of the Anderson relaxation with a few masks."""

    iterations: Count = 600
    first_step: Step = 1e-3
    last_step: Step = 1e-6
    initial: Initial = Initial()
    additions: Additions = Additions()
    masks: Literal["rows", "shared"] = "rows"  # one bit per weight, or one threshold per group
    point: Literal["minimiser", "average"] = "minimiser"  # where the oracle is asked
    threshold: Share = 0.5  # of shared masks


class PrimalStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The descent that finds the primal start of Saddle Point."""

    iterations: Count = 100
    first_step: Step = 1e-2
    last_step: Step = 1e-5


class SaddlePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Frank-Wolfe with all masks, after Big-M; steps 1 / (t + offset)."""

    iterations: Count = 1000
    offset: Positive = 10
    initial: Initial = Initial()
    primal_start: PrimalStart = PrimalStart()


class AsSp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Saddle Point after Active Set."""

    iterations: Count = 3000
    offset: Positive = 10
    initial: ActiveSet = ActiveSet()
    primal_start: PrimalStart = PrimalStart()


class LpCuts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Linear programs with rounds of cuts that are violated by more than `tolerance`."""

    rounds: Count = 1
    tolerance: Step = 1e-6


class Bounding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lower bounds over relaxations."""

    # How the bounds of the hidden neurons are found; best: of interval and crown, paper: of interval and wong_kolter.
    intermediate: Literal["best", "crown", "interval", "wong_kolter", "paper"] = "best"
    # The method that then bounds hidden neurons which are still ambiguous.
    sharpen: Literal["none", "crown", "wong_kolter", "alpha_crown", "big_m", "active_set"] = "none"
    batch: Positive = 256  # boxes that are bounded together, at most
    alpha_crown: AlphaCrown = AlphaCrown()
    propagated: Propagated = Propagated()
    big_m: BigM = BigM()
    active_set: ActiveSet = ActiveSet()
    saddle_point: SaddlePoint = SaddlePoint()
    as_sp: AsSp = AsSp()
    lp_cuts: LpCuts = LpCuts()


class Climb(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An ascent: the number of its iterations, and steps that fall geometrically."""

    iterations: Count = 60
    first_step: Step = 0.2
    last_step: Step = 0.01


class SlopeTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="method", tag="alpha_crown"):
    """alpha-CROWN in the tree: slopes, split multipliers and row weights go from parent to child."""

    iterations: Positive = 10
    first_step: Step = 0.1
    last_step: Step = 0.02
    root: Climb = Climb()  # on the whole box


class CutTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="method", tag="propagated"):
    """Propagated Anderson cuts in the tree, one per threshold; masks are found at the root and inherited."""

    iterations: Positive = 10
    first_step: Step = 0.1
    last_step: Step = 0.02
    root: Climb = Climb(first_step=0.1, last_step=0.005)
    scout: Climb = Climb(40, 0.05, 0.02)  # the ascent without cuts whose forward points the oracle is asked at
    thresholds: tuple[Share | None, ...] = (0.5,)  # null: exact masks, one bit per weight
    # In domains whose depth is a multiple of it, a new mask takes the place of the least used one; null: never.
    refresh: Positive | None = None


class BigMTier(BigM, frozen=True, forbid_unknown_fields=True, tag_field="method", tag="big_m"):
    """Big-M in the tree, with the paper's values for complete verification."""

    iterations: Count = 180


class ActiveSetTier(ActiveSet, frozen=True, forbid_unknown_fields=True, tag_field="method", tag="active_set"):
    """Active Set in the tree; masks are found anew in every domain, Big-M multipliers are inherited."""

    iterations: Count = 100


class SaddlePointTier(SaddlePoint, frozen=True, forbid_unknown_fields=True, tag_field="method", tag="saddle_point"):
    """Saddle Point in the tree; Big-M multipliers are inherited."""


Tier = SlopeTier | CutTier | BigMTier | ActiveSetTier | SaddlePointTier


class Tighten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of the groups after a split, computed anew in the children."""

    every: Count = 0  # at depths that are a multiple of it; 0: never
    method: Literal["best", "interval", "crown", "wong_kolter", "paper"] = "best"


class Sharpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of hidden neurons by propagated cuts, for long searches, which then go on with them."""

    after: Seconds | None = 4.0  # of search; null: never
    share: Share = 0.25  # of the time that is left, at most
    initial: Climb = Climb(8, 0.3, 0.03)  # without cuts
    cuts: Climb = Climb(8, 0.2, 0.03)


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Branch and bound."""

    # What is split: signs of ReLUs, or the input box; auto: the box where few inputs move, in a race with signs.
    splitting: Literal["auto", "relus", "inputs"] = "auto"
    tiers: tuple[Tier, ...] = (CutTier(),)  # from cheap to tight; hard subtrees go up
    # How many times dearer a domain is on each next tier; without it the search measures, and its tree varies.
    cost_ratios: tuple[Effort, ...] | None = None
    patience: Count = 0  # domains that a tier bounds before the one above it is tried
    branching: Literal["intercept", "babsr", "fsb"] = "intercept"
    sharpen: Sharpen = Sharpen()
    tighten: Tighten = Tighten()
    batch: Positive = 256  # domains that are bounded together
    fill: Positive = 16  # with fewer domains than this, several levels are split at once
    memory_mb: Positive = 2048  # of waiting domains; beyond it the search goes depth-first
    max_domains: Positive | None = None  # give up after so many, with the bound so far
    max_batches: Positive | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All options of a run."""

    falsify: Falsify = Falsify()
    bounding: Bounding = Bounding()
    search: Search = Search()

    def resolved(self) -> dict[str, Any]:
        """Every option with its value, as plain dictionaries."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain
