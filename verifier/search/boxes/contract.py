"""Contraction: what the rows of a clause leave of hidden neurons and of the box, by intervals, from the output back.

An unsafe point has all rows of its clause at or below zero.  Where a sum t = W x + b is at most `high`, each of its
terms is at most what the least values of the others leave: with s = high - min (W x + b) over the box of x,

    x_j <= low_j + s / W_ij   if W_ij > 0,        x_j >= high_j - s / |W_ij|   if W_ij < 0,

and the same from below.  So bounds of the rows become bounds of the outputs, of the neurons and of the input, and these
make bounds of the neurons again, until a few passes are over.  On networks that encode formulas of logic this is what
is known as unit propagation.

requires:   float64; a network of ReLUs whose layers are stored matrices
guarantees: every point of the box at which all rows are at most zero stays, with the values of its neurons: limits are
            rounded outward, and what is not finite says nothing
source:     feasibility-based tightening of bounds, as in solvers of mixed-integer programs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.core.closing import crossed
from verifier.bounding.core.rounding import MARGIN, TINY
from verifier.bounding.rows import Conjunction
from verifier.network.network import Affine, Network
from verifier.operators import gamma
from verifier.operators.matrix import stored_rows
from verifier.shapes import Bool, Float, Int, Tensor

MOST_ENTRIES = 2**17
"""Weights of all layers together, beyond which intervals say too little to be worth their time."""

PASSES = 3

FAR = 1e-3
"""A bound that is nearer to the interval's own, in relation to its width, is no limit to speak of."""

CHUNK = 2**21
"""Numbers that a step over the entries of a matrix makes at a time."""

Sides = tuple[Float[Tensor, "P _"], Float[Tensor, "P _"]]


