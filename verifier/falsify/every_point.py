"""A proof by all points, for networks with inputs of which only the integer part counts.

For sets of neighbouring integers the rest of the network is bounded by intervals of float64 with all rounding errors:
over what is left of the box, often a point up to the rounding of its decimals, and over all masks of the set.  A clause
is empty there if one of its rows cannot hold.  An ArgMax on the way must be certain.  A set for which this does not
suffice is halved; a single combination of integers is bounded by lines instead.

requires:   a network that can be specialised (`network/rewrite/specialise`)
guarantees: True is a proof in real arithmetic that the property has no counterexample; False says nothing
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.relaxation.interval import interval_image
from verifier.bounding.solvers.crown import Linear
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.network.judge import compare
from verifier.network.magnitudes import beyond
from verifier.network.models.onnx import OnnxModel
from verifier.network.network import Network
from verifier.network.rewrite.specialise import Specialised
from verifier.property.property import Doubles, ExactRow, Property

Array = np.ndarray[Any, np.dtype[Any]]

MOST = 50_000
"""Combinations of integer parts."""

LARGEST = 2**24
"""Integers beyond it are not all float32 numbers."""

CHUNK = 64
"""Combinations that are looked at together, and sets of them that are bounded together."""

SWEPT = 8
"""Sets for which linear bounds are computed together."""

COMPARED = 24
"""Points of every member of the family at which it is compared with the file."""

MEMBERS = 16
"""Different choices of ArgMax that are followed."""


def proved_by_all_points(model: OnnxModel, prop: Property, until: Clock) -> int | None:
    """How many sets of points were bounded if they prove the property; None if they do not, or if time ends first."""
    try:
        counts = [_Box(model, prop, box).proved(until) for box in sorted({clause.box for clause in prop.clauses})]
    except (InputError, ValueError):  # an operator that cannot be bounded, or a mask that changes its shape
        return None
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(frozen=True, eq=False)
class _Block:
    """Neighbouring integers [B, k], a point for each of them with its masks [B, n + m], and the masks alone."""

    integers: Doubles
    points: Doubles
    masks: Doubles

    def inside(self, low: Doubles, high: Doubles) -> Array:
        """Which of them lie between two corners."""
        found: Array = np.all((self.integers >= low) & (self.integers <= high), axis=1)
        return found


@dataclass(eq=False)
class _Networks:
    """The networks of a family by their choices, each compared with the file as soon as it is made."""

    model: OnnxModel
    family: Specialised
    wide: OnnxModel
    known: dict[bytes, Network] = field(default_factory=dict)
    last: tuple[Array, ...] | None = None  # the choices that were right most recently
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.model.dtype

    def run(self, x: Array) -> Array:
        """Outputs of the file, and what its choices are made from, at points with masks."""
        return self.wide.run(x[:, : self.model.n_in])

    def network(self, far_bounds: bool = False) -> Network:
        raise NotImplementedError("there is one for every choice")

    def guess(self, points: Doubles) -> tuple[Array, ...] | None:
        """What the file itself chooses at a point."""
        values = self.run(points.astype(self.dtype))[0, self.model.n_out :]
        return _chosen(self.family, values, values)

    def _chooses(self, point: Doubles, key: bytes) -> bool:
        """Whether the file makes these choices at a point."""
        found = self.guess(point[None])
        return found is not None and _key(found) == key

    def of(self, chosen: tuple[Array, ...], points: Doubles) -> Network | None:
        """The network of choices that the file makes at some of these points, where it is compared.

        None if there are none, or too many different ones, or if numbers are too large.
        """
        key = _key(chosen)
        if key not in self.known:
            if len(self.known) >= MEMBERS:
                return None
            network = self.model.member(self.family, chosen)
            if beyond(network, torch.from_numpy(np.abs(points).max(axis=0))) is not None:
                return None
            alike = [point for point in points[:COMPARED] if self._chooses(point, key)]
            if not alike:
                return None
            compare(self, network, np.stack(alike))
            self.known[key] = network
        return self.known[key]


class _Box:
    """One box of the property."""

    def __init__(self, model: OnnxModel, prop: Property, box: int) -> None:
        self.model, self.prop = model, prop
        self.lower, self.upper = prop.boxes.lower[box], prop.boxes.upper[box]
        self.clauses = [clause.rows.exact for clause in prop.clauses if clause.box == box]
        self.whole = model.integer_inputs
        self.first, self.last = np.trunc(self.lower[self.whole]), np.trunc(self.upper[self.whole])

    def proved(self, until: Clock) -> int | None:
        """How many sets of integers were bounded; None if one of them could not be closed."""
        if not len(self.whole) or np.abs([self.first, self.last]).max() > LARGEST:
            return None
        if float(np.prod(self.last - self.first + 1)) > MOST:
            return None
        family = self.model.specialised(self._fixed())
        if family is None:
            return None
        members = _Networks(self.model, family, self.model.extended(family))
        count = 0
        for integers in self._blocks():
            points = np.repeat(self.lower[None], len(integers), axis=0)
            points[:, self.whole] = integers
            masks = family.masks_at(points.astype(self.model.dtype)).astype(np.float64)
            block = _Block(integers, np.concatenate([points, masks], axis=1), masks)
            found = self._closed(members, block, until)
            if found is None:
                return None
            count += found
        return count

    def _fixed(self) -> dict[int, float]:
        """Inputs with a single value, which is a float of the network's precision."""
        same = np.flatnonzero(self.lower == self.upper)
        values = self.lower[same]
        exact = values.astype(self.model.dtype).astype(np.float64) == values
        return dict(zip(same[exact].tolist(), values[exact].tolist(), strict=True))

    def _blocks(self) -> Iterator[Doubles]:
        """All combinations of integer parts, [B, k] at a time: neighbours, as nearly cubes as possible."""
        sides = [1] * len(self.whole)
        lengths = (self.last - self.first + 1).astype(int).tolist()
        while True:
            longer = [i for i, n in enumerate(lengths) if sides[i] < n]
            if not longer:
                break
            i = min(longer, key=lambda axis: sides[axis])
            if 2 * math.prod(sides) > CHUNK:
                break
            sides[i] *= 2
        starts = [range(0, n, side) for n, side in zip(lengths, sides, strict=True)]
        for corner in itertools.product(*starts):
            ranges = [
                range(int(a) + c, int(a) + min(c + side, n))
                for a, c, side, n in zip(self.first, corner, sides, lengths, strict=True)
            ]
            yield np.array(list(itertools.product(*ranges)), dtype=np.float64)

    def _closed(self, members: _Networks, block: _Block, until: Clock) -> int | None:
        """How many parts of a block were bounded until all of it was closed: halves of what could not be."""
        pending, count = [(block.integers.min(axis=0), block.integers.max(axis=0))], 0
        while pending:
            if until.expired():
                return None
            some, pending = pending[-CHUNK:], pending[:-CHUNK]
            count += len(some)
            for part, closed in zip(some, self._judged(members, block, some), strict=True):
                if closed:
                    continue
                low, high = part
                axis = int(np.argmax(high - low))
                if low[axis] == high[axis]:
                    return None
                middle = np.floor((low[axis] + high[axis]) / 2)
                below, above = high.copy(), low.copy()
                below[axis], above[axis] = middle, middle + 1
                pending += [(low, below), (above, high)]
        return count

    def _judged(self, members: _Networks, block: _Block, parts: Sequence[tuple[Doubles, Doubles]]) -> list[bool]:
        """Which parts of a block hold no counterexample."""
        inside = [block.inside(*part) for part in parts]
        ends = []
        for side, hull in ((self.lower, np.min), (self.upper, np.max)):
            masks = np.stack([hull(block.masks[some], axis=0) for some in inside])
            ends.append(np.concatenate([np.repeat(side[None], len(parts), axis=0), masks], axis=1))
        closed = [False] * len(parts)
        chosen = members.last or members.guess(block.points[inside[0]][:1])
        left, tried = list(range(len(parts))), set()
        while left and chosen is not None and _key(chosen) not in tried:
            tried.add(_key(chosen))
            network = members.of(chosen, block.points[inside[left[0]]])
            if network is None:
                break
            others: list[tuple[int, tuple[Array, ...]]] = []
            doubtful = left
            for enclosed in (_by_intervals, _by_lines):
                low, high = ends[0][doubtful], ends[1][doubtful]
                y_low, y_high = enclosed(network, low, high)
                rest = []
                for k, part in enumerate(doubtful):
                    found = _chosen(members.family, y_low[k, self.model.n_out :], y_high[k, self.model.n_out :])
                    if found is not None and _key(found) != _key(chosen):
                        others.append((part, found))
                        continue
                    if found is not None:
                        members.last = chosen
                        closed[part] = self._empty((low[k], high[k]), (y_low[k], y_high[k]))
                    if not closed[part]:
                        rest.append(part)
                doubtful = [part for part in rest if int(inside[part].sum()) == 1]  # others are halved first
                if not doubtful:
                    break
            chosen = others[0][1] if others else None
            left = [part for part, found in others if chosen is not None and _key(found) == _key(chosen)]
        return closed

    def _empty(self, x: tuple[Doubles, Doubles], y: tuple[Doubles, Doubles]) -> bool:
        """Whether every clause has a row that holds nowhere between these ends."""
        if not (np.isfinite(y[0]).all() and np.isfinite(y[1]).all()):
            return False
        return all(any(_fails(row, x, y) for row in rows) for rows in self.clauses)


