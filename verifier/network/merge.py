"""Neurons that say the same: repeated ones, mirrored ones, constant ones, and those that nobody reads.

Networks that were built by a program hold many of them.  A linear value t is handed through a ReLU layer as
max(t, 0) - max(-t, 0), an absolute value is max(t, 0) + max(-t, 0), and min(a, b) = (a + b - |a - b|) / 2 takes four
neurons.  Relaxed one by one, the four lose even the linear part.  But max(-t, 0) = max(t, 0) - t, so that one neuron of
each such pair is enough, and t is read from where it comes from: min(a, b) = a - max(a - b, 0) is left, with one
neuron and the exact linear part.

requires:   weights as the file gives them
guarantees: the same function in real arithmetic.  Neurons are compared exactly, biases included, and what is rewritten
            is rewritten exactly or kept as a product of maps, whose roundings are counted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from verifier.network.entries import Entries, convolutions, entries_of, map_of, product, total
from verifier.network.network import Affine, Network
from verifier.operators import Chain, Conv, Dense, LinearMap, Select, add, compose, gamma
from verifier.operators.base import FLOOR
from verifier.shapes import Bool, Float64, Int, Tensor

CONSTANT = -1
"""Stands among the sources for the number 1: what a vector has of it is its constant part."""

Rows = dict[int, Entries]
"""Exact matrices by source, `CONSTANT` included."""


@dataclass(frozen=True, eq=False)
class Meaning:
    """A vector x[j] of the given network by those of the merged one: sum_s terms[s] x'[s]."""

    terms: Rows
    same: bool  # whether it is x'[j] itself

    @classmethod
    def unchanged(cls, source: int, n: int) -> Meaning:
        return cls({source: Entries.identity(n)}, True)


@dataclass(frozen=True, eq=False)
class Classes:
    """For every neuron: the one that stands for it (-1 if it is constant), and whether it is its mirror image."""

    standing: Int[Tensor, " n"]
    mirrored: Bool[Tensor, " n"]

    @classmethod
    def of_one_each(cls, n: int) -> Classes:
        """Everybody stands for itself."""
        return cls(torch.arange(n), torch.zeros(n, dtype=torch.bool))

    @property
    def alone(self) -> Bool[Tensor, " n"]:
        """Who stands for itself."""
        return self.standing == torch.arange(len(self.standing))


@dataclass(frozen=True, eq=False)
class LayerMerge:
    """What became of a layer of the given network: enough for others to do the same, and to compare."""

    classes: Classes
    kept: Bool[Tensor, " n"]  # the neurons of the merged network
    multiplied: bool  # whether its rows were multiplied out

    @property
    def superfluous(self) -> int:
        """How many neurons are not kept."""
        return int((~self.kept).sum())


@dataclass(frozen=True, eq=False)
class Merging:
    """A merged network, and how it came about; no layers if it is the given one."""

    network: Network
    layers: tuple[LayerMerge, ...] = ()


@dataclass(frozen=True, eq=False)
class Draft:
    """A layer that reads vectors of the merged network, before anything is removed from them."""

    layer: Affine  # with the terms that it was given
    rows: Rows | None  # None if they are not known exactly, or if a glance shows that no two are alike
    factors: dict[int, LinearMap]  # what stands for the rows then
    classes: Classes


def merged(net: Network) -> Network:
    """The network without ReLUs that other ones make superfluous; the same object if there are none."""
    return merging(net).network


def merging(net: Network) -> Merging:
    """The same, with what was done.  Networks with products stay as they are."""
    if not net.relus or any(group.function.arity > 1 for group in net.groups):
        return Merging(net)
    meanings, drafts = [Meaning.unchanged(0, net.n_in)], []
    for k, layer in enumerate(net.layers, start=1):
        rows = _rows(layer, meanings)
        draft = _exact(layer, rows) if rows is not None else _factored(layer, meanings)
        if rows is not None and k <= len(net.groups) and layer.function.is_relu:
            classes = _classes(rows, layer.size)
            meanings.append(_meaning(k, rows, classes))
            draft = replace(draft, classes=classes)
        else:
            meanings.append(Meaning.unchanged(k, layer.size))
        drafts.append(draft)
    return Merging(net) if all(meaning.same for meaning in meanings) else _pruned(net, drafts)


def _rows(layer: Affine, meanings: Sequence[Meaning]) -> Rows | None:
    """A layer in terms of the merged network's vectors."""
    unchanged = all(meanings[source].same for source, _ in layer.terms)
    if bool(layer.bias_error.any()) or (unchanged and (not layer.function.is_relu or _all_different(layer))):
        return None
    parts: dict[int, list[Entries]] = {CONSTANT: [Entries.column(layer.bias)]}
    for source, term in layer.terms:
        own = entries_of(term)
        for s, entries in meanings[source].terms.items():
            part = None if own is None else product(own, entries)
            if part is None:
                return None
            parts.setdefault(s, []).append(part)
    sums = {s: total(found) for s, found in sorted(parts.items())}
    return None if any(found is None for found in sums.values()) else {s: f for s, f in sums.items() if f is not None}


