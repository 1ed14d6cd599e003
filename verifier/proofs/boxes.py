"""Boxes of the input in proofs: what closes or shrinks them, as bytes.

Boxes are many and cheap, so what a batch of them says is made at once: all neurons have a slope in the file, and every
witness of a network has the same layout.

requires:   slopes that are multiples of 1 / 255 (`Care`)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.hidden import RootBounds
from verifier.functions import Function
from verifier.network.network import Network
from verifier.proofs.hidden import ADAPTIVE, root_bounds
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.log import Note, Said
from verifier.proofs.stream import Node, varint
from verifier.property.problem import Problem
from verifier.search.boxes.bounds import BoxBounds, BoxEvidence, Care
from verifier.search.boxes.boxes import BoxDomains
from verifier.shapes import Float, Tensor

STEPS = 255
"""Of slopes: one byte each."""

CARE = Care(STEPS, errors=32.0, slack=1e-5, followed=True, joint=False, forms=False)
"""With it, what the search evaluates is what is written down: of networks of ReLUs."""

SMOOTH_CARE = replace(CARE, hidden=RootBounds())
"""The same of all other networks."""

EVERY_NEURON = 16
"""Bounds of stable neurons as well."""

PARALLEL = 8 + EVERY_NEURON
"""The kind of bounds that equal those of a zonotope: slopes parallel to the upper faces."""

CLOSE = varint(Node.CLOSE)

SLOPES, EVERY, BYTES = 1, 0, 0


@dataclass(frozen=True, eq=False)
class BoxLayout:
    """The bytes of a witness with slopes for all neurons, and where the slopes of each group are."""

    template: NDArray[np.uint8]
    places: tuple[slice, ...]
    functions: tuple[Function, ...]

    @classmethod
    def of(cls, net: Network) -> BoxLayout:
        data, places = bytearray(varint(1) + varint(len(net.groups))), {}
        for k in range(len(net.groups), 0, -1):
            data += varint(k) + varint(SLOPES) + varint(EVERY) + bytes([BYTES])
            places[k] = slice(len(data), len(data) + net.groups[k - 1].neurons)
            data += bytes(net.groups[k - 1].neurons)
        template = np.frombuffer(bytes(data), dtype=np.uint8)
        functions = tuple(group.function for group in net.groups)
        return cls(template, tuple(places[k] for k in sorted(places)), functions)

    def witnesses(self, evidence: BoxEvidence) -> NDArray[np.uint8]:
        """One row of bytes for every pair of a box and a clause."""
        box = evidence.box
        found = np.tile(self.template, (len(box), 1))
        start = 0
        groups = zip(self.places, self.functions, evidence.l_hat, evidence.u_hat, strict=True)
        for place, function, low, high in groups:
            size = place.stop - place.start
            slopes = evidence.variables[:, 0, start : start + size]
            if function.is_relu:
                slopes = slopes * ~((low >= 0) | (high <= 0))[box]
            found[:, place] = (slopes * STEPS).round().cpu().numpy().astype(np.uint8)
            start += size
        return found


class BoxScribe:
    """Says what became of boxes."""

    def __init__(self, problem: Problem) -> None:
        net = problem.network
        self._layout, self._lambdas = BoxLayout.of(net), Lambdas(problem)
        self._default = root_bounds(net, PARALLEL if net.piecewise_linear else ADAPTIVE + EVERY_NEURON)

    def closed(self, numbers: Sequence[int], boxes: BoxDomains, found: BoxBounds) -> Iterator[Note]:
        """Boxes whose clauses are all closed."""
        pairs = _Pairs.of(self._layout, boxes, found.evidence)
        closings = self._closings(pairs, [p for number in numbers for p in pairs.of_box[number]])
        for number in numbers:
            yield Said(number, [*self._default, *(closings[p] for p in pairs.of_box[number])], last=True)

    def clipped(self, numbers: Sequence[int], boxes: BoxDomains, found: BoxBounds) -> Iterator[Note]:
        """Boxes that stay open, smaller or without some of their clauses."""
        pairs = _Pairs.of(self._layout, boxes, found.evidence)
        ends = _ends([(boxes.low, boxes.high), *pairs.left])
        mine = {number: pairs.of_box[number] for number in numbers}
        closings = self._closings(pairs, [p for some in mine.values() for p in some if pairs.closed[p]])
        kept = {number: [p for p in mine[number] if not pairs.closed[p]] for number in numbers}
        moved = {number: ends[pairs.row[number]] for number in numbers if ends[pairs.row[number]]}
        planes = self._planes(pairs, [p for number in moved for p in kept[number]])
        for number in numbers:
            parts = [closings[p] for p in mine[number] if p in closings]
            if number in moved:
                head = varint(Node.SHRINK) + varint(len(kept[number]))
                parts += [head, *(planes[p] for p in kept[number]), moved[number]]
            if parts:
                yield Said(number, [*self._default, *parts], last=False)

    def _closings(self, pairs: _Pairs, some: Sequence[int]) -> dict[int, bytes]:
        """By the combination of rows that the search has found, or by a single row that is better."""
        best, weights = pairs.best[some], pairs.weights[some]
        alone = np.flatnonzero(best)
        weights[alone] = np.eye(weights.shape[1])[best[alone] - 1]
        clauses = [pairs.clause[p] for p in some]
        words = zip(some, clauses, self._lambdas.words(clauses, weights), strict=True)
        return {p: CLOSE + varint(clause) + own + pairs.witness[p].tobytes() for p, clause, own in words}

    def _planes(self, pairs: _Pairs, some: Sequence[int]) -> dict[int, bytes]:
        """Those that have clipped a box, of the combination of rows and of single ones."""
        planes = [(p, s) for p in some for s in np.flatnonzero(pairs.used[p]).tolist()]
        weights = pairs.weights[[p for p, _ in planes]]
        for own, (_, s) in zip(weights, planes, strict=True):
            if s:
                own[:] = np.eye(len(own))[s - 1]
        words = {p: list[bytes]() for p in some}
        clauses = [pairs.clause[p] for p, _ in planes]
        for (p, _), word in zip(planes, self._lambdas.words(clauses, weights), strict=True):
            words[p].append(word)
        return {
            p: varint(pairs.clause[p]) + varint(len(own)) + b"".join(own) + pairs.witness[p].tobytes()
            for p, own in words.items()
        }


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The pending clauses of a batch of boxes, as arrays."""

    row: dict[int, int]  # of each box, by its number
    of_box: dict[int, range]
    clause: list[int]
    closed: list[bool]
    best: NDArray[np.int64]  # 0: the combination, else a row, counted from 1
    weights: NDArray[np.float64]
    witness: NDArray[np.uint8]
    used: NDArray[np.bool_]  # planes that have clipped the box
    left: Sequence[Sides]  # of all boxes, after each pass of clipping

    @classmethod
    def of(cls, layout: BoxLayout, boxes: BoxDomains, evidence: BoxEvidence) -> _Pairs:
        assert evidence.steps is not None
        numbers = boxes.number.tolist()
        counts = np.bincount(evidence.box.cpu().numpy(), minlength=len(numbers))
        ends = np.cumsum(counts)
        ranges = [range(int(end - count), int(end)) for end, count in zip(ends, counts, strict=True)]
        best = evidence.lower.max(dim=1)
        slopes = sum(place.stop - place.start for place in layout.places)
        return cls(
            {number: d for d, number in enumerate(numbers)},
            dict(zip(numbers, ranges, strict=True)),
            evidence.clause.tolist(),
            (best.values > 0).tolist(),
            best.indices.cpu().numpy(),
            evidence.variables[:, 0, slopes:].double().cpu().numpy(),
            layout.witnesses(evidence),
            evidence.steps.used.cpu().numpy(),
            evidence.steps.boxes,
        )


Sides = tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]]


def _ends(left: Sequence[Sides]) -> list[bytes]:
    """The ends of each box that have moved, pass by pass: lower ones, then upper ones; nothing where none has."""
    sides = [torch.cat(pair, dim=1).cpu().numpy() for pair in left]
    new = np.stack(sides[1:], axis=1)
    boxes, passes, columns = np.nonzero(new != np.stack(sides[:-1], axis=1))
    side, axes = np.divmod(columns, new.shape[2] // 2)
    codes, data = (2 * axes + side).tolist(), new[boxes, passes, columns].astype("<f8").tobytes()
    found = [b""] * len(new)
    for box, count in zip(*np.unique(boxes, return_counts=True), strict=True):
        found[box] = varint(int(count))
    for place, (box, code) in enumerate(zip(boxes.tolist(), codes, strict=True)):
        found[box] += varint(code) + data[8 * place : 8 * place + 8]
    return found
