"""Anderson's cuts as rows of a linear program, and the oracle that finds the most violated one.

For an ambiguous neuron with weights w, bias b and any 0/1 mask I over its inputs,

    x <= sum_j w_j I_j (x_j - l_check_j (1 - z)) + z sum_j w_j (1 - I_j) u_check_j + z b

source: [SCB] eq:primal-anderson, eq:oracle.  This module judges the dual solvers, so it shares no code with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from verifier.bounding.lp.model import NONE, Model
from verifier.bounding.lp.program import Floats, Rows
from verifier.shapes import Bool, Int, Tensor


@dataclass(frozen=True, eq=False)
class RowCut:
    """One cut: neuron `neuron` of group `group` (from 1) with a mask over some of its inputs.

    `columns` count through the concatenation of the group's sources, in the order of its terms; inputs that are not
    listed have mask 0.
    """

    group: int
    neuron: int
    columns: Int[Tensor, " c"]
    mask: Bool[Tensor, " c"]


def most_violated_mask(weight: Floats, low: Floats, high: Floats, x: Floats, z: Floats) -> np.ndarray:
    """[SCB] eq:oracle, entry by entry: the mask whose cut has the smallest right-hand side at (x, z).

    `low` and `high` are the boxes of the entries' inputs, x their values, z that of the neuron they belong to.
    """
    l_check, u_check = np.where(weight >= 0, low, high), np.where(weight >= 0, high, low)
    chosen: np.ndarray = ((1.0 - z) * l_check + z * u_check - x) * weight >= 0
    return chosen


def violated_cuts(model: Model, point: Floats, tolerance: float) -> list[RowCut]:
    """The most violated cut of every ambiguous neuron, where it is violated by more than `tolerance`.

    Masks of zeros or ones only are found too; they are implied unless the bounds in use are looser than intervals.
    """
    values = np.append(point, 0.0)  # NONE reads a zero
    found = []
    for k, group in enumerate(model.groups, start=1):
        z_column = model.z[k - 1][group.neurons]
        z = values[z_column][group.row]
        x_in = values[group.columns][group.source]
        weight, low, high = group.weight, group.low[group.source], group.high[group.source]
        mask = most_violated_mask(weight, low, high, x_in, z)
        l_check, u_check = np.where(weight >= 0, low, high), np.where(weight >= 0, high, low)
        terms = weight * np.where(mask, x_in - (1.0 - z) * l_check, z * u_check)
        right = np.bincount(group.row, weights=terms, minlength=len(group.neurons)) + group.bias * values[z_column]
        excess = values[model.x[k][group.neurons]] - right
        for at in np.flatnonzero((excess > tolerance) & (z_column != NONE)):
            begin, end = np.searchsorted(group.row, [at, at + 1])
            columns = torch.from_numpy(group.source[begin:end].copy())
            found.append(RowCut(k, int(group.neurons[at]), columns, torch.from_numpy(mask[begin:end].copy())))
    return found


def cut_rows(model: Model, cuts: Iterable[RowCut]) -> Rows:
    """The cuts as rows of the model's program; a cut of a neuron that is stable there is implied and left out."""
    lines = [line for cut in cuts if (line := _cut_row(model, cut)) is not None]
    row = np.repeat(np.arange(len(lines)), [len(line[0]) for line in lines])
    column = np.concatenate([line[0] for line in lines] or [np.zeros(0, np.int64)])
    value = np.concatenate([line[1] for line in lines] or [np.zeros(0)])
    high = np.array([line[2] for line in lines], dtype=np.float64)
    return Rows.collect((row.astype(np.int64), column, value), np.full(len(lines), -np.inf), high)


def _cut_row(model: Model, cut: RowCut) -> tuple[np.ndarray, Floats, float] | None:
    """x - (w.I) x_in - zc z <= -w I l_check: columns, values and the right-hand side."""
    group, z = model.groups[cut.group - 1], model.z[cut.group - 1][cut.neuron]
    entries = group.of(cut.neuron)
    if z == NONE or entries is None:
        return None
    source, weight, bias = entries
    whole = np.zeros(len(group.columns), dtype=bool)
    whole[cut.columns.numpy()] = cut.mask.numpy()
    mask = whole[source]
    low, high = group.low[source], group.high[source]
    l_check, u_check = np.where(weight >= 0, low, high), np.where(weight >= 0, high, low)
    at_low = float(weight[mask] @ l_check[mask])
    zc = bias + at_low + float(weight[~mask] @ u_check[~mask])
    column = np.concatenate([[model.x[cut.group][cut.neuron], z], group.columns[source[mask]]])
    value = np.concatenate([[1.0, -zc], -weight[mask]])
    return column[column != NONE], value[column != NONE], -at_low
