"""Clauses on small networks of any functions, with minima that Lipschitz constants prove."""

from __future__ import annotations

from dataclasses import dataclass

import lipschitz
import networks
import numpy as np
from falsify import instances
from search.cases import terms

from verifier.functions import Function
from verifier.network.network import Network
from verifier.property.problem import Problem

GAP = 2e-3
"""How far thresholds are from what is known of the minima."""

WITHIN = 2e-3
"""How well these are known."""


@dataclass(frozen=True, eq=False)
class MixedCase:
    """A clause A y <= c on a box; the least value of its largest row is between `low` and `high`."""

    net: Network
    box: tuple[np.ndarray, np.ndarray]
    A: np.ndarray
    c: np.ndarray
    low: float
    high: float

    def problem(self, moved: float) -> Problem:
        """The same with all bounds moved."""
        rows = [instances.row(terms(a), bound) for a, bound in zip(self.A, (self.c + moved).tolist(), strict=True)]
        box = instances.boxes(*([side.tolist()] for side in self.box))
        return instances.problem(self.net, box, [(0, rows)])


def mixed_case(seed: int, kinds: tuple[Function, ...] = networks.ANYTHING) -> MixedCase | None:
    """Two inputs, one to three groups, one or two rows; None where the oracle gives up."""
    rng = np.random.default_rng(seed)
    widths = (2, *(int(rng.integers(2, 5)) for _ in range(int(rng.integers(1, 4)))), 2)
    net = networks.mixed(seed, widths, kinds)
    lower, upper = (side[0].numpy() for side in networks.box(net, seed, 1.0))
    A, c = rng.normal(size=(1 + seed % 2, 2)), 0.3 * rng.normal(size=1 + seed % 2)
    found = lipschitz.minimum(net, (lower, upper), A, c, WITHIN)
    return None if found is None else MixedCase(net, (lower, upper), A, c, *found)