def _fails(row: ExactRow, x: tuple[Doubles, Doubles], y: tuple[Doubles, Doubles]) -> bool:
    least = Fraction(0)
    for terms, (low, high) in ((row.y, y), (row.x, x)):
        for i, a in terms:
            least += a * Fraction(float(low[i] if a > 0 else high[i]))
    return least >= row.bound if row.strict else least > row.bound


def _by_intervals(network: Network, low: Doubles, high: Doubles) -> tuple[Doubles, Doubles]:
    """Bounds of the outputs [B, n_y] over boxes, with all rounding errors; infinite where there may be no value."""
    region = _hidden(network, low, high)
    y_low, y_high = interval_image(network.output, region)
    doubt = region.doubt(len(network.layers))
    return (y_low - doubt).numpy(), (y_high + doubt).numpy()


def _by_lines(network: Network, low: Doubles, high: Doubles) -> tuple[Doubles, Doubles]:
    """The same by linear bounds, in which the rounding errors of early layers are not amplified by every later one."""
    parts = []
    for start in range(0, len(low), SWEPT):
        region = _hidden(network, low[start : start + SWEPT], high[start : start + SWEPT])
        each = torch.eye(network.n_out, dtype=torch.float64)
        objective = Objective(len(network.layers), torch.cat([each, -each]).unsqueeze(0))
        parts.append(Linear().bound(network, region, objective, Until()).lower)
    found = torch.cat(parts).numpy()
    return found[:, : network.n_out], -found[:, network.n_out :]


def _hidden(network: Network, low: Doubles, high: Doubles) -> Region:
    region = Region(torch.from_numpy(low), torch.from_numpy(high))
    for layer in network.groups:
        region = region.extended(layer, *interval_image(layer, region))
    return region


def _chosen(family: Specialised, low: Array, high: Array) -> tuple[Array, ...] | None:
    """All choices, if they are certain between two vectors of what they are made from."""
    found, start = [], 0
    for choice in family.choices:
        end = start + int(np.prod(choice.shape))
        answer = choice.certain(low[start:end], high[start:end])
        if answer is None:
            return None
        found.append(answer)
        start = end
    return tuple(found)


def _key(chosen: tuple[Array, ...]) -> bytes:
    return b"".join(answer.tobytes() for answer in chosen)
