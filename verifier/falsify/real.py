"""Whether a witness holds in real arithmetic: the judge of what the network's own run has confirmed.

requires:   a lowered network in float64, with all of its errors counted
guarantees: a confirmation is a proof that some point of the decimal box is unsafe; a refusal says nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.core.base import Region
from verifier.bounding.relaxation.interval import interval_image
from verifier.network.network import Network
from verifier.network.rational import RationalNetwork
from verifier.property.property import Doubles, ExactRow, Property
from verifier.shapes import Float64, Tensor

Ends = Sequence[tuple[Fraction, Fraction]]
"""For every number a lower and an upper bound."""


@dataclass(frozen=True, eq=False)
class RealArithmetic:
    """A network and a property without rounding.

    A point is evaluated by intervals of float64 first, with all rounding errors; where these leave a doubt, and the
    network is small, in rational arithmetic.  That settles points exactly on the border, which belongs to the unsafe
    set.
    """

    network: Network  # float64, on the CPU
    prop: Property

    def confirms(self, x: NDArray[np.floating], box: int) -> bool:
        """Whether the point of a decimal box that is nearest to x is unsafe in some clause of that box."""
        low, high = self.prop.boxes.around(box, x)
        inputs = _ends(low, high)
        y_low, y_high = enclosed_outputs(self.network, low, high)
        finite = bool(torch.isfinite(y_low).all()) and bool(torch.isfinite(y_high).all())
        if finite and self._unsafe(box, inputs, _ends(y_low.numpy(), y_high.numpy())):
            return True
        if self._rational is None or not np.array_equal(low, high):
            return False
        return self._unsafe(box, inputs, [(y, y) for y in self._rational.forward(low.tolist())])

    def _unsafe(self, box: int, x: Ends, y: Ends) -> bool:
        clauses = (clause for clause in self.prop.clauses if clause.box == box)
        return any(all(holds(row, x, y) for row in clause.rows.exact) for clause in clauses)

    @cached_property
    def _rational(self) -> RationalNetwork | None:
        return RationalNetwork.of(self.network)


def holds(row: ExactRow, x: Ends, y: Ends) -> bool:
    """Whether a row holds for all numbers between the ends."""
    most = _most(row.y, y) + _most(row.x, x)
    return most < row.bound if row.strict else most <= row.bound


def _most(terms: Iterable[tuple[int, Fraction]], ends: Ends) -> Fraction:
    return sum((a * ends[j][1 if a > 0 else 0] for j, a in terms), Fraction(0))


def enclosed_outputs(
    network: Network, low: Doubles, high: Doubles
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """Bounds of the outputs over a box, with all rounding errors; meant for boxes that are hardly more than a point."""
    region = Region(torch.from_numpy(low).unsqueeze(0), torch.from_numpy(high).unsqueeze(0))
    for layer in network.layers:
        region = region.extended(*interval_image(layer, region))
    return region.l_hat[-1][0], region.u_hat[-1][0]


def _ends(low: Doubles, high: Doubles) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(a), Fraction(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
