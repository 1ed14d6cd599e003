"""The most violated Anderson cuts at a point of a program, as rows of it and as masks of a dual function.

source: [SCB] eq:oracle.  Masks and constants are those of `cuts/anderson`, so the multipliers of the rows are those of
the same cuts in a `Lagrangian`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from verifier.bounding.cuts.anderson import RowGeometry, RowMaskCut, reads_only_moved_inputs
from verifier.bounding.cuts.masks import Form, GroupBits, MaskSet
from verifier.bounding.lp.frame import Frame
from verifier.bounding.lp.model import NONE
from verifier.bounding.lp.program import Floats, Ints, Rows
from verifier.bounding.solvers.solver import Task
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Violated:
    """One round of cuts: the masks of all kinks, and the kinks whose cuts are violated with the rows of these."""

    masks: MaskSet
    kinks: Ints
    rows: Rows


@dataclass(frozen=True, eq=False)
class Separation:
    """The oracle for the regions of a task; it adds cuts that are violated by more than `tolerance`."""

    task: Task
    frame: Frame
    tolerance: float

    def cuts(self, d: int, point: Floats) -> Violated | None:
        """The most violated cut of each ambiguous neuron of region d, where it is violated enough; None if none is.

        Groups whose neurons read one input each take no cut.
        """
        filled = torch.from_numpy(np.append(point, 0.0))  # NONE reads a zero
        values = [filled[torch.from_numpy(columns)].view(1, 1, -1) for columns in self.frame.x]
        masks: list[GroupBits | None] = []
        kinks: list[Ints] = [np.zeros(0, np.int64)]
        rows: list[Rows] = []
        first = 0
        for k, group in enumerate(self.task.sweep.kinks):
            here = np.arange(first, first + group.count)
            first += group.count
            geometry = self._geometry(k, d)
            if geometry is None:
                masks.append(None)
                continue
            x, z = (
                filled[torch.from_numpy(at[here])].view(1, 1, -1) for at in (self.frame.kinks.x, self.frame.kinks.z)
            )
            cut = geometry.cut(geometry.bits(values, z))
            excess = x - cut.forward(values) + cut.offset - z * cut.zc
            broken = (excess[0, 0] > self.tolerance).numpy() & group.ambiguous[d, 0].cpu().numpy()
            masks.append(GroupBits(Form.ROWS, cut.mask.to(group.index.device)))
            kinks.append(here[broken])
            rows.append(self._rows(cut, here, broken))
        found = np.concatenate(kinks)
        return Violated(tuple(masks), found, Rows.joined(rows)) if len(found) else None

    def _geometry(self, k: int, d: int) -> RowGeometry | None:
        """The weights of group k (from 0) in region d, in float64 on the CPU."""
        if reads_only_moved_inputs(self.task.sweep.net.layers[k]):
            return None
        known = self.task.geometries.at(k, Form.ROWS)
        if not isinstance(known, RowGeometry):
            return None
        return known.select(slice(d, d + 1)).to(torch.device("cpu")).to(torch.float64)

    def _rows(self, cut: RowMaskCut, here: Ints, broken: np.ndarray) -> Rows:
        """x - (W.I) x_in - zc z <= -offset for the violated cuts of one group, whose kinks are `here`."""
        geometry, at = cut.geometry, np.flatnonzero(broken)
        sources = np.concatenate([self.frame.x[source] for source in geometry.sources])
        kept = _array(cut.mask[0, 0] * geometry.weights)[at]
        row, place = np.nonzero(kept)
        column = sources[geometry.columns.numpy()[at][row, place]]
        read = column != NONE
        count, one = np.arange(len(at)), np.ones(len(at))
        columns = [self.frame.kinks.x[here[at]], self.frame.kinks.z[here[at]], column[read]]
        values = [one, -_array(cut.zc[0, 0])[at], -kept[row, place][read]]
        entries = np.concatenate([count, count, row[read]]), np.concatenate(columns), np.concatenate(values)
        return Rows.collect(entries, np.full(len(at), -np.inf), -_array(cut.offset[0, 0])[at])


def _array(values: Float[Tensor, "*axes"]) -> Floats:
    return np.asarray(values.numpy(), dtype=np.float64)
