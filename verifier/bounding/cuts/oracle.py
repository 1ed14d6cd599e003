"""Finding masks: the separation oracle of the Anderson relaxation, asked at a primal point for all groups at once.

`Oracle` gives the cuts of an active set; `find_masks` gives bits alone, for domains that will inherit them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from verifier.bounding.core.average import Average
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import Cut, RowGeometry, SharedGeometry, reads_only_moved_inputs
from verifier.bounding.cuts.balanced import BalancedGeometry
from verifier.bounding.cuts.masks import CutMasks, Form, GroupBits
from verifier.bounding.relaxation.relu import Kinks
from verifier.bounding.solvers.alpha_crown import FaceDual
from verifier.shapes import Float, Int, Tensor

__all__ = ["Average", "Masks", "Oracle", "Threshold", "find_masks"]


class Masks(Enum):
    """The form of the masks."""

    ROWS = "rows"  # one bit per weight, as in the paper
    SHARED = "shared"  # one threshold for all neurons of a group


@dataclass(frozen=True, eq=False)
class Oracle:
    """[SCB] eq:oracle for every group; groups without kinks or without reachable weights take no cut."""

    geometries: tuple[RowGeometry | SharedGeometry | None, ...]
    count: int
    threshold: float

    @classmethod
    def of(cls, sweep: Sweep, masks: Masks, threshold: float) -> Oracle:
        found = []
        for layer, kinks in zip(sweep.net.layers, sweep.kinks, strict=False):
            geometry: RowGeometry | SharedGeometry | None = None
            if kinks.count:
                kind = RowGeometry if masks is Masks.ROWS else SharedGeometry
                geometry = kind.of(layer, sweep.region, kinks.index)
            found.append(geometry)
        return cls(tuple(found), sweep.region.count, threshold)

    def cuts(self, point: Average) -> tuple[Cut | None, ...]:
        """The cuts at a point of some regions; all other regions get cuts with empty masks."""
        rows, (values, z) = point.rows, point.mean()
        found: list[Cut | None] = []
        for k, geometry in enumerate(self.geometries):
            if geometry is None:
                found.append(None)
            elif isinstance(geometry, RowGeometry):
                mask = geometry.select(rows).excess(values, z[k]) >= 0
                found.append(geometry.cut(self._everywhere(mask, rows)))
            else:
                masks = geometry.select(rows).masks(values, self.threshold)
                found.append(geometry.cut(tuple(self._everywhere(m, rows) for m in masks)))
        return tuple(found)

    def _everywhere(self, mask: Tensor, rows: Int[Tensor, " d"]) -> Tensor:
        if len(rows) == self.count:
            return mask
        return mask.new_zeros(self.count, *mask.shape[1:]).index_copy_(0, rows, mask)


Threshold = float | None
"""Of the oracle: a number that all neurons of a group share, or None for the z of each neuron (exact masks)."""


def find_masks(dual: FaceDual, average: Average, thresholds: Sequence[Threshold] = (0.5,)) -> CutMasks:
    """The masks at an averaged point, one cut per threshold; regions that have left get empty masks.

    Require: some point in `average`.  Groups without kinks take no cut, nor do those whose neurons read one input
    each or whose weights are out of reach.
    """
    sweep, (values, _) = dual.sweep, average.mean()
    cuts = [
        tuple(_group_bits(sweep, k, values, average.rows, threshold) for k in range(1, sweep.layer))
        for threshold in thresholds
    ]
    return CutMasks(tuple(cuts))


def _group_bits(
    sweep: Sweep, k: int, values: list[Tensor | None], rows: Int[Tensor, " d"], threshold: Threshold
) -> GroupBits | None:
    layer, kinks = sweep.net.layers[k - 1], sweep.kinks[k - 1]
    x = values[k]
    if x is None or not kinks.count or reads_only_moved_inputs(layer):
        return None
    form = Form.ROWS if threshold is None else Form.BALANCED if threshold == 0.5 else Form.SHARED
    geometry = form.geometry(sweep.select(rows), k)
    if geometry is None:
        return None
    if isinstance(geometry, RowGeometry):
        found = geometry.excess(values, _middle(kinks.select(rows), x, layer.forward(values))) >= 0
    elif isinstance(geometry, BalancedGeometry):
        found = geometry.bits(values)
    else:
        assert threshold is not None
        found = torch.cat(geometry.masks(values, threshold), dim=-1)
    if len(rows) < sweep.region.count:
        found = found.new_zeros(sweep.region.count, *found.shape[1:]).index_copy_(0, rows, found)
    return GroupBits(form, found)


def _middle(kinks: Kinks, x: Float[Tensor, "d S n"], x_hat: Float[Tensor, "d S n"]) -> Float[Tensor, "d S a"]:
    """The z of each kink: the middle of what Big-M leaves for it, x / u_hat <= z <= (x_hat - l_hat - x) / -l_hat.

    The choice changes bounds by less than .001, see docs/measured/bounding.md.
    """
    x, x_hat = x.index_select(-1, kinks.index), x_hat.index_select(-1, kinks.index)
    ends = x / kinks.u_hat + (x_hat - kinks.l_hat - x) / -kinks.l_hat
    return torch.where(kinks.ambiguous, 0.5 * ends, 0.0).clamp(0.0, 1.0)
