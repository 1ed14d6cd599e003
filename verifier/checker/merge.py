"""Neurons that repeat or mirror others: a smaller network that computes the same, shown in rational arithmetic.

A proof may be about the neurons that are left; `merged.bin` then says what became of the others.  Believed is nothing.

Let the values of the groups before group k be known as sums over outputs x' of neurons that stand for themselves, a
constant included.  Put into t_k = sum_j W_kj x_j + b_k they make a row of every neuron, t_i = a_i.x' + c_i, in
rationals.  Then it holds for neuron i and a neuron s of the same group, which stands for itself:

    it repeats s:     (a_i, c_i) =  (a_s, c_s),   so x_i = x_s
    it mirrors s:     (a_i, c_i) = -(a_s, c_s),   so x_i = max(-t_s, 0) = max(t_s, 0) - t_s = x_s - a_s.x' - c_s
    it is constant:   a_i = 0,                    so x_i = max(c_i, 0)

Whichever is claimed is compared entry by entry.  So the values of group k are such sums too, and in the end those of
the output.  A neuron may be left out if no row that is left, nor what a product reads, has a term with it; those whose
function is not defined everywhere stay, because zero times nothing is not zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from .maps import Chain, Dense, Map, Select, Sparse
from .network import Layer, Network
from .rationals import Array, Ints, Rationals
from .stream import Rejected, Stream

ONE = -1
"""Stands among the sources for the number 1."""

FEW = 0.1
"""With a smaller part of its entries a matrix is sparse."""

Row = dict[tuple[int, int], Fraction]
"""A sum over entries (source, place) of vectors of the file's network."""


@dataclass(frozen=True, eq=False)
class Claim:
    """What is said of a layer.  `others`: the neurons that do not stand for themselves, each with its code."""

    multiplied: bool
    others: dict[int, int]
    kept: Ints


@dataclass(frozen=True, eq=False)
class Vector:
    """The input or the output of a group: what its entries are, and which of them are left, under which number."""

    meaning: list[Row] | None  # None: every entry is itself
    size: int
    kept: Ints
    number: int

    @property
    def whole(self) -> bool:
        return self.meaning is None and len(self.kept) == self.size

    def rows(self, source: int) -> list[Row]:
        if self.meaning is not None:
            return self.meaning
        return [{(source, i): Fraction(1)} for i in range(self.size)]

    def places(self) -> dict[int, int]:
        return {i: place for place, i in enumerate(self.kept.tolist())}


def merged(net: Network, stream: Stream) -> Network:
    """The network that is left.  Raises Rejected unless it computes the same, in real arithmetic."""
    vectors, layers = [Vector(None, net.n_in, np.arange(net.n_in), 0)], []  # type: list[Vector], list[Layer]
    for k, layer in enumerate(net.layers, start=1):
        claim = _claim(stream, layer.size, k <= net.groups)
        if not layer.function.bends_at_zero and claim.others:
            raise Rejected(f"what is merged in layer {k}: its neurons are no ReLUs")
        if (layer.function.arity > 1 or layer.function.partial) and len(claim.kept) < layer.size:
            raise Rejected(f"what is left of layer {k}: a factor is left out, or what may have no value")
        rows = _rows(layer, vectors) if claim.multiplied or claim.others else None
        try:
            meaning = _meaning(k, rows, claim.others) if rows and claim.others else None
            if len(claim.kept):
                left = _left(layer, rows if claim.multiplied else None, claim.kept, vectors)
                layers.append(replace(left, function=layer.function))
        except Rejected as error:
            raise Rejected(f"what is merged in layer {k}: {error}") from error
        kept = claim.kept if layer.function.arity == 1 else np.arange(layer.outputs)
        vectors.append(Vector(meaning, layer.outputs, kept, len(layers)))
    if not stream.at_end():
        raise Rejected("more is said to be merged than there are layers")
    return Network(net.n_in, tuple(layers))


def _claim(stream: Stream, n: int, is_group: bool) -> Claim:
    multiplied = stream.below(2, "form of a merged layer") == 1
    if not is_group:
        return Claim(multiplied, {}, np.arange(n))
    others = {i: stream.below(2 * n + 1, "code of a merged neuron") for i in stream.set(n).tolist()}
    kept = stream.set(n)
    if not others.keys().isdisjoint(kept.tolist()):
        raise Rejected("a neuron is merged and left at once")
    return Claim(multiplied, others, kept)