@dataclass(frozen=True, eq=False)
class Columns:
    """The entries of one sign of a matrix, column by column: their rows, and one over their size; padded."""

    row: Int[Tensor, "n d"]
    inverse: Float[Tensor, "n d"]  # infinite where there is no entry

    @classmethod
    def of(cls, weight: Float[Tensor, "m n"]) -> Columns:
        """The positive ones."""
        some = (weight > 0).T
        most = max(1, int(some.sum(dim=1).max()))
        row = some.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        found = weight.T.gather(1, row)
        return cls(row, torch.where(found > 0, 1.0 / found, torch.inf))

    def moves(self, slack: Float[Tensor, "P m"]) -> Float[Tensor, "P n"]:
        """How far an entry of x may be from its end: the least of slack / |W| over its column."""
        each = max(1, CHUNK // self.row.numel())
        parts = [self._moves(part) for part in slack.split(each)]
        return torch.cat(parts) if parts else slack.new_empty(0, len(self.row))

    def _moves(self, slack: Float[Tensor, "P m"]) -> Float[Tensor, "P n"]:
        found = slack[:, self.row] * self.inverse
        return torch.where(torch.isnan(found), torch.inf, found).amin(dim=-1)


@dataclass(frozen=True, eq=False)
class Stage:
    """One term of a layer."""

    source: int
    weight: Float[Tensor, "m n"]
    positive: Columns
    negative: Columns

    @classmethod
    def of(cls, source: int, weight: Float[Tensor, "m n"]) -> Stage:
        return cls(source, weight, Columns.of(weight), Columns.of(-weight))


@dataclass(frozen=True, eq=False)
class StoredLayer:
    """An affine layer as matrices, with what its sums may lose by rounding per unit of their magnitude."""

    stages: tuple[Stage, ...]
    bias: Float[Tensor, " m"]
    bias_error: Float[Tensor, " m"]
    rounding: float

    @classmethod
    def of(cls, layer: Affine) -> StoredLayer | None:
        """None if some map is not stored as a matrix."""
        stages, every = [], torch.arange(layer.size, device=layer.bias.device)
        for source, term in layer.terms:
            weight = stored_rows(term, every)
            if weight is None:
                return None
            stages.append(Stage.of(source, weight))
        rounding = gamma(layer.depth + sum(stage.weight.shape[1] for stage in stages) + MARGIN)
        return cls(tuple(stages), layer.bias, layer.bias_error, rounding)

    @property
    def entries(self) -> int:
        return sum(stage.weight.numel() for stage in self.stages)

    def interval(self, x: Sequence[Sides]) -> Sides:
        """Bounds of t."""
        middle, radius, size = self.bias, 2.0 * self.bias_error + TINY, self.bias.abs()
        for stage in self.stages:
            low, high = x[stage.source]
            magnitude = torch.maximum(low.abs(), high.abs())
            middle = middle + (low + high) @ (0.5 * stage.weight).T
            radius = radius + (high - low) @ (0.5 * stage.weight.abs()).T
            size = size + magnitude @ stage.weight.abs().T
        radius = radius + 2.0 * self.rounding * size
        return middle - radius, middle + radius

    def contracted(self, x: list[Sides], t: Sides) -> None:
        """Bounds of the sources that those of t leave, in place of `x`."""
        least, most = self.interval(x)
        from_above = (t[1] - least).nan_to_num(nan=torch.inf) * (1.0 + self.rounding)
        from_below = (most - t[0]).nan_to_num(nan=torch.inf) * (1.0 + self.rounding)
        for stage in self.stages:
            low, high = x[stage.source]
            up = torch.minimum(stage.positive.moves(from_above), stage.negative.moves(from_below))
            down = torch.minimum(stage.positive.moves(from_below), stage.negative.moves(from_above))
            x[stage.source] = _within((low, high), (high - _outward(high, down), low + _outward(low, up)))

    def press(self, x: Sequence[Sides], t: Sides) -> Float[Tensor, "P n0"] | float:
        """Of the input: the square of what it can change t by, in relation to what bounds of t leave, added up."""
        least, most = self.interval(x)
        found: Tensor | float = 0.0
        for stage in self.stages:
            if stage.source == 0:
                width, far = x[0][1] - x[0][0], FAR * (most - least)
                for bound, room in ((t[1] < most - far, t[1] - least), (t[0] > least + far, most - t[0])):
                    near = torch.where(bound & (room > 0), 1.0 / room, 0.0)
                    found = found + (near.square() @ stage.weight.square()) * width.square()
        return found


def _outward(end: Float[Tensor, "P n"], move: Float[Tensor, "P n"]) -> Float[Tensor, "P n"]:
    """A move from an end of an interval, and what the sum of both may lose."""
    return move + gamma(MARGIN) * (end.abs() + move.abs()) + TINY


def _within(old: Sides, new: Sides) -> Sides:
    """The intersection; what is not a number says nothing."""
    low = torch.where(torch.isfinite(new[0]), torch.maximum(old[0], new[0]), old[0])
    high = torch.where(torch.isfinite(new[1]), torch.minimum(old[1], new[1]), old[1])
    return low, high


@dataclass(frozen=True, eq=False)
class Contracted:
    """What is left of boxes and of the bounds of their neurons, and which hold no point at all.

    `press` says how near each input is to the limits that bounds of the first neurons set it.
    """

    low: Float[Tensor, "P n0"]
    high: Float[Tensor, "P n0"]
    l_hat: tuple[Float[Tensor, "P _"], ...]
    u_hat: tuple[Float[Tensor, "P _"], ...]
    empty: Bool[Tensor, " P"]
    press: Float[Tensor, "P n0"]

    @classmethod
    def none(cls, box: Sides, hidden: Sequence[Sides]) -> Contracted:
        """Nothing but what was known."""
        l_hat, u_hat = (tuple(sides[side] for sides in hidden) for side in (0, 1))
        empty = torch.zeros(len(box[0]), dtype=torch.bool, device=box[0].device)
        return cls(*box, l_hat, u_hat, empty, torch.zeros_like(box[0]))


@dataclass(frozen=True, eq=False)
class Contraction:
    """A network as it is gone through; `layers` end with the output."""

    layers: tuple[StoredLayer, ...]

    @classmethod
    def of(cls, net: Network) -> Contraction | None:
        """None for networks of other functions than ReLUs, whose layers are no matrices, or which are large."""
        if not net.piecewise_linear or net.parameters > MOST_ENTRIES:
            return None
        layers = [StoredLayer.of(layer) for layer in net.layers]
        found = tuple(layer for layer in layers if layer is not None)
        if len(found) < len(layers) or sum(layer.entries for layer in found) > MOST_ENTRIES:
            return None
        return cls(found)

    def contracted(self, rows: Conjunction, box: Sides, hidden: Sequence[Sides]) -> Contracted:
        """What pairs of a box and the rows of a clause leave, given bounds of all neurons over the box."""
        x = [box, *(_activated(sides) for sides in hidden)]
        t = [*hidden, self.layers[-1].interval(x)]
        for _ in range(PASSES):
            t[-1], x[0] = _rows_contracted(rows, t[-1], x[0])
            for k in range(len(self.layers), 0, -1):
                if k < len(self.layers):
                    t[k - 1] = _deactivated(t[k - 1], x[k])
                self.layers[k - 1].contracted(x, t[k - 1])
            for k, layer in enumerate(self.layers, start=1):
                t[k - 1] = _within(t[k - 1], layer.interval(x))
                if k < len(self.layers):
                    x[k] = _within(x[k], _activated(t[k - 1]))
        empty = torch.stack([crossed(*sides).any(dim=1) for sides in (*x, *t)]).any(dim=0)
        low, high = (torch.where(empty.unsqueeze(1), old, new) for old, new in zip(box, x[0], strict=True))
        l_hat, u_hat = (
            tuple(torch.where(empty.unsqueeze(1), old[side], new[side]) for old, new in zip(hidden, t, strict=False))
            for side in (0, 1)
        )
        press = torch.zeros_like(low)
        for layer, sides in zip(self.layers, t, strict=True):
            press += layer.press(x, sides)
        return Contracted(low, high, l_hat, u_hat, empty, press)


def _activated(t: Sides) -> Sides:
    return t[0].clamp(min=0.0), t[1].clamp(min=0.0)


def _deactivated(t: Sides, x: Sides) -> Sides:
    """Bounds of t where those of max(t, 0) are known."""
    return torch.where(x[0] > 0, torch.maximum(t[0], x[0]), t[0]), torch.minimum(t[1], x[1])


def _rows_contracted(rows: Conjunction, y: Sides, x: Sides) -> tuple[Sides, Sides]:
    """Bounds of the output and the input where all rows A y + B x - c are at most zero."""
    parts = [(rows.A, y)] + ([(rows.B, x)] if rows.B is not None else [])
    total, size = -rows.c, rows.c.abs()
    for weight, (low, high) in parts:
        ends = weight * low.unsqueeze(1), weight * high.unsqueeze(1)
        total = total + torch.minimum(*ends).sum(dim=-1)
        size = size + torch.maximum(ends[0].abs(), ends[1].abs()).sum(dim=-1)
    length = sum(weight.shape[-1] for weight, _ in parts) + MARGIN
    slack = (-total + 2.0 * gamma(length) * size + TINY).masked_fill(~rows.present, torch.inf)
    slack = slack.nan_to_num(nan=torch.inf).unsqueeze(-1)
    found = []
    for weight, (low, high) in parts:
        move = slack / weight.abs() * (1.0 + gamma(MARGIN))
        move = torch.where(torch.isnan(move), torch.inf, move)
        up = torch.where(weight > 0, move, torch.inf).amin(dim=1)
        down = torch.where(weight < 0, move, torch.inf).amin(dim=1)
        found.append(_within((low, high), (high - _outward(high, down), low + _outward(low, up))))
    return found[0], found[1] if len(found) > 1 else x
