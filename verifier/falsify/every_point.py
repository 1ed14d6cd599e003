"""A proof by all points, for networks with inputs of which only the integer part counts.

For every combination of integer parts that a box has, the rest of the network is bounded by intervals of float64 with
all rounding errors, over what is left of the box: often a point, up to the rounding of its decimals.  A clause is empty
there if one of its rows cannot hold.  An ArgMax on the way must be certain.

requires:   a network that can be specialised (`network/rewrite/specialise`)
guarantees: True is a proof in real arithmetic that the property has no counterexample; False says nothing
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from verifier.bounding.core.base import Region
from verifier.bounding.relaxation.interval import interval_image
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

CHUNK = 32
COMPARED = 4
"""Points of every member of the family at which it is compared with the file."""

MEMBERS = 16
"""Different choices of ArgMax that are followed."""


def proved_by_all_points(model: OnnxModel, prop: Property, until: Clock) -> int | None:
    """How many points were bounded if they prove the property; None if they do not, or if time ends first."""
    try:
        counts = [_Box(model, prop, box).proved(until) for box in sorted({clause.box for clause in prop.clauses})]
    except (InputError, ValueError):  # an operator that cannot be bounded, or a mask that changes its shape
        return None
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(eq=False)
class _Members:
    """The networks of a family by their choices, each compared with the file as soon as it is made."""

    model: OnnxModel
    family: Specialised
    wide: OnnxModel
    known: dict[bytes, Network] = field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.model.dtype

    def run(self, points: Array) -> Array:
        """Outputs of the file, and what its choices are made from, at points with masks."""
        return self.wide.run(points[:, : self.model.n_in])

    def of(self, chosen: tuple[Array, ...], points: Array) -> Network | None:
        """The network of some choices; None if there are too many.  Raises NetworkMismatch."""
        key = _key(chosen)
        if key not in self.known:
            if len(self.known) >= MEMBERS:
                return None
            network = self.model.member(self.family, chosen)
            if beyond(network, torch.from_numpy(np.abs(points).max(axis=0).astype(np.float64))) is not None:
                return None
            compare(self, network, points[:COMPARED])
            self.known[key] = network
        return self.known[key]


class _Box:
    """One box of the property."""

    def __init__(self, model: OnnxModel, prop: Property, box: int) -> None:
        self.model, self.prop = model, prop
        self.lower, self.upper = prop.boxes.lower[box], prop.boxes.upper[box]
        self.clauses = [clause.rows.exact for clause in prop.clauses if clause.box == box]
        self.whole = model.integer_inputs
        ends = np.stack([np.trunc(self.lower[self.whole]), np.trunc(self.upper[self.whole])])
        self.first, self.last = ends

    def proved(self, until: Clock) -> int | None:
        if not len(self.whole) or np.abs([self.first, self.last]).max() > LARGEST:
            return None
        if float(np.prod(self.last - self.first + 1)) > MOST:
            return None
        family = self.model.specialised(self._fixed())
        if family is None:
            return None
        members = _Members(self.model, family, self.model.extended(family))
        count = 0
        guess: tuple[Array, ...] | None = None
        for points in self._points():
            if until.expired():
                return None
            masks = family.masks_at(points.astype(self.model.dtype)).astype(np.float64)
            guess = guess or self._guess(members, points)
            guess = self._closed(members, points, masks, guess)
            if guess is None:
                return None
            count += len(points)
        return count

    def _fixed(self) -> dict[int, float]:
        """Inputs with a single value, which is a float of the network's precision."""
        same = np.flatnonzero(self.lower == self.upper)
        values = self.lower[same]
        exact = values.astype(self.model.dtype).astype(np.float64) == values
        return dict(zip(same[exact].tolist(), values[exact].tolist(), strict=True))

    def _points(self) -> Iterator[Doubles]:
        """Points [B, n] with every combination of integer parts; the other inputs at the lower end of the box."""
        ranges = [range(int(a), int(b) + 1) for a, b in zip(self.first, self.last, strict=True)]
        combinations = itertools.product(*ranges)
        while some := list(itertools.islice(combinations, CHUNK)):
            points = np.repeat(self.lower[None], len(some), axis=0)
            points[:, self.whole] = some
            yield points

    def _guess(self, members: _Members, points: Doubles) -> tuple[Array, ...] | None:
        """What the file itself chooses at the first point."""
        values = members.run(points[:1].astype(self.model.dtype))[0, self.model.n_out :]
        return _chosen(members.family, values, values)

    def _closed(
        self, members: _Members, points: Doubles, masks: Doubles, guess: tuple[Array, ...] | None
    ) -> tuple[Array, ...] | None:
        """A choice that was right at some of the points, if all clauses are empty at all of them; else None."""
        if guess is None:
            return None
        left = {_key(guess): (guess, list(range(len(points))))}
        tried: set[bytes] = set()
        right = guess
        while left:
            key, (chosen, places) = left.popitem()
            tried.add(key)
            ends = [np.repeat(end[None], len(places), axis=0) for end in (self.lower, self.upper)]
            for end in ends:
                end[:, self.whole] = points[places][:, self.whole]
            low, high = (np.concatenate([end, masks[places]], axis=1) for end in ends)
            network = members.of(chosen, low)
            if network is None:
                return None
            y_low, y_high = _enclosed(network, low, high)
            others: dict[bytes, tuple[tuple[Array, ...], list[int]]] = defaultdict(lambda: ((), []))
            for k, place in enumerate(places):
                found = _chosen(members.family, y_low[k, self.model.n_out :], y_high[k, self.model.n_out :])
                if found is None:
                    return None
                if _key(found) == key:
                    right = chosen
                    if not self._empty(low[k], high[k], y_low[k], y_high[k]):
                        return None
                elif _key(found) in tried:  # two networks that contradict each other prove nothing
                    return None
                else:
                    others[_key(found)] = (found, [*others[_key(found)][1], place])
            for other, (found, more) in others.items():
                known = left.get(other, (found, []))[1]
                left[other] = (found, [*known, *more])
        return right

    def _empty(self, x_low: Doubles, x_high: Doubles, y_low: Doubles, y_high: Doubles) -> bool:
        """Whether every clause has a row that holds nowhere between these ends."""
        if not (np.isfinite(y_low).all() and np.isfinite(y_high).all()):
            return False
        return all(any(_fails(row, (x_low, x_high), (y_low, y_high)) for row in rows) for rows in self.clauses)


def _fails(row: ExactRow, x: tuple[Doubles, Doubles], y: tuple[Doubles, Doubles]) -> bool:
    least = Fraction(0)
    for terms, (low, high) in ((row.y, y), (row.x, x)):
        for i, a in terms:
            least += a * Fraction(float(low[i] if a > 0 else high[i]))
    return least >= row.bound if row.strict else least > row.bound


def _enclosed(network: Network, low: Doubles, high: Doubles) -> tuple[Doubles, Doubles]:
    """Bounds of the outputs [B, n_y] over boxes, with all rounding errors; infinite where there may be no value."""
    region = Region(torch.from_numpy(low), torch.from_numpy(high))
    for layer in network.layers:
        region = region.extended(layer, *interval_image(layer, region))
    doubt = region.doubt(len(network.layers))
    return (region.l_hat[-1] - doubt).numpy(), (region.u_hat[-1] + doubt).numpy()


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
