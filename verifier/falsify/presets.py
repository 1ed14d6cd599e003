"""Falsifiers for two occasions."""

from __future__ import annotations

from dataclasses import replace

from verifier.falsify.base import Falsifier, FirstOf
from verifier.falsify.pgd import PGD, Adam, Descent, Signed


def quick(seed: int = 0, samples: int = 1024, restarts: int = 64, steps: int = 40, effort: float = 0.15) -> Falsifier:
    """A first try that costs a few tenths of a second, or some hundred passes through a large network.

    Coarse signed steps do best on images, whose witnesses sit at corners; Adam with fine last steps finds the narrow
    sets that conjunctions over few inputs leave.
    """
    signed = PGD(Descent(Signed(), steps, last=0.02), samples, restarts, effort, passes=200, seed=seed)
    adam = PGD(Descent(Adam(), steps), 4 * samples, 4 * restarts, effort * 2 / 3, seed=seed)
    return FirstOf((signed, adam))


def thorough(seed: int = 0) -> Falsifier:
    """Some twenty times as much as `quick`, which comes first, for users who ask for a counterexample only."""
    signed = PGD(Descent(Signed(), 40, last=0.02), samples=8192, effort=0.25, passes=400)
    adam = PGD(Descent(Adam(), 100), samples=8192, effort=0.25, passes=400)
    later = [replace(part, seed=seed + turn) for turn in range(1, 13) for part in (signed, adam)]
    return FirstOf((quick(seed), *later))
