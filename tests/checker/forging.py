"""Proofs that are torn apart and put together wrongly, and problems for which nothing may be proved.

A problem is made false by raising the bounds of one clause until a point that is known, its outputs computed in
rationals, is unsafe.  Whatever a proof says then, it must be rejected.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from checker.building import (
    ALL,
    close,
    cut,
    default,
    empty,
    improve,
    members,
    part,
    section,
    shrink,
    split,
    values,
    varint,
    weights,
    witness,
)
from checker.kits import KIT, Kit

from verifier.checker.tree import Place, Walk
from verifier.checker.vnnlib import Clause, Terms

Rng = np.random.Generator
HEAD = 0
SPLIT, CUT, DEFAULT, IMPROVE, SHRINK, EMPTY, CLOSE, PART, KEEP, RECALL, IMPLY = range(1, 12)


@dataclass(frozen=True, eq=False)
class Problem:
    """A network as a file has it, what was merged in it, and clauses; and the kit by which proofs are judged."""

    model: bytes
    clauses: list[Clause]
    kit: Kit = KIT
    merged: bytes | None = None

    @cached_property
    def net(self) -> Any:
        """As the checker reads it, without mistakes."""
        return self._network(KIT)

    @cached_property
    def read(self) -> tuple[Any, Any]:
        """Network and clauses, as the kit reads the files."""
        return self._network(self.kit), self.kit.vnnlib.read_property(written(self.clauses))

    def _network(self, kit: Kit) -> Any:
        net, _ = kit.graph.read_network(self.model)
        if self.merged is None:
            return net
        return kit.merge.merged(net, kit.stream.Stream(io.BytesIO(self.merged)))

    def walk(self, body: bytes) -> Any:
        return self.kit.walk(*self.read, body)

    def judge(self, body: bytes) -> tuple[str | None, int]:
        """Why a proof is rejected, None if it is not; and how many nodes were passed.  As `check` does."""
        walk = self.walk(body)
        try:
            walk.run()
        except Exception as error:  # as the checker: whatever was not foreseen rejects
            return f"{type(error).__name__}: {error}", walk.nodes
        return None, walk.nodes

    def raised(self, number: int, amounts: Sequence[Fraction]) -> Problem:
        """With the bounds of one clause's rows raised, a bit further up to a short number: more is unsafe."""
        clause = self.clauses[number]
        short = [Fraction(math.ceil(amount * 2**40), 2**40) for amount in amounts]
        rows = [
            {**row, ("", 0): row.get(("", 0), Fraction(0)) - amount}
            for row, amount in zip(clause.rows, short, strict=True)
        ]
        found = list(self.clauses)
        found[number] = replace(clause, rows=tuple(rows))
        return replace(self, clauses=found)


def decimal(value: Fraction) -> str:
    """To the last digit."""
    digits = 0
    while (value * 10**digits).denominator > 1:
        digits += 1
    text = f"{abs(int(value * 10**digits)):0{digits + 1}}"
    return (
        ("-" if value < 0 else "") + text[: len(text) - digits] + ("." + text[len(text) - digits :] if digits else "")
    )


def written(clauses: Sequence[Clause]) -> str:
    """A VNN-LIB file; every second row is written the other way round."""
    names = [f"X_{i}" for i in range(len(clauses[0].low))] + [f"Y_{j}" for j in range(clauses[0].n_y)]
    ways = []
    for clause in clauses:
        box = [f"(>= X_{i} {decimal(Fraction(float(low)))})" for i, low in enumerate(clause.low)]
        box += [f"(<= X_{i} {decimal(Fraction(float(high)))})" for i, high in enumerate(clause.high)]
        ways.append("(and " + " ".join(box + [_row(row, i % 2) for i, row in enumerate(clause.rows)]) + ")")
    declared = "".join(f"(declare-const {name} Real)\n" for name in names)
    return declared + f"(assert (or {' '.join(ways)}))" if len(ways) > 1 else declared + f"(assert {ways[0]})"


def _row(row: Terms, turned: int) -> str:
    bound = decimal(-row.get(("", 0), Fraction(0)))
    terms = [f"(* {decimal(a)} {kind}_{j})" for (kind, j), a in row.items() if kind]
    if not turned:
        return f"(<= (+ {' '.join(terms)}) {bound})"
    return f"(>= (- {bound} {' '.join(terms)}) 0)"


# -- problems that are false ---------------------------------------------------------------------------------------