def _rows(layer: Layer, vectors: Sequence[Vector]) -> list[Row]:
    """t of a layer, entry by entry."""
    if any(chain.roundings for chain in layer.chains):
        raise Rejected("a merged layer has numbers that are no rationals")
    found: list[Row] = [{} for _ in range(layer.size)]
    parts = [_through(chain, vectors[source].rows(source)) for source, chain in layer.terms]
    parts += [_through(chain, [{(ONE, 0): Fraction(value)} for value in values]) for chain, values in layer.biases]
    for part in parts:
        for total, row in zip(found, part, strict=True):
            _add(total, row, Fraction(1))
    return [{place: value for place, value in row.items() if value} for row in found]


def _through(chain: Chain, rows: list[Row]) -> list[Row]:
    """What a chain of maps makes of a vector."""
    for linear in chain.maps:
        found: list[Row] = [{} for _ in range(linear.n_out)]
        into, of, weights = linear.triples()
        for i, j, weight in zip(into.tolist(), of.tolist(), Rationals.of(weights).fractions, strict=True):
            _add(found[i], rows[j], weight)
        rows = found
    return rows


def _add(total: Row, row: Row, weight: Fraction) -> None:
    for place, value in row.items():
        total[place] = total.get(place, 0) + weight * value


def _meaning(k: int, rows: list[Row], others: dict[int, int]) -> list[Row]:
    """The outputs of group k; every claim is compared."""
    found: list[Row] = [{(k, i): Fraction(1)} for i in range(len(rows))]
    for i, code in others.items():
        if code == 0:
            if not rows[i].keys() <= {(ONE, 0)}:
                raise Rejected(f"neuron {i} is not constant")
            found[i] = {place: value for place, value in rows[i].items() if value > 0}
            continue
        s, mirrors = divmod(code - 1, 2)
        if s in others:
            raise Rejected(f"neuron {s} does not stand for itself, so not for neuron {i}")
        if rows[i] != ({place: -value for place, value in rows[s].items()} if mirrors else rows[s]):
            raise Rejected(f"neuron {i} does not {'mirror' if mirrors else 'repeat'} neuron {s}")
        found[i] = dict(found[s])
        if mirrors:
            _add(found[i], rows[s], Fraction(-1))
    return found


def _left(layer: Layer, rows: list[Row] | None, kept: Ints, vectors: Sequence[Vector]) -> Layer:
    """The neurons of a layer that are kept, by their rows, or as products of maps if these are None."""
    if rows is not None:
        return _by_rows([rows[i] for i in kept], vectors)
    terms, biases = [], list(layer.biases)
    for source, chain in layer.terms:
        vector = vectors[source]
        if vector.whole:
            terms.append((vector.number, chain))
            continue
        inner = _by_rows(vector.rows(source), vectors)
        terms += [(s, Chain(first.maps + chain.maps, first.n_in)) for s, first in inner.terms]
        biases += [(Chain(first.maps + chain.maps, first.n_in), value) for first, value in inner.biases]
    if len(kept) == layer.size:
        return Layer(layer.size, tuple(terms), tuple(biases))
    some = Select(kept, layer.size)
    return Layer(
        len(kept),
        tuple((source, chain.then(some)) for source, chain in terms),
        tuple((chain.then(some), value) for chain, value in biases),
    )


def _by_rows(rows: list[Row], vectors: Sequence[Vector]) -> Layer:
    """Rows over what is left of the vectors.  Raises Rejected if a number is no float, or an entry is not left."""
    n, bias = len(rows), np.zeros(len(rows))
    entries: dict[int, list[tuple[int, int, float]]] = {}
    for i, row in enumerate(rows):
        for (source, place), value in row.items():
            if float(value) != value:
                raise Rejected("a number is no float once it is multiplied out")
            if source == ONE:
                bias[i] = float(value)
            else:
                entries.setdefault(source, []).append((i, place, float(value)))
    terms = tuple((vectors[j].number, _chain(j, found, n, vectors[j])) for j, found in sorted(entries.items()))
    return Layer(n, terms, ((Chain((), n), bias),))


def _chain(source: int, entries: list[tuple[int, int, float]], n: int, vector: Vector) -> Chain:
    """One map with these entries, from what is left of a vector."""
    places = vector.places()
    gone = [place for _, place, _ in entries if place not in places]
    if gone:
        raise Rejected(f"neuron {gone[0]} of group {source} is left out, but it is read")
    into, of = np.array([(i, places[place]) for i, place, _ in entries]).T
    weights: Array = np.array([weight for _, _, weight in entries])
    found: Map
    if (weights == 1.0).all() and len(np.unique(into)) == len(into):
        index = np.full(n, -1)
        index[into] = of
        found = Select(index, len(places))
    elif len(weights) < FEW * n * len(places):
        found = Sparse((n, len(places)), into, of, weights)
    else:
        matrix = np.zeros((n, len(places)))
        matrix[into, of] = weights
        found = Dense(matrix)
    return Chain((found,), len(places))