def _all_different(layer: Affine) -> bool:
    """A glance: True if the largest weights of all rows, or channels, differ, as they do in most trained layers.

    Rows that differ in what they take from one source differ, whatever they take from others.
    """
    return any(_differ(term) for _, term in layer.terms)


def _differ(term: LinearMap) -> bool:
    if not isinstance(term, Dense | Conv):
        return False
    largest = term.weight.flatten(1).abs().amax(dim=1)
    return len(largest.unique()) == len(largest) and bool(largest.all())


def _exact(layer: Affine, rows: Rows) -> Draft:
    """A layer by its exact rows."""
    known = replace(layer, bias=rows[CONSTANT].dense()[:, 0])
    return Draft(known, rows, {}, Classes.of_one_each(layer.size))


def _factored(layer: Affine, meanings: Sequence[Meaning]) -> Draft:
    """A layer by products of its maps with those that tell what they read."""
    maps: dict[int, LinearMap] = {}
    bias, error = layer.bias, layer.bias_error
    for source, term in layer.terms:
        for s, entries in meanings[source].terms.items():
            if not len(entries.values):  # a group of constants may be gone altogether
                continue
            if s == CONSTANT:
                constant = entries.dense()[:, 0]
                bias = bias + term.forward(constant)
                error = error + gamma(layer.depth + 4) * (term.magnitude(constant.abs()) + bias.abs()) + FLOOR
                continue
            found = term if meanings[source].same else compose(term, map_of(entries))
            maps[s] = add(maps[s], found) if s in maps else found
    known = replace(layer, bias=bias, bias_error=error)
    return Draft(known, None, dict(sorted(maps.items())), Classes.of_one_each(layer.size))


def _classes(rows: Rows, size: int) -> Classes:
    """Which neurons of a layer say the same, given its rows."""
    first, sign = _first_alike(_side_by_side(rows, size))
    constant = torch.ones(size, dtype=torch.bool)
    for source, entries in rows.items():
        if source != CONSTANT:
            constant[entries.rows] = False
    return Classes(torch.where(constant, -1, first), ~constant & (sign != sign[first]))


def _side_by_side(rows: Rows, size: int) -> Entries:
    """All matrices of a layer as one."""
    parts, offset = [], 0
    for entries in rows.values():
        parts.append((entries.rows, entries.columns + offset, entries.values))
        offset += entries.shape[1]
    at, columns, values = (torch.cat(part) for part in zip(*parts, strict=True))
    order = (at * offset + columns).argsort()
    return Entries(at[order], columns[order], values[order], (size, offset))


def _first_alike(entries: Entries) -> tuple[Int[Tensor, " n"], Float64[Tensor, " n"]]:
    """The first row that equals each row up to its sign, and a sign that makes them equal; 0 for rows of zeros.

    Rows are sorted by a sum of scrambled bits and then compared entry by entry, so that the answer is exact.
    """
    n = entries.shape[0]
    counts = torch.bincount(entries.rows, minlength=n)
    sign = torch.zeros(n, dtype=torch.float64)
    begins = (counts.cumsum(0) - counts)[counts > 0]
    sign[counts > 0] = entries.values[begins].sign()
    values = entries.values * sign[entries.rows]
    mixed = (values.view(torch.int64) ^ (entries.columns * 0x9E3779B97F4A7C1)) * 0x2545F4914F6CDD1D
    mark = torch.zeros(n, dtype=torch.int64).index_add(0, entries.rows, (mixed ^ (mixed >> 29)) * 0x5851F42D4C957F2D)
    classes, place = torch.unique(mark, return_inverse=True)
    first = torch.full((len(classes),), n).scatter_reduce(0, place, torch.arange(n), "amin")[place]
    first = torch.where(counts == counts[first], first, torch.arange(n))
    other = replace(entries, values=values).taken(first)
    differs = (other.columns != entries.columns) | (other.values != values)
    wrong = torch.zeros(n, dtype=torch.bool).index_put((entries.rows[differs],), torch.tensor(True))
    return torch.where(wrong, torch.arange(n), first), sign


def _meaning(k: int, rows: Rows, classes: Classes) -> Meaning:
    """The activations of a group by those of the neurons that stand for them."""
    standing, n = classes.standing, len(classes.standing)
    if bool(classes.alone.all()):
        return Meaning.unchanged(k, n)
    places = torch.nonzero(standing >= 0).flatten()
    itself = Entries(places, standing[places], torch.ones(len(places), dtype=torch.float64), (n, n))
    mirrored = torch.where(classes.mirrored, standing, -1)
    terms = {source: entries.taken(mirrored).negated() for source, entries in rows.items()}
    value = rows[CONSTANT].dense()[:, 0].clamp(min=0)
    constant = Entries.column(torch.where(standing < 0, value, terms[CONSTANT].dense()[:, 0]))
    return Meaning({**terms, k: itself, CONSTANT: constant}, False)


