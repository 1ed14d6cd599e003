"""Groups of maxima: one face below each neuron and one above it.

requires:   bounds of the group's pre-activations
guarantees: faces that are valid on them; in float64 with all errors (`verifier.functions.largest`)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.relaxation.smooth import Lines, Smooth
from verifier.functions.largest import Largest
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Maxima(Smooth):
    """The largest of some entries at each neuron.  Its variables move nothing: there is one face on either side."""

    function: Largest
    below: tuple[Float[Tensor, "D 1 n"], ...]
    above: tuple[Float[Tensor, "D 1 n"], ...]
    offset: Float[Tensor, "D 1 n"]

    pace = 1.0

    @classmethod
    def of(cls, region: Region, k: int) -> Maxima:
        function = region.functions[k - 1]
        assert isinstance(function, Largest)
        low, high = region.l_hat[k - 1].unsqueeze(1), region.u_hat[k - 1].unsqueeze(1)
        slopes, offset = function.above(low, high)
        return cls(low, high, function, tuple(function.below(low, high)), tuple(slopes), offset)

    @property
    def arity(self) -> int:
        return self.function.entries

    def value(self, t: Float[Tensor, "*axes n_hat"]) -> Float[Tensor, "*axes n"]:
        return self.function.value(t)

    def lines(self, variable: Float[Tensor, "#D #S n"], side: Float[Tensor, "#D #S n"] | float) -> Lines:
        lower = torch.as_tensor(side, device=self.offset.device) > 0
        offset = torch.where(lower, 0.0, self.offset)
        slopes = tuple(torch.where(lower, *pair) for pair in zip(self.below, self.above, strict=True))
        still = (torch.zeros_like(offset),) * self.arity
        return Lines(slopes, offset, still, still)