def rows_at(net: Any, clause: Clause, x: Any) -> Any:
    """A y + B x - c at points [m, n0], in their own arithmetic: floats or rationals."""
    values = {0: x}
    for k, layer in enumerate(net.layers, start=1):
        values[k] = layer.moved(layer.forward(values))
        if k <= net.groups:
            values[k] = np.maximum(values[k], 0)
    exact = isinstance(x, KIT.rationals.Rationals)
    a, b, c = (KIT.rationals.Rationals.of(part.T) if exact else part.astype(np.float64).T for part in clause.exact)
    return values[len(net.layers)] @ a + x @ b - c


def made_false(problem: Problem, number: int, rng: Rng) -> Problem:
    """The clause holds at the point that comes nearest to it, and nearly nowhere else."""
    clause = problem.clauses[number]
    low, high = clause.low, clause.high
    best, height = low, np.inf
    for step in range(6):
        spread = 1.0 if step < 2 else 0.5**step
        others = np.clip(best + rng.uniform(-1, 1, size=(64, len(low))) * (high - low) * spread, low, high)
        others = np.where(rng.random(others.shape) < 0.2, rng.choice([low, high], size=64), others)
        reached = rows_at(problem.net, clause, others).max(axis=1)
        if reached.min() < height:
            best, height = others[reached.argmin()], reached.min()
    exact = rows_at(problem.net, clause, KIT.rationals.Rationals.of(best[None])).fractions[0]
    return problem.raised(number, [max(value, Fraction(0)) for value in exact])


# -- proofs in pieces ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """One node without its children, or the head of a tree."""

    kind: int
    arity: int
    data: bytes


@dataclass(eq=False)
class _Cutter(Walk):
    """Notes where nodes begin and end."""

    pieces: list[Piece] = field(default_factory=list)
    data: bytes = b""

    def _next(self) -> Place:
        told, start = sum(len(piece.data) for piece in self.pieces), self.stream.read
        if start > told:
            self.pieces.append(Piece(HEAD, 1, self.data[told:start]))
        place = super()._next()
        self.pieces.append(Piece(self.data[start], len(place.below), self.data[start : self.stream.read]))
        return place


def in_pieces(problem: Problem, body: bytes) -> list[Piece]:
    """Requires a proof that is accepted."""
    plain = KIT.walk(problem.net, problem.clauses, body)
    cutter = _Cutter(plain.setting, plain.stream, data=body)
    cutter.run()
    assert b"".join(piece.data for piece in cutter.pieces) == body
    return cutter.pieces


