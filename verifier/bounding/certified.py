"""Search in float32, prove in float64.

requires:   a network, region and objective in float64, the region's bounds rigorous
guarantees: a rigorous lower bound: the float64 evaluation of the variables that a float32 ascent found
source:     docs/numerics.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from verifier.bounding.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.sweep import Sweep
from verifier.network.network import Network


@dataclass(frozen=True)
class Certified(Bounder):
    """Runs another bounder in single precision and evaluates its proof in double precision.

    A bounder that gives no proof (its variables are too many to keep) runs in double precision itself.
    """

    inner: Bounder

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        kinks = tuple(kinks.index for kinks in Sweep.prepare(net, region, objective.layer).kinks)
        region = replace(region, kinks=kinks)
        quick = self.inner.bound(
            net.to(dtype=torch.float32), region.to(torch.float32), objective.to(torch.float32), until
        )
        if quick.proof is None:
            return self.inner.bound(net, region, objective, until)
        lower = quick.proof.evaluate(net, region, objective)
        return replace(quick, lower=lower, x0=None if quick.x0 is None else quick.x0.double())
