"""Finding masks: the separation oracle of the Anderson relaxation, asked at a primal point for all groups at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch

from verifier.bounding.anderson import Cut, RowGeometry, SharedGeometry
from verifier.bounding.average import Average
from verifier.bounding.sweep import Sweep
from verifier.shapes import Int, Tensor

__all__ = ["Average", "Masks", "Oracle"]


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
            if len(kinks.index):
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
