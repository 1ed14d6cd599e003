"""The Planet relaxation of one region as a linear program.

Columns are the inputs, x of every neuron that is not blocked, x_hat of the ambiguous ones and, where cuts need it,
their z.  In the notation of docs/notation.md the rows are

    passing     x = W x_in + b
    ambiguous   x_hat = W x_in + b,  x >= x_hat,  and either  (u_hat - l_hat) x <= u_hat (x_hat - l_hat)
                or, with z,  x <= u_hat z  and  x <= x_hat - l_hat (1 - z)
    blocking    W x_in + b <= 0, only where a split asks for it

and the boxes l <= x <= u, 0 <= z <= 1.  For an ambiguous neuron these imply l_hat <= x_hat <= u_hat, so that box is
given to the solver as well; blocked and passing neurons get no other bound on x_hat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from verifier.bounding.core.base import Objective, Region
from verifier.bounding.lp.program import Floats, Ints, Program, Rows
from verifier.network.network import Affine, Network
from verifier.operators.rows import row_support

NONE = -1
"""Stands for the column of a variable that the program does not have."""


@dataclass(frozen=True, eq=False)
class GroupRows:
    """The affine rows of some neurons of one group, over the concatenation of the group's sources.

    Entry e belongs to neuron neurons[row[e]] and to entry source[e] of the concatenation; `columns`, `low` and `high`
    give the program's column and the box of every entry of the concatenation.
    """

    neurons: Ints
    bias: Floats
    row: Ints
    source: Ints
    weight: Floats
    columns: Ints
    low: Floats
    high: Floats

    def of(self, neuron: int) -> tuple[Ints, Floats, float] | None:
        """Sources, weights and bias of one neuron; None if it has no row here."""
        at = int(np.searchsorted(self.neurons, neuron))
        if at == len(self.neurons) or self.neurons[at] != neuron:
            return None
        begin, end = np.searchsorted(self.row, [at, at + 1])
        return self.source[begin:end], self.weight[begin:end], float(self.bias[at])


@dataclass(frozen=True, eq=False)
class Model:
    """The program of one region, and where its variables are.

    x[j] has a column number for every entry of source j; x_hat[k - 1] and z[k - 1] for every neuron of group k.
    """

    program: Program
    x: tuple[Ints, ...]
    x_hat: tuple[Ints, ...]
    z: tuple[Ints, ...]
    groups: tuple[GroupRows, ...]

    @classmethod
    def planet(cls, net: Network, region: Region, layer: int, with_z: bool) -> Model:
        """The relaxation of the groups before `layer`.

        requires: a region of one box (not a ball) that knows those groups, everything in float64 on the CPU
        """
        assembly = Assembly()
        x, x_hat, z = [assembly.columns(_array(region.lower), _array(region.upper))], [], []
        boxes = [(_array(region.lower), _array(region.upper))]
        groups = []
        for k in range(1, layer):
            kinds = _Kinds.of(region, k)
            low, high = kinds.l_hat.clip(min=0.0), kinds.u_hat.clip(min=0.0)
            group = group_rows(net.groups[k - 1], kinds.stated, x, boxes)
            x.append(assembly.columns(low, high, kinds.passing | kinds.ambiguous))
            boxes.append((low, high))
            x_hat.append(assembly.columns(kinds.l_hat, kinds.u_hat, kinds.ambiguous))
            z.append(assembly.columns(np.zeros_like(low), np.ones_like(low), kinds.ambiguous & with_z))
            _state_affine(assembly, group, kinds, x[k], x_hat[k - 1])
            _state_relu(assembly, kinds, x[k], x_hat[k - 1], z[k - 1])
            groups.append(group)
        return cls(assembly.program(), tuple(x), tuple(x_hat), tuple(z), tuple(groups))

    def costs(self, net: Network, objective: Objective, d: int, s: int) -> tuple[Floats, float]:
        """Objective s of region d as costs of the program's columns, and a constant."""
        layer = net.layers[objective.layer - 1]
        mu = objective.coefficients[min(d, objective.coefficients.shape[0] - 1), s]
        cost = np.zeros(self.program.width + 1)  # the last entry collects what NONE points at
        for source, term in layer.terms:
            cost[self.x[source]] += _vector(term.transpose(mu))
        if objective.inputs is not None:
            cost[self.x[0]] += _vector(objective.inputs[min(d, objective.inputs.shape[0] - 1), s])
        constant = float(mu @ layer.bias)
        if objective.constant is not None:
            constant += float(objective.constant[min(d, objective.constant.shape[0] - 1), s])
        return cost[:-1], constant


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Bounds of one group, and which of its neurons pass, are ambiguous, or are blocked by a split."""

    l_hat: Floats
    u_hat: Floats
    passing: np.ndarray
    ambiguous: np.ndarray
    held: np.ndarray

    @classmethod
    def of(cls, region: Region, k: int) -> _Kinds:
        l_hat, u_hat = _array(region.l_hat[k - 1]), _array(region.u_hat[k - 1])
        passing, ambiguous = l_hat >= 0, (l_hat < 0) & (u_hat > 0)
        held = np.zeros_like(passing)
        if region.splits is not None:
            held = (region.splits[k - 1][0].numpy() < 0) & ~passing & ~ambiguous
        return cls(l_hat, u_hat, passing, ambiguous, held)

    @property
    def stated(self) -> Ints:
        """The neurons whose affine row the program needs."""
        return np.flatnonzero(self.passing | self.ambiguous | self.held)


class Assembly:
    """Collects columns and rows while a model is built."""

    def __init__(self) -> None:
        self._low: list[Floats] = []
        self._high: list[Floats] = []
        self._width = 0
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._ranges: list[tuple[Floats, Floats]] = []
        self._rows = 0

    def columns(self, low: Floats, high: Floats, present: np.ndarray | None = None) -> Ints:
        """New variables with these boxes; NONE where one is not present."""
        kept = np.ones(len(low), dtype=bool) if present is None else present
        count = int(kept.sum())
        numbers = np.full(len(low), NONE, dtype=np.int64)
        numbers[kept] = self._width + np.arange(count)
        self._low.append(low[kept])
        self._high.append(high[kept])
        self._width += count
        return numbers

    def rows(self, entries: list[tuple[Ints, Ints, Floats]], low: Floats, high: Floats) -> Ints:
        """New rows low <= A v <= high; entries are (row within these, column, value), NONE columns count as zero.

        Returns their numbers.
        """
        for row, column, value in entries:
            kept = column != NONE
            self._entries.append((self._rows + row[kept], column[kept], value[kept]))
        self._ranges.append((low, high))
        self._rows += len(low)
        return np.arange(self._rows - len(low), self._rows)

    def program(self) -> Program:
        low = np.concatenate([low for low, _ in self._ranges] or [np.zeros(0)])
        high = np.concatenate([high for _, high in self._ranges] or [np.zeros(0)])
        parts = self._entries or [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        row, column = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        entries = (row, column, np.concatenate([part[2] for part in parts]))
        return Program(np.concatenate(self._low), np.concatenate(self._high), Rows.collect(entries, low, high))


def group_rows(layer: Affine, neurons: Ints, x: list[Ints], boxes: list[tuple[Floats, Floats]]) -> GroupRows:
    """The affine rows of some neurons; x and boxes are the columns and the boxes of all sources before the layer."""
    row, source, weight, offset = [], [], [], 0
    for _, term in layer.terms:
        support = row_support(term, torch.from_numpy(neurons))
        row.append(np.repeat(np.arange(len(neurons)), np.diff(support.indptr.numpy())))
        source.append(offset + support.columns.numpy())
        weight.append(support.values.numpy())
        offset += term.n_in
    rows = np.concatenate(row or [np.zeros(0, np.int64)])
    order = np.argsort(rows, kind="stable")
    sources = [j for j, _ in layer.terms]
    return GroupRows(
        neurons,
        _vector(layer.bias)[neurons],
        rows[order],
        np.concatenate(source or [np.zeros(0, np.int64)])[order],
        np.concatenate(weight or [np.zeros(0)])[order],
        np.concatenate([x[j] for j in sources] or [np.zeros(0, np.int64)]),
        np.concatenate([boxes[j][0] for j in sources] or [np.zeros(0)]),
        np.concatenate([boxes[j][1] for j in sources] or [np.zeros(0)]),
    )


def _state_affine(assembly: Assembly, group: GroupRows, kinds: _Kinds, x: Ints, x_hat: Ints) -> None:
    """result - W x_in = b, where the result is x, x_hat, or (held neurons) at most zero."""
    result = np.where(kinds.ambiguous, x_hat, x)[group.neurons]
    at = np.arange(len(group.neurons))
    entries = [(at, result, np.ones(len(at))), (group.row, group.columns[group.source], -group.weight)]
    assembly.rows(entries, group.bias, np.where(result == NONE, np.inf, group.bias))


def _state_relu(assembly: Assembly, kinds: _Kinds, x: Ints, x_hat: Ints, z: Ints) -> None:
    """x >= x_hat and the upper faces, for the ambiguous neurons."""
    which = np.flatnonzero(kinds.ambiguous)
    l_hat, u_hat = kinds.l_hat[which], kinds.u_hat[which]
    x, x_hat, z = x[which], x_hat[which], z[which]
    at, one, nothing = np.arange(len(which)), np.ones(len(which)), np.full(len(which), -np.inf)
    assembly.rows([(at, x, one), (at, x_hat, -one)], np.zeros_like(one), -nothing)
    if (z == NONE).all():
        slope = u_hat / (u_hat - l_hat)
        assembly.rows([(at, x, one), (at, x_hat, -slope)], nothing, -slope * l_hat)
        return
    assembly.rows([(at, x, one), (at, z, -u_hat)], nothing, np.zeros_like(one))
    assembly.rows([(at, x, one), (at, x_hat, -one), (at, z, -l_hat)], nothing, -l_hat)


def _array(batch_of_one: torch.Tensor) -> Floats:
    return _vector(batch_of_one[0])


def _vector(values: torch.Tensor) -> Floats:
    return np.asarray(values.numpy(), dtype=np.float64)
