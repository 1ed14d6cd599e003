"""From bytes to multipliers.  Nothing here needs trust: whatever numbers come out, the inequality holds for them.

Only `off` and `gap` of cuts are bounds that must hold; they are computed from the scope, never read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .inequality import Choice, Choose
from .maps import Chain, Select
from .network import Layer, Network
from .rationals import Array, Ints, where
from .scope import Scope
from .stream import Rejected, Stream

SLOPES, DELTAS, CUTS, PLAIN = 1, 2, 4, 8
BALANCED, SHARED, ROWS = 0, 1, 2


@dataclass(frozen=True, eq=False)
class SharedMask:
    """P = (W (keep + drop) + |W| (keep - drop)) / 2 for bits [1 or m, inputs]: `keep` of positive weights, `drop` of
    negative ones.

    |W| may be larger than the absolute value of W: then P holds a bit more than the weights named, and the bounds hold.
    """

    positive: Array
    negative: Array

    def at(self, layer: Layer, scope: Scope) -> SharedCut:
        """Each input has P = W+, W-, W or 0; so the ends of its interval that matter are known."""
        some, signed = {}, {}
        plain: list[dict[int, Any]] = [{}, {}, {}, {}]  # what W and |W| are applied to, for off and for gap
        start = 0
        for j in layer.sources:
            low, high = scope.box(j)
            bits = slice(start, start + low.shape[1])
            positive, negative = self.positive[:, bits], self.negative[:, bits]
            start = bits.stop
            middle, radius = scope.middle(j)
            both, none = positive & negative, ~positive & ~negative
            end, sign = 0.5 * where(positive, low, high), np.where(positive, 1, -1)
            plain[0][j] = where(both, middle, where(none, 0, end))
            plain[1][j] = where(both, -radius, where(none, 0, sign * end))
            plain[2][j] = where(none, middle, where(both, 0, end))
            plain[3][j] = where(none, radius, where(both, 0, -sign * end))
            some[j] = positive.astype(np.int64) + negative
            signed[j] = positive.astype(np.int64) - negative
        off = layer.forward(plain[0]) + layer.signed.forward(plain[1])
        gap = layer.moved(layer.forward(plain[2]) + layer.signed.forward(plain[3]))
        return SharedCut(self, off, gap, layer, some, signed)


@dataclass(frozen=True, eq=False)
class SharedCut:
    """A mask of inputs at one scope; `some` and `signed` are keep + drop and keep - drop."""

    mask: SharedMask
    off: Any
    gap: Any
    layer: Layer
    some: dict[int, Array]
    signed: dict[int, Array]

    def transpose(self, kappa: Any) -> list[tuple[int, Any]]:
        parts = [(j, 0.5 * part * self.some[j]) for j, part in self.layer.transpose(kappa)]
        return parts + [(j, 0.5 * part * self.signed[j]) for j, part in self.layer.signed.transpose(kappa)]


@dataclass(frozen=True, eq=False)
class RowMask:
    """P = W where the bits [a, inputs] of `neurons` [a] are set; for one scope at a time."""

    neurons: Ints
    bits: Array

    def at(self, layer: Layer, scope: Scope) -> RowCut:
        unit = 0 * scope.low[:, :1] + np.eye(layer.size)[self.neurons]
        rows: dict[int, Any] = {}
        for j, part in layer.transpose(unit):
            rows[j] = rows[j] + part if j in rows else part
        off, gap, start = 0, 0, 0  # type: Any, Any, int
        kept: dict[int, Any] = {}
        for j in layer.sources:
            low, high = scope.box(j)
            kept[j] = where(self.bits[:, start : start + low.shape[1]], rows[j], 0)
            start += low.shape[1]
            rest = rows[j] - kept[j]
            off = off + np.minimum(kept[j] * low, kept[j] * high).sum(axis=1)
            gap = gap + np.maximum(rest * low, rest * high).sum(axis=1)
        place = np.full(layer.size, -1)
        place[self.neurons] = np.arange(len(self.neurons))
        spread = Chain((Select(place, len(self.neurons)),), len(self.neurons))
        return RowCut(self, spread.forward(off[None]), layer.moved(spread.forward(gap[None])), kept)


@dataclass(frozen=True, eq=False)
class RowCut:
    """Masks of single weights at one scope."""

    mask: RowMask
    off: Any
    gap: Any
    kept: dict[int, Any]

    def transpose(self, kappa: Any) -> list[tuple[int, Any]]:
        return [(j, kappa[:, self.mask.neurons] @ rows) for j, rows in self.kept.items()]


Mask = SharedMask | RowMask


@dataclass(frozen=True, eq=False)
class Scattered:
    """Numbers [rows, members] for some neurons of a group."""

    members: Ints
    values: Array

    def part(self, rows: slice) -> Scattered:
        return self if len(self.values) == 1 else replace(self, values=self.values[rows])


@dataclass(frozen=True, eq=False)
class Share:
    """How much of a cut the neurons take: of their negative coefficient, or as numbers."""

    mask: Mask
    amount: Scattered
    relative: bool


@dataclass(frozen=True, eq=False)
class Section:
    """What a witness says about one group."""

    slopes: Scattered | None = None
    deltas: Scattered | None = None
    shares: tuple[Share, ...] = ()
    plain: bool = False

    def part(self, rows: slice) -> Section:
        """For some of the rows."""
        slopes, deltas = (given and given.part(rows) for given in (self.slopes, self.deltas))
        shares = tuple(replace(share, amount=share.amount.part(rows)) for share in self.shares)
        return Section(slopes, deltas, shares, self.plain)


@dataclass(frozen=True, eq=False)
class Witness:
    """Multipliers of all groups below some layer; adaptive slopes where it says nothing."""

    sections: dict[int, Section]
    slope: str = "adaptive"

    @property
    def single(self) -> bool:
        """Whether it has cuts that must be judged in one scope alone."""
        return any(isinstance(share.mask, RowMask) for section in self.sections.values() for share in section.shares)

    def part(self, rows: slice) -> Witness:
        """For some of the rows."""
        return replace(self, sections={k: section.part(rows) for k, section in self.sections.items()})


_NOTHING = Section()


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Several, each for the rows after those of the one before it; all with the same slopes where they say nothing."""

    counts: Sequence[int]
    parts: Sequence[Witness]

    def chooser(self, net: Network, scope: Scope) -> Choose:
        """The multipliers, where the scope has one row for each row, or one for all."""

        def choose(k: int, r: Array) -> Choice:
            return self._multipliers(net.layers[k - 1], scope, k, r)

        return choose

    def _multipliers(self, layer: Layer, scope: Scope, k: int, r: Array) -> Choice:
        sections = [part.sections.get(k, _NOTHING) for part in self.parts]
        if not layer.function.bends_at_zero:
            return self._faces(layer, scope, k, r, sections), self._cuts(layer, scope, sections, r)
        low, high = scope.lower[k - 1], scope.upper[k - 1]
        cuts = self._cuts(layer, scope, sections, r)
        rest, balance = r, 0.0  # type: Array, Any
        for kappa, cut in cuts:  # balance: what passing costs more than blocking
            rest = rest - kappa
            balance = balance + kappa * (cut.gap + cut.off)
        slopes = self._filled([s.slopes for s in sections], SLOPE_KINDS[self.parts[0].slope](low, high))
        chord = np.clip((balance + rest * high) / (high - low), np.minimum(rest, 0.0), 0.0)
        mu = np.where(low >= 0, rest, np.where(high <= 0, 0.0, np.where(rest >= 0, slopes * rest, chord)))
        if any(section.plain for section in sections):
            mu = np.where(np.repeat([section.plain for section in sections], self.counts)[:, None], 0.0, mu)
        if any(section.deltas is not None for section in sections):
            mu = mu + self._filled([s.deltas for s in sections], np.zeros((1, layer.size)))
        return mu, cuts

    def _faces(self, layer: Layer, scope: Scope, k: int, r: Array, sections: Sequence[Section]) -> Array:
        """Of another function: r times the slopes of the faces that its sign asks for."""
        places = self._filled([s.slopes for s in sections], np.full((1, layer.outputs), 0.5))
        least, middle, most = layer.function.fan((scope.lower[k - 1], scope.upper[k - 1]), np.where(r >= 0, 1.0, -1.0))
        places, twice = (np.tile(part, (1, layer.function.arity)) for part in (places, r))
        slope = middle + (places - 0.5) * 2.0 * np.where(places < 0.5, middle - least, most - middle)
        mu = np.where(twice == 0, 0.0, twice * slope)
        if any(section.plain for section in sections):
            mu = np.where(np.repeat([section.plain for section in sections], self.counts)[:, None], 0.0, mu)
        if any(section.deltas is not None for section in sections):
            mu = mu + self._filled([s.deltas for s in sections], np.zeros((1, layer.size)))
        return mu

    def _filled(self, given: Sequence[Scattered | None], background: Array) -> Array:
        """Numbers [m, n] where they are given, over a background [1 or m, n]."""
        if all(part is None for part in given):
            return background
        found = np.array(np.broadcast_to(background, (sum(self.counts), background.shape[1])))
        end = 0
        for count, part in zip(self.counts, given, strict=True):
            end += count
            if part is not None:
                found[end - count : end, part.members] = part.values
        return found

    def _cuts(self, layer: Layer, scope: Scope, sections: Sequence[Section], r: Array) -> list[Any]:
        """Cuts with their kappa [m, n]: the first of every section together, then the second, and so on."""
        found = []
        for c in range(max(len(section.shares) for section in sections)):
            shares = [section.shares[c] if c < len(section.shares) else None for section in sections]
            amount = self._filled(
                [None if share is None else share.amount for share in shares], np.zeros((1, layer.size))
            )
            relative = np.repeat([share is not None and share.relative for share in shares], self.counts)[:, None]
            kappa = -amount * np.where(relative, np.maximum(-r, 0.0), 1.0)
            found.append(
                (kappa, self._mask([None if share is None else share.mask for share in shares]).at(layer, scope))
            )
        return found

    def _mask(self, masks: Sequence[Mask | None]) -> Mask:
        first = next(mask for mask in masks if mask is not None)
        if len(masks) == 1 or isinstance(first, RowMask):
            return first
        none = np.zeros_like(first.positive)
        sides = [(none, none) if m is None else (m.positive, m.negative) for m in masks]  # type: ignore[union-attr]
        positive, negative = (np.repeat(np.concatenate(side), self.counts, axis=0) for side in zip(*sides, strict=True))
        return SharedMask(positive, negative)


