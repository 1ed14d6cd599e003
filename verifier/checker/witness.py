"""From bytes to multipliers.  Nothing here needs trust: whatever numbers come out, the inequality holds for them.

Only `off` and `gap` of cuts are bounds that must hold; they are computed from the scope, never read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .inequality import Choice, Choose
from .maps import Array, Ints, halved
from .network import Layer, Network
from .scope import Scope
from .stream import Rejected, Stream

SLOPES, DELTAS, CUTS, PLAIN = 1, 2, 4, 8
BALANCED, SHARED, ROWS = 0, 1, 2


@dataclass(frozen=True, eq=False)
class SharedMask:
    """P = (W (keep + drop) + |W| (keep - drop)) / 2 for bits per input: `keep` of positive weights, `drop` of negative.

    |W| may be larger than the absolute value of W: then P holds a bit more than the weights named, and the bounds hold.
    """

    positive: Array
    negative: Array

    def at(self, layer: Layer, scope: Scope) -> SharedCut:
        """Each input has P = W+, W-, W or 0; so the ends of its interval that matter are known."""
        some, signed = {}, {}
        plain: list[dict[int, Array]] = [{}, {}, {}, {}]  # what W and |W| are applied to, for off and for gap
        start = 0
        for j in layer.sources:
            low, high = scope.box(j)
            bits = slice(start, start + len(low))
            positive, negative = self.positive[bits], self.negative[bits]
            start += len(low)
            middle = halved(low + high)
            radius = np.maximum(high - middle, middle - low)
            both, none = positive & negative, ~positive & ~negative
            end = halved(np.where(positive, low, high))
            sign = np.where(positive, 1, -1)
            zero = 0 * low
            plain[0][j] = np.where(both, middle, np.where(none, zero, end))
            plain[1][j] = np.where(both, -radius, np.where(none, zero, sign * end))
            plain[2][j] = np.where(none, middle, np.where(both, zero, end))
            plain[3][j] = np.where(none, radius, np.where(both, zero, -sign * end))
            some[j] = positive.astype(np.int64) + negative
            signed[j] = positive.astype(np.int64) - negative
        off = layer.forward(plain[0]) + layer.signed.forward(plain[1])
        gap = layer.bias + layer.forward(plain[2]) + layer.signed.forward(plain[3])
        return SharedCut(self, off, gap, layer, some, signed)


@dataclass(frozen=True, eq=False)
class SharedCut:
    """A mask of inputs at one scope; `some` and `signed` are keep + drop and keep - drop."""

    mask: SharedMask
    off: Array
    gap: Array
    layer: Layer
    some: dict[int, Array]
    signed: dict[int, Array]

    def transpose(self, kappa: Array) -> list[tuple[int, Array]]:
        parts = [(j, halved(part * self.some[j])) for j, part in self.layer.transpose(kappa)]
        return parts + [(j, halved(part * self.signed[j])) for j, part in self.layer.signed.transpose(kappa)]


@dataclass(frozen=True, eq=False)
class RowMask:
    """P = W where the bits [a, inputs] of `neurons` [a] are set."""

    neurons: Ints
    bits: Array

    def at(self, layer: Layer, scope: Scope) -> RowCut:
        unit = np.zeros((len(self.neurons), layer.size), np.int64)
        unit[np.arange(len(self.neurons)), self.neurons] = 1
        boxes = {j: scope.box(j) for j in layer.sources}
        rows = {j: 0 * unit[:, :1] + 0 * low for j, (low, _) in boxes.items()}
        for j, part in layer.transpose(unit):
            rows[j] = rows[j] + part
        off = np.zeros(layer.size, scope.low.dtype)
        gap = off + layer.bias
        kept, start = {}, 0
        for j, (low, high) in boxes.items():
            kept[j] = np.where(self.bits[:, start : start + len(low)], rows[j], 0 * rows[j])
            start += len(low)
            rest = rows[j] - kept[j]
            off[self.neurons] += np.minimum(kept[j] * low, kept[j] * high).sum(axis=1)
            gap[self.neurons] += np.maximum(rest * low, rest * high).sum(axis=1)
        return RowCut(self, off, gap, kept)


@dataclass(frozen=True, eq=False)
class RowCut:
    """Masks of single weights at one scope."""

    mask: RowMask
    off: Array
    gap: Array
    kept: dict[int, Array]

    def transpose(self, kappa: Array) -> list[tuple[int, Array]]:
        return [(j, kappa[:, self.mask.neurons] @ rows) for j, rows in self.kept.items()]


Mask = SharedMask | RowMask


@dataclass(frozen=True, eq=False)
class Scattered:
    """Numbers [rows, members] for some neurons of a group."""

    members: Ints
    values: Array

    def part(self, rows: slice) -> Scattered:
        return self if len(self.values) == 1 else replace(self, values=self.values[rows])

    def filled(self, background: Array) -> Array:
        """Over a background [m, n] or [n] for the others."""
        found = np.array(np.broadcast_to(background, (len(self.values), background.shape[-1])), np.float64)
        found[:, self.members] = self.values
        return found


@dataclass(frozen=True, eq=False)
class Share:
    """How much of a cut the neurons take: of their negative coefficient, or as numbers."""

    mask: Mask
    amount: Scattered
    relative: bool

    def kappa(self, r: Array) -> Array:
        amount = self.amount.filled(np.zeros(r.shape[1]))
        return -amount * (np.maximum(-r, 0.0) if self.relative else np.ones_like(r))


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

    def part(self, rows: slice) -> Witness:
        """For some of the rows."""
        return replace(self, sections={k: section.part(rows) for k, section in self.sections.items()})

    def chooser(self, net: Network, scope: Scope) -> Choose:
        """The multipliers for one scope."""

        def choose(k: int, r: Array) -> Choice:
            return self._multipliers(net.layers[k - 1], scope, k, r)

        return choose

    def _multipliers(self, layer: Layer, scope: Scope, k: int, r: Array) -> Choice:
        section = self.sections.get(k, _NOTHING)
        low, high = scope.lower[k - 1], scope.upper[k - 1]
        cuts = [(share.kappa(r), share.mask.at(layer, scope)) for share in section.shares]
        mu = np.zeros_like(r)
        if not section.plain:
            rest, balance = r, 0.0 * r  # balance: what passing costs more than blocking
            for kappa, cut in cuts:
                rest = rest - kappa
                balance = balance + kappa * (cut.gap + cut.off)
            slopes = SLOPE_KINDS[self.slope](low, high)
            if section.slopes is not None:
                slopes = section.slopes.filled(slopes)
            with np.errstate(all="ignore"):
                chord = np.clip((balance + rest * high) / (high - low), np.minimum(rest, 0.0), 0.0)
            ambiguous = np.where(rest >= 0, slopes * rest, chord)
            mu = np.where(low >= 0, rest, np.where(high <= 0, 0.0, ambiguous))
        if section.deltas is not None:
            mu = mu + section.deltas.filled(np.zeros(r.shape[1]))
        return mu, cuts


_NOTHING = Section()


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
    slopes = _scattered(stream, n, rows) if flags & SLOPES else None
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
    found = np.zeros(n, np.bool_)
    found[stream.set(n)] = True
    return found
