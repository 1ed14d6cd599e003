"""Boxes of the input in proofs: what closes or shrinks them, as bytes.

Boxes are many and cheap, so what a batch of them says is made at once: all neurons have a slope in the file, and every
witness of a network has the same layout.

requires:   slopes that are multiples of 1 / 255 (`Care`)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifier.network.network import Network
from verifier.proofs.lambdas import Lambdas
from verifier.proofs.ledger import Note, Said
from verifier.proofs.stream import Node, varint
from verifier.property.problem import Problem
from verifier.search.boxes.bounds import BoxBounds, BoxEvidence, Care
from verifier.search.boxes.boxes import BoxDomains

STEPS = 255
"""Of slopes: one byte each."""

CARE = Care(STEPS, errors=32.0, slack=1e-5, alone=False)
"""With it, what the search evaluates is what is written down."""

PARALLEL = 8 + 16
"""The kind of bounds that equal those of a zonotope: slopes parallel to the upper faces, for stable neurons as well."""

SLOPES, EVERY, BYTES = 1, 0, 0


@dataclass(frozen=True, eq=False)
class BoxLayout:
    """The bytes of a witness with slopes for all neurons, and where the slopes of each group are."""

    template: NDArray[np.uint8]
    places: tuple[slice, ...]

    @classmethod
    def of(cls, net: Network) -> BoxLayout:
        data, places = bytearray(varint(1) + varint(len(net.groups))), {}
        for k in range(len(net.groups), 0, -1):
            data += varint(k) + varint(SLOPES) + varint(EVERY) + bytes([BYTES])
            places[k] = slice(len(data), len(data) + net.groups[k - 1].size)
            data += bytes(net.groups[k - 1].size)
        return cls(np.frombuffer(bytes(data), dtype=np.uint8), tuple(places[k] for k in sorted(places)))

    def witnesses(self, evidence: BoxEvidence) -> NDArray[np.uint8]:
        """One row of bytes for every pair of a box and a clause."""
        box = evidence.box
        found = np.tile(self.template, (len(box), 1))
        start = 0
        for place, low, high in zip(self.places, evidence.l_hat, evidence.u_hat, strict=True):
            size = place.stop - place.start
            ambiguous = ~((low >= 0) | (high <= 0))[box]
            slopes = evidence.variables[:, 0, start : start + size] * ambiguous
            found[:, place] = (slopes * STEPS).round().cpu().numpy().astype(np.uint8)
            start += size
        return found


class BoxScribe:
    """Says what became of boxes."""

    def __init__(self, problem: Problem) -> None:
        self._layout, self._lambdas = BoxLayout.of(problem.network), Lambdas(problem)
        self._default = varint(Node.DEFAULT) + varint(1) + varint(PARALLEL)

    def closed(self, numbers: Sequence[int], boxes: BoxDomains, found: BoxBounds) -> Iterator[Note]:
        """Boxes whose clauses are all closed."""
        pairs = _Pairs.of(self._layout, boxes, found.evidence)
        for number in numbers:
            parts = [self._close(pairs, p) for p in pairs.of_box[number]]
            yield Said(number, [self._default + b"".join(parts)], last=True)

    def clipped(self, numbers: Sequence[int], boxes: BoxDomains, found: BoxBounds) -> Iterator[Note]:
        """Boxes that stay open, smaller or without some of their clauses."""
        pairs = _Pairs.of(self._layout, boxes, found.evidence)
        low, high = (side.cpu().numpy() for side in (found.low, found.high))
        before = boxes.low.cpu().numpy(), boxes.high.cpu().numpy()
        changed = (low != before[0]) | (high != before[1])
        some = changed.any(axis=1)
        for number in numbers:
            d, mine = pairs.row[number], pairs.of_box[number]
            parts = [self._close(pairs, p) for p in mine if pairs.closed[p]]
            if some[d]:
                parts.append(self._shrink(pairs, [p for p in mine if not pairs.closed[p]]))
                parts.append(_ends(before[0][d], before[1][d], low[d], high[d]))
            if parts:
                yield Said(number, [self._default + b"".join(parts)], last=False)

    def _close(self, pairs: _Pairs, p: int) -> bytes:
        clause, best = pairs.clause[p], pairs.best[p]
        weights = pairs.weights[p] if best == 0 else np.eye(len(pairs.weights[p]))[best - 1]
        head = varint(Node.CLOSE) + varint(clause)
        return head + self._lambdas.bytes_of(clause, weights) + bytes(pairs.witness[p])

    def _shrink(self, pairs: _Pairs, planes: Sequence[int]) -> bytes:
        parts = [varint(Node.SHRINK), varint(len(planes))]
        for p in planes:
            clause = pairs.clause[p]
            parts += [varint(clause), self._lambdas.bytes_of(clause, pairs.weights[p]), bytes(pairs.witness[p])]
        return b"".join(parts)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The pending clauses of a batch of boxes, as arrays."""

    row: dict[int, int]  # of each box, by its number
    of_box: dict[int, range]
    clause: list[int]
    closed: list[bool]
    best: list[int]  # 0: the combination, else a row, counted from 1
    weights: NDArray[np.float64]
    witness: NDArray[np.uint8]

    @classmethod
    def of(cls, layout: BoxLayout, boxes: BoxDomains, evidence: BoxEvidence) -> _Pairs:
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
            best.indices.tolist(),
            evidence.variables[:, 0, slopes:].double().cpu().numpy(),
            layout.witnesses(evidence),
        )


def _ends(
    old_low: NDArray[np.float64], old_high: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> bytes:
    """The ends of a box that have moved."""
    moved = [(2 * i, low[i]) for i in np.flatnonzero(low != old_low)]
    moved += [(2 * i + 1, high[i]) for i in np.flatnonzero(high != old_high)]
    return varint(len(moved)) + b"".join(varint(int(code)) + struct.pack("<d", value) for code, value in moved)