def _chord(low: Array, high: Array) -> Array:
    with np.errstate(all="ignore"):
        found: Array = np.clip(np.nan_to_num(high / (high - low)), 0.0, 1.0)
    return found


SLOPE_KINDS: dict[str, Callable[[Array, Array], Array]] = {
    "adaptive": lambda low, high: (high > -low).astype(np.float64),
    "zero": lambda low, high: np.zeros_like(low),
    "one": lambda low, high: np.ones_like(low),
    "chord": _chord,
}
"""Slopes of lower faces; in the order of the bits of `default`."""


def read_witness(stream: Stream, net: Network, layer: int, rows: int) -> Witness:
    """The next witness, for `rows` rows of a layer."""
    given = stream.varint()
    if given not in (1, rows):
        raise Rejected(f"a witness has {given} rows, not {rows}")
    sections: dict[int, Section] = {}
    last = layer
    for _ in range(stream.below(layer, "count of sections")):
        k = stream.varint()
        if not 0 < k < last:
            raise Rejected(f"a witness names group {k} after {last}")
        last = k
        sections[k] = _section(stream, net, k, given)
    return Witness(sections)


def _section(stream: Stream, net: Network, k: int, rows: int) -> Section:
    flags, n = stream.below(SLOPES + DELTAS + CUTS + PLAIN + 1, "flags"), net.size(k)
    slopes = _scattered(stream, net.layers[k - 1].outputs, rows) if flags & SLOPES else None
    deltas = _scattered(stream, n, rows) if flags & DELTAS else None
    count = stream.varint() if flags & CUTS else 0
    shares = [_share(stream, net, k, rows) for _ in range(count)]
    return Section(slopes, deltas, tuple(shares), bool(flags & PLAIN))


def _scattered(stream: Stream, n: int, rows: int) -> Scattered:
    members = stream.set(n)
    return Scattered(members, stream.values(rows * len(members)).reshape(rows, len(members)))


def _share(stream: Stream, net: Network, k: int, rows: int) -> Share:
    form, inputs = stream.below(ROWS + 1, "form of masks"), sum(net.inputs(k))
    bits = [_bits(stream, inputs) for _ in range((1, 2, 0)[form])]
    members = stream.set(net.size(k))
    mask: Mask
    if form == ROWS:
        mask = RowMask(members, np.array([stream.bits(inputs) for _ in members]).reshape(len(members), inputs))
    else:
        mask = SharedMask(bits[0], ~bits[0] if form == BALANCED else bits[1])
    relative = stream.below(2, "meaning of shares") == 0
    values = stream.values(rows * len(members)).reshape(rows, len(members))
    if not (values >= 0).all():
        raise Rejected("a kappa would be above zero")
    return Share(mask, Scattered(members, values), relative)


def _bits(stream: Stream, n: int) -> Array:
    found = np.zeros((1, n), np.bool_)
    found[:, stream.set(n)] = True
    return found