def put_together(pieces: Sequence[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def whole(data: bytes) -> list[Piece]:
    """Bytes of which no more is known."""
    return [Piece(HEAD, 1, bytes(data))]


def subtree(pieces: Sequence[Piece], start: int) -> slice:
    waiting, end = 1, start
    while waiting and end < len(pieces):
        waiting += pieces[end].arity - 1
        end += 1
    return slice(start, end)


# -- mistakes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Forger:
    """Makes wrong proofs from the pieces of a right one, of which so many `nodes` were passed before it was rejected.

    Every method below the helpers is one kind of mistake.
    """

    problem: Problem
    pieces: list[Piece]
    rng: Rng
    nodes: int = 0

    def number(self, limit: int) -> int:
        return int(self.rng.integers(max(limit, 1)))

    def place(self, *kinds: int) -> int:
        """Of a node of one of these kinds, or of any if there is none; often near the node that was rejected."""
        found = [i for i, piece in enumerate(self.pieces) if piece.kind in kinds]
        if self.rng.random() < 0.7:  # the last one before the proof was rejected
            nodes = [i for i, piece in enumerate(self.pieces) if piece.kind != HEAD][: self.nodes]
            found = [i for i in found if nodes and i <= nodes[-1]][-1:] or found
        return found[self.number(len(found))] if found else self.number(len(self.pieces))

    def replaced(self, at: slice, *new: Piece) -> list[Piece]:
        return [*self.pieces[: at.start], *new, *self.pieces[at.stop :]]

    def data(self) -> bytearray:
        return bytearray(put_together(self.pieces))

    def neuron(self) -> tuple[int, int]:
        k = 1 + self.number(self.problem.net.groups)
        return k, self.number(self.problem.net.size(k))

    def inside(self, j: int) -> float:
        clause = self.problem.clauses[self.number(len(self.problem.clauses))]
        share = self.rng.choice([0.0, 1.0, self.rng.random(), self.rng.random(), 1.5])
        return float(clause.low[j] + share * (clause.high[j] - clause.low[j]))

    def witness(self) -> bytes:
        """Random multipliers for the output, of all sorts."""
        net, sections = self.problem.net, []
        for k in range(net.groups, 0, -1):
            n, inputs = net.size(k), sum(net.inputs(k))
            size = 10.0 ** self.rng.integers(-3, 4)
            slopes = ALL + values(self.rng.random(n), 0) if self.rng.random() < 0.5 else b""
            deltas = ALL + values(self.rng.normal(size=n) * size) if self.rng.random() < 0.5 else b""
            masks = members(np.flatnonzero(self.rng.random(inputs) < 0.5).tolist())
            share = varint(0) + masks + ALL + varint(self.number(2)) + values(self.rng.random(n), 1)
            cuts = [share] if self.rng.random() < 0.3 else []
            sections.append(section(k, slopes, deltas, cuts, bool(self.rng.random() < 0.1)))
        return witness(sections)

    def weights(self, number: int) -> bytes:
        rows = len(self.problem.clauses[number].rows)
        sign = np.where(self.rng.random(rows) < 0.1, -1.0, 1.0)
        return b"" if rows == 1 else weights((10.0 ** self.rng.integers(-3, 4) * sign * self.rng.random(rows)).tolist())

    def closing(self) -> Piece:
        number = self.number(len(self.problem.clauses))
        return Piece(CLOSE, 0, close(number, self.weights(number), self.witness()))

    # the mistakes

    def unchanged(self) -> list[Piece]:
        return self.pieces

    def node_dropped(self) -> list[Piece]:
        at = self.number(len(self.pieces))
        return self.replaced(slice(at, at + 1))

    def node_doubled(self) -> list[Piece]:
        at = self.number(len(self.pieces))
        return self.replaced(slice(at, at), self.pieces[at])

    def subtree_dropped(self) -> list[Piece]:
        return self.replaced(subtree(self.pieces, self.number(len(self.pieces))))

    def subtree_elsewhere(self) -> list[Piece]:
        at = subtree(self.pieces, self.place(CLOSE, SPLIT, CUT))
        return self.replaced(at, *self.pieces[subtree(self.pieces, self.number(len(self.pieces)))])

    def children_swapped(self) -> list[Piece]:
        at = self.place(SPLIT, CUT, PART)
        first = subtree(self.pieces, at + 1)
        second = subtree(self.pieces, first.stop)
        return self.replaced(slice(first.start, second.stop), *self.pieces[second], *self.pieces[first])

    def one_child_twice(self) -> list[Piece]:
        first = subtree(self.pieces, self.place(SPLIT, CUT, PART) + 1)
        return self.replaced(subtree(self.pieces, first.stop), *self.pieces[first])

    def path_shortened(self) -> list[Piece]:
        """A leaf in the place of a split above it."""
        at = self.place(SPLIT, CUT)
        leaf = self.place(CLOSE)
        return self.replaced(subtree(self.pieces, at), *self.pieces[subtree(self.pieces, leaf)])

    def other_neuron(self) -> list[Piece]:
        at = self.place(SPLIT)
        return self.replaced(slice(at, at + 1), Piece(SPLIT, 2, split(*self.neuron())))

    def cut_moved(self) -> list[Piece]:
        at, j = self.place(CUT), self.number(self.problem.net.n_in)
        return self.replaced(slice(at, at + 1), Piece(CUT, 2, cut(j, self.inside(j))))

    def split_inserted(self) -> list[Piece]:
        """With the same below both children."""
        at = subtree(self.pieces, self.place(CLOSE))
        j, new = self.number(self.problem.net.n_in), Piece(DEFAULT, 1, default(1, 1))
        above = (
            Piece(CUT, 2, cut(j, self.inside(j))) if self.rng.random() < 0.5 else Piece(SPLIT, 2, split(*self.neuron()))
        )
        return self.replaced(at, above, new, *self.pieces[at], new, *self.pieces[at])

    def box_shrunk(self) -> list[Piece]:
        at = self.place(DEFAULT, CLOSE)
        each = [1 + self.number(2 + len(clause.rows)) for clause in self.problem.clauses]
        lambdas = [b"".join(self.weights(c) for _ in range(count)) for c, count in enumerate(each)]
        planes = [(c, own + self.witness()) for c, own in enumerate(lambdas)]
        ends = [
            (j, side, self.inside(j))
            for j in range(self.problem.net.n_in)
            for side in (0, 1)
            if self.rng.random() < 0.3
        ]
        new = [Piece(SHRINK, 1, shrink(planes, ends, each)), Piece(DEFAULT, 1, default())]
        return self.replaced(slice(at, at), *new)

    def shrunk_elsewhere(self) -> list[Piece]:
        """A shrinking that holds at one place, at another one."""
        source, at = self.place(SHRINK, IMPROVE, DEFAULT), self.number(len(self.pieces))
        return self.replaced(slice(at, at), self.pieces[source], Piece(DEFAULT, 1, default()))

    def said_to_be_empty(self) -> list[Piece]:
        return self.replaced(subtree(self.pieces, self.place(CLOSE, SPLIT)), Piece(EMPTY, 0, empty(*self.neuron())))

    def split_to_emptiness(self) -> list[Piece]:
        """Both sides of a split end in a crossing of bounds."""
        k, i = self.neuron()
        new = [Piece(SPLIT, 2, split(k, i)), Piece(EMPTY, 0, empty(k, i)), Piece(EMPTY, 0, empty(k, i))]
        return self.replaced(subtree(self.pieces, self.place(CLOSE)), *new)

    def bounds_by_random_witness(self) -> list[Piece]:
        k, i = self.neuron()
        deltas = [
            section(j, deltas=ALL + values(self.rng.normal(size=self.problem.net.size(j)))) for j in range(k - 1, 0, -1)
        ]
        at = self.place(CLOSE)
        return self.replaced(slice(at, at), Piece(IMPROVE, 1, improve(k, [i], [i], witness(deltas))))

    def other_witness(self) -> list[Piece]:
        at = self.place(CLOSE)
        return self.replaced(slice(at, at + 1), self.closing())

    def bounds_left_out(self) -> list[Piece]:
        at = self.place(DEFAULT, IMPROVE)
        return self.replaced(slice(at, at + 1), Piece(DEFAULT, 1, default(1 + self.number(2), self.number(32))))

    def clauses_parted(self) -> list[Piece]:
        some = np.flatnonzero(self.rng.random(len(self.problem.clauses)) < 0.5).tolist()
        at = subtree(self.pieces, self.place(DEFAULT, CLOSE))
        return self.replaced(at, Piece(PART, 2, part(some)), *self.pieces[at], *self.pieces[at])

    def other_clauses(self) -> list[Piece]:
        at = self.place(HEAD)
        some = np.flatnonzero(self.rng.random(len(self.problem.clauses)) < 0.5).tolist()
        return self.replaced(slice(at, at + 1), Piece(HEAD, 1, members(some)))

    def clause_swapped(self) -> list[Piece]:
        at = self.place(CLOSE)
        data = bytearray(self.pieces[at].data)
        data[1] = self.number(len(self.problem.clauses))
        return self.replaced(slice(at, at + 1), replace(self.pieces[at], data=bytes(data)))

    def scope_kept_and_recalled(self) -> list[Piece]:
        first, later = sorted((self.number(len(self.pieces)), self.number(len(self.pieces))))
        new = [*self.pieces[:first], Piece(9, 1, varint(9)), *self.pieces[first:later], Piece(10, 1, varint(10))]
        return [*new, *self.pieces[later:]]

    def bytes_of_a_leaf(self) -> list[Piece]:
        """Numbers of a witness, lambdas among them."""
        at = self.place(CLOSE, IMPROVE, SHRINK)
        data = bytearray(self.pieces[at].data)
        for _ in range(1 + self.number(8)):
            data[self.number(len(data))] = self.number(256)
        return self.replaced(slice(at, at + 1), replace(self.pieces[at], data=bytes(data)))

    def bit_flipped(self) -> list[Piece]:
        data = self.data()
        data[self.number(len(data))] ^= 1 << self.number(8)
        return whole(data)

    def byte_inserted(self) -> list[Piece]:
        data = self.data()
        data.insert(self.number(len(data)), self.number(256))
        return whole(data)

    def byte_deleted(self) -> list[Piece]:
        data = self.data()
        del data[self.number(len(data))]
        return whole(data)

    def truncated(self) -> list[Piece]:
        data = self.data()
        return whole(data[: self.number(len(data))])

    def end_doubled(self) -> list[Piece]:
        data = self.data()
        return whole(data + data[self.number(len(data)) :])

    def noise(self) -> list[Piece]:
        return whole(members(list(range(len(self.problem.clauses)))) + default() + self.rng.bytes(40))


MISTAKES: dict[str, Callable[[Forger], list[Piece]]] = {
    name: made
    for name, made in vars(Forger).items()
    if callable(made)
    and not name.startswith("_")
    and name not in ("number", "place", "replaced", "neuron", "inside", "witness", "weights", "closing", "data")
}