def _pruned(net: Network, drafts: Sequence[Draft]) -> Merging:
    """Only the neurons that stand for themselves and that somebody reads; groups without any are left out."""
    alive = _alive(net, drafts)
    numbers = {0: 0}
    for k in range(1, len(net.groups) + 1):
        if bool(alive[k].any()):
            numbers[k] = len(numbers)
    left = Left(alive, numbers, convolutions(term for layer in net.layers for _, term in layer.terms))
    *groups, output = (_shrunk(drafts[k - 1], k, left) for k in (*list(numbers)[1:], len(drafts)))
    done = [
        LayerMerge(draft.classes, kept, draft.rows is not None) for draft, kept in zip(drafts, alive[1:], strict=True)
    ]
    return Merging(Network(net.input_shape, tuple(groups), output), tuple(done))


@dataclass(frozen=True, eq=False)
class Left:
    """What is left: neurons of the input, of all groups and of the output, the new numbers of groups, and the
    convolutions that layers may look like.
    """

    alive: Sequence[Bool[Tensor, " _"]]
    numbers: dict[int, int]
    templates: Sequence[Conv]


def _alive(net: Network, drafts: Sequence[Draft]) -> list[Bool[Tensor, " n"]]:
    """Who is read by the output, directly or through others: the input, all groups, and the output itself.

    Groups that may have no value stay, so that somebody sees whether they have one.
    """
    alive = [torch.ones(size, dtype=torch.bool) for size in (net.n_in, *(draft.layer.size for draft in drafts))]
    for hidden, group in zip(alive[1:-1], net.groups, strict=True):
        hidden.fill_(group.function.partial)
    for k in range(len(drafts), 0, -1):
        draft = drafts[k - 1]
        if draft.rows is None:
            for source in draft.factors:
                if source:
                    alive[source] |= drafts[source - 1].classes.alone
            continue
        for source, entries in draft.rows.items():
            if source != CONSTANT:
                alive[source][entries.columns[alive[k][entries.rows]]] = True
    return alive


def _shrunk(draft: Draft, k: int, left: Left) -> Affine:
    """A layer between the neurons that are left."""
    layer, alive, index = draft.layer, left.alive, torch.nonzero(left.alive[k]).flatten()
    terms: dict[int, LinearMap] = {}
    for source, entries in (draft.rows or {}).items():
        part = entries.taken(index)
        if source != CONSTANT and len(part.values):
            terms[left.numbers[source]] = map_of(part.places(alive[source]), left.templates)
    for source, term in draft.factors.items():
        place = torch.where(alive[source], alive[source].cumsum(0) - 1, -1)
        inner = Select(place, int(alive[source].sum()))
        terms[left.numbers[source]] = compose(compose(Select(index, layer.size), term), inner)
    if not terms:  # every layer reads something, be it with weight zero
        terms[0] = Select.nothing(len(index), len(alive[0]))
    shape = layer.shape if len(index) == layer.size else (1, len(index))
    return replace(
        layer, shape=shape, terms=tuple(terms.items()), bias=layer.bias[index], bias_error=layer.bias_error[index]
    )


def pruned(net: Network) -> Network:
    """The same function without terms that are zero, and without groups that nothing reads then.

    Groups that may have no value stay: zero times nothing is not zero.
    """
    layers = [_without_zeros(layer, net.n_in) for layer in net.layers]
    read = {source for source, _ in layers[-1].terms}
    read.update(k for k, group in enumerate(net.groups, start=1) if group.function.partial)
    for k in range(len(net.groups), 0, -1):
        if k in read:
            read.update(source for source, _ in layers[k - 1].terms)
    kept = [k for k in range(1, len(net.groups) + 1) if k in read]
    if len(kept) == len(net.groups) and all(new is old for new, old in zip(layers, net.layers, strict=True)):
        return net
    place = {0: 0, **{k: i for i, k in enumerate(kept, start=1)}}
    groups = tuple(_renumbered(layers[k - 1], place) for k in kept)
    return replace(net, groups=groups, output=_renumbered(layers[-1], place))


def _renumbered(layer: Affine, place: dict[int, int]) -> Affine:
    return replace(layer, terms=tuple((place[source], term) for source, term in layer.terms))


def _without_zeros(layer: Affine, n_in: int) -> Affine:
    """A layer of which nothing is left reads the input with weight zero: every layer reads something."""
    kept = tuple((source, term) for source, term in layer.terms if not _is_zero(term))
    if len(kept) == len(layer.terms):
        return layer
    return replace(layer, terms=kept or ((0, Select.nothing(layer.size, n_in)),))


def _is_zero(linear: LinearMap) -> bool:
    if isinstance(linear, Chain):
        return any(_is_zero(factor) for factor in linear.maps)
    if isinstance(linear, Select):
        return not bool((linear.index >= 0).any())
    return linear.weights is not None and not bool(linear.weights.any())
