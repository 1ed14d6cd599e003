"""Search in float32, prove in float64.

requires:   a network, region and objective in float64, the region's bounds rigorous
guarantees: a rigorous lower bound: the float64 evaluation of the variables that a float32 ascent found
source:     docs/numerics.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Region, Until, Watch, together, widest
from verifier.bounding.core.sweep import Sweep
from verifier.network.network import Network


@dataclass(frozen=True)
class Certified(Bounder):
    """Runs another bounder in single precision and evaluates its proof in double precision.

    A bounder that `proves` nothing (it has no variables, or they lose too much in single precision) runs in double
    precision itself, once.
    """

    inner: Bounder

    @property
    def proves(self) -> bool:
        return self.inner.proves

    @property
    def rigorous(self) -> bool:
        return self.inner.rigorous

    def watched(self, watch: Watch) -> Certified:
        return replace(self, inner=self.inner.watched(watch))

    def bound(
        self, net: Network, region: Region, objective: Objective, until: Until, warm: Proof | None = None
    ) -> Bound:
        if not self.inner.proves:
            return self.inner.bound(net, region, objective, until, warm)
        kinks = tuple(kinks.index for kinks in Sweep.prepare(net, region, objective.layer).kinks)
        region = replace(region, kinks=kinks)
        quick_net, quick_region = net.to(dtype=torch.float32), region.to(torch.float32)
        # The evaluation holds as many vectors as the ascent, and each takes twice the memory.
        each = 24 * widest(net, objective.layer) * region.lower.element_size() * region.count
        chunk = together(each, self.memory_bytes)
        found = []
        for start in range(0, objective.count, chunk):
            part = objective.part(start, start + chunk)
            state = None if warm is None else warm.part(start, start + chunk)
            quick = self.inner.bound(quick_net, quick_region, part.to(torch.float32), until, state)
            assert quick.proof is not None, f"{type(self.inner).__name__} has promised a proof"
            lower = quick.proof.evaluate(net, region, part)
            found.append(replace(quick, lower=lower, x0=None if quick.x0 is None else quick.x0.double()))
        return Bound.joined(found)
