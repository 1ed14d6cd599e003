"""Attacks for two occasions."""

from __future__ import annotations

from dataclasses import replace

from verifier.falsify import ATTACKS
from verifier.falsify.base import Falsifier, FirstOf
from verifier.falsify.pgd import PGD, Adam, Descent, Signed
from verifier.registry import Count, Options, Positive, Step


class QuickOptions(Options, frozen=True):
    """Descents from many starting points."""

    samples: Count = 1024  # points of each box that are tried first
    restarts: Positive = 64  # starting points of the descents, per clause
    steps: Positive = 40  # steps of each descent
    effort: Step = 0.15  # the work of one attack, in seconds of a nominal core


@ATTACKS.register("quick", QuickOptions)
def quick(options: QuickOptions | None = None, seed: int = 0) -> Falsifier:
    """A first try that costs a few tenths of a second, or some hundred passes through a large network.

    Coarse signed steps do best on images, whose witnesses sit at corners; Adam with fine last steps finds the narrow
    sets that conjunctions over few inputs leave.
    """
    o = options or QuickOptions()
    signed = PGD(Descent(Signed(), o.steps, last=0.02), o.samples, o.restarts, o.effort, passes=200, seed=seed)
    adam = PGD(Descent(Adam(), o.steps), 4 * o.samples, 4 * o.restarts, o.effort * 2 / 3, seed=seed)
    return FirstOf((signed, adam))


@ATTACKS.register("thorough")
def thorough(seed: int = 0) -> Falsifier:
    """Some twenty times as much as `quick`, which comes first, for users who ask for a counterexample only."""
    signed = PGD(Descent(Signed(), 40, last=0.02), samples=8192, effort=0.25, passes=400)
    adam = PGD(Descent(Adam(), 100), samples=8192, effort=0.25, passes=400)
    later = [replace(part, seed=seed + turn) for turn in range(1, 13) for part in (signed, adam)]
    return FirstOf((quick(seed=seed), *later))
