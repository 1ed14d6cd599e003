"""An attack on a network that can be run but not read: no gradients, only points and what the network makes of them.

Inputs of which only the integer part counts are tried one by one, if there are not too many; where all other inputs are
fixed these are all points that there are.  Otherwise the centre, corners and inner points of every box come first, then
each clause in turn, the most promising one first,
is followed from its best point: some inputs are moved, to an end of their interval or anywhere in it, in a batch of
variants, and the best of these is the next point if it is not worse.  How many inputs move at a time adapts: more after
a success, fewer after a failure.

requires:   a model in its original form
guarantees: a witness was replayed by the original network; None says nothing about the property
source:     a (1 + lambda) evolution strategy with an adaptive rate, on the largest margin of a clause
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.clock import Clock
from verifier.falsify.target import RowTable
from verifier.property.property import Property
from verifier.result.counterexample import Counterexample, Judge, Runnable, precision, replay
from verifier.shapes import Float, Tensor

Points = NDArray[np.floating]

MOST = 50_000
"""Combinations of integer parts that are tried one by one."""

CHUNK = 64


def integer_points(low: Points, high: Points) -> Points | None:
    """Points [n, k] of a box in which every combination of integer parts occurs; None if there are too many."""
    first, last = np.trunc(low.astype(np.float64)), np.trunc(high.astype(np.float64))
    if float(np.prod(last - first + 1)) > MOST:
        return None
    axes = []
    for lowest, highest, a, b in zip(low, high, first, last, strict=True):
        # The float of an integer part nearest to zero is the integer itself, unless the box ends before it.
        axes.append(np.clip(np.arange(int(a), int(b) + 1), lowest, highest).astype(low.dtype))
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(low))


@dataclass(frozen=True, slots=True)
class Blind:
    """Numbers of points: of a box at first, and of the variants of one point; `rounds` of these per visit."""

    seed: int = 0
    samples: int = 64
    variants: int = 32
    rounds: int = 8
    visits: int = 50  # of a clause, unless time ends first
    judge: Judge | None = None  # of witnesses in real arithmetic, where there is one

    def attack(self, model: Runnable, prop: Property, until: Clock, end: Clock | None = None) -> Counterexample | None:
        """A search through all clauses.  Require: at least one.

        What can be tried one by one may last until `end`.
        """
        hunt = _Hunt(model, prop, np.random.default_rng(self.seed), self.judge)
        witness, complete = hunt.one_by_one(end or until)
        if witness is not None or complete:
            return witness
        starts = []
        for clause in range(len(prop.clauses)):
            if until.expired():
                return None
            start = hunt.best(clause, hunt.scattered(clause, self.samples))
            if start.witness is not None:
                return start.witness
            starts.append(start)
        places = sorted(starts, key=lambda place: place.worst)
        for _ in range(self.visits):
            for i, place in enumerate(places):
                places[i] = hunt.followed(place, self, until)
                if places[i].witness is not None or until.expired():
                    return places[i].witness
            places = [place for place in places if place.rate > 0]  # nothing of it can move
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """The best point of a clause so far, and which share of its inputs is moved next."""

    clause: int
    x: Points
    worst: float
    rate: float
    witness: Counterexample | None = None


class _Hunt:
    """A search at work: the model, the rows of the property, the boxes in the model's precision."""

    def __init__(
        self, model: Runnable, prop: Property, generator: np.random.Generator, judge: Judge | None = None
    ) -> None:
        self.model, self.prop, self.generator, self.judge = model, prop, generator, judge
        self.rows = RowTable.of(prop, torch.float64)
        self.lower, self.upper = prop.boxes.ends(precision(model))

    def one_by_one(self, until: Clock) -> tuple[Counterexample | None, bool]:
        """All integer parts of the inputs of which nothing else counts, others in the middle: a witness, or none.

        Also whether these were all points of all boxes, up to what the network does not see.
        """
        whole = np.asarray(getattr(self.model, "integer_inputs", ()), dtype=np.int64)
        if not len(whole):
            return None, False
        complete = True
        for clause in range(len(self.prop.clauses)):
            low, high = self._box(clause)
            moving = whole[np.trunc(low[whole]) != np.trunc(high[whole])]
            points = integer_points(low[moving], high[moving])
            if points is None or not len(moving):
                complete = False
                continue
            others = np.setdiff1d(np.arange(len(low)), whole)
            complete &= bool((low[others] == high[others]).all())
            middle = (low + (high - low) / 2).astype(low.dtype)
            for start in range(0, len(points), CHUNK):
                if until.expired():
                    return None, False
                x = np.repeat(middle[None], len(points[start : start + CHUNK]), axis=0)
                x[:, moving] = points[start : start + CHUNK]
                found = self.best(clause, x)
                if found.witness is not None:
                    return found.witness, False
        return None, complete

    def scattered(self, clause: int, count: int) -> Points:
        """The centre of a clause's box, then in turn corners and inner points."""
        low, high = self._box(clause)
        share = self.generator.random((count, len(low)))
        share[1::2] = np.round(share[1::2])
        share[0] = 0.5
        return low + (high - low) * share

    def best(self, clause: int, x: Points, rate: float = 0.5) -> _Place:
        """The point with the least margin; with its witness if it is one."""
        low, high = self._box(clause)
        x = np.clip(x, low, high).astype(low.dtype)
        worst = self._margins(clause, x)
        first = int(np.argmin(worst))
        moves = bool((high > low).any())
        place = _Place(clause, x[first], float(worst[first]), rate if moves else 0.0)
        if place.worst > 0:
            return place
        witness = replay(place.x, self.model, self.prop, self.prop.clauses[clause].box, self.judge)
        return _Place(clause, place.x, place.worst, place.rate, witness)

    def followed(self, place: _Place, options: Blind, until: Clock) -> _Place:
        """Some rounds of variants."""
        for _ in range(options.rounds):
            if place.witness is not None or place.rate == 0 or until.expired():
                break
            found = self.best(place.clause, self._variants(place, options.variants), place.rate)
            if found.worst <= place.worst:
                rate = min(0.5, 1.5 * place.rate) if found.worst < place.worst else place.rate
                place = _Place(found.clause, found.x, found.worst, rate, found.witness)
            else:
                place = _Place(place.clause, place.x, place.worst, self._fewer(place))
        return place

    def _fewer(self, place: _Place) -> float:
        """A smaller rate; from the least one, which moves about one input, all over again."""
        low, high = self._box(place.clause)
        least = 1.0 / max(1, int((high > low).sum()))
        return 0.5 if place.rate <= least else max(least, place.rate / math.sqrt(2.0))

    def _variants(self, place: _Place, count: int) -> Points:
        low, high = self._box(place.clause)
        size = (count, len(low))
        share = self.generator.random(size)
        ends = self.generator.random(size) < 0.7
        there = low + (high - low) * np.where(ends, np.round(share), share)
        return np.where(self.generator.random(size) < place.rate, there, place.x)

    def _margins(self, clause: int, x: Points) -> NDArray[np.float64]:
        """The largest margin of the clause at each point; infinite where an output is no number."""
        y = torch.from_numpy(np.asarray(self.model.run(x), np.float64))
        which = torch.full((len(x),), clause, dtype=torch.long)
        worst: Float[Tensor, " P"] = self.rows.margins(torch.from_numpy(x.astype(np.float64)), y, which).amax(-1)
        return torch.where(torch.isfinite(y).all(dim=-1), worst, torch.inf).nan_to_num(nan=torch.inf).numpy()

    def _box(self, clause: int) -> tuple[Points, Points]:
        box = self.prop.clauses[clause].box
        return self.lower[box], self.upper[box]
