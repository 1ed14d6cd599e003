"""Witnesses as bytes: the multipliers of one region and one objective (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import RowMaskCut, SharedCut
from verifier.bounding.cuts.balanced import BalancedCut
from verifier.operators import LinearMap, Sum
from verifier.proofs.stream import Bools, Piece, Pieces
from verifier.proofs.witness import CutPart, Precision, Witness
from verifier.shapes import Float, Tensor

Doubles = NDArray[np.float64]
Place = tuple[int, int]
"""A region and an objective of a batch."""

SLOPES, DELTAS, CUTS = 1, 2, 4
BALANCED, SHARED, ROWS = 0, 1, 2
SHARE, SHIFT = 0, 1


@dataclass(frozen=True)
class Wording:
    """How the numbers of a witness are written: as they were rounded; what scales with the objective, times `unit`."""

    precision: Precision
    unit: float

    def shares(self, out: Pieces, values: Doubles) -> None:
        if self.precision.steps is None:
            out.floats(values, self.precision.single)
        else:
            out.grid(values, self.precision.steps)

    def numbers(self, out: Pieces, values: Doubles) -> None:
        """The unit is a power of two, which may be too large for short floats."""
        out.floats(values * self.unit, self.precision.single and self.unit == 1.0)


@dataclass(frozen=True, eq=False)
class Encoder:
    """The witnesses of a batch, ready to be written one by one: what they hold, as arrays."""

    witness: Witness
    sweep: Sweep

    @cached_property
    def _kinks(self) -> list[Bools]:
        """Who is a kink, group by group."""
        return [_mask(len(kinks.passing), kinks.index) for kinks in self.sweep.kinks]

    @cached_property
    def _slopes(self) -> list[Doubles]:
        parts = zip(self.witness.groups, self.sweep.kinks, strict=True)
        return [_array(part.slope * kinks.ambiguous) for part, kinks in parts]

    @cached_property
    def _ambiguous(self) -> list[Bools]:
        return [kinks.ambiguous.cpu().numpy() for kinks in self.sweep.kinks]

    @cached_property
    def _deltas(self) -> list[Doubles | None]:
        return [None if part.delta is None else _array(part.delta) for part in self.witness.groups]

    def encoded(self, place: Place, precision: Precision, unit: float = 1.0) -> list[Piece]:
        """The witness of one region, for an objective that is `unit` times as large.

        Require: it was rounded in that way.
        """
        sections, count, wording = Pieces(), 0, Wording(precision, unit)
        for k in range(len(self.sweep.kinks), 0, -1):
            found = self._section(k, place, wording)
            if found is not None:
                sections.add(found)
                count += 1
        return Pieces().numbers(1, count).add(sections.done()).done()

    def _section(self, k: int, place: Place, wording: Wording) -> list[Piece] | None:
        """What is said about group k; None if that is nothing."""
        flags, out = 0, Pieces()
        slopes, deltas = _at(self._slopes[k - 1], place), self._deltas[k - 1]
        if _at(self._ambiguous[k - 1], place).any():  # slopes that are zero must be said, too
            flags |= SLOPES
            wording.shares(out.members(self._kinks[k - 1], keep=True), slopes)
        if deltas is not None and _at(deltas, place).any():
            flags |= DELTAS
            self._sparse(out, k, _at(deltas, place), wording)
        cuts = [found for part in self.witness.groups[k - 1].cuts if (found := self._cut(k, part, place, wording))]
        if cuts:
            flags |= CUTS
            out.numbers(len(cuts))
            for cut in cuts:
                out.add(cut)
        return Pieces().numbers(k, flags).add(out.done()).done() if flags else None

    def _sparse(self, out: Pieces, k: int, values: Doubles, wording: Wording) -> None:
        """The values at those kinks where they are not zero, and where that is."""
        out.members(self._some(k, values != 0))
        wording.numbers(out, values[values != 0])

    def _some(self, k: int, which: Bools) -> Bools:
        """Some of the kinks of a group as a set of its neurons."""
        found = np.zeros_like(self._kinks[k - 1])
        found[np.flatnonzero(self._kinks[k - 1])[which]] = True
        return found

    def _cut(self, k: int, part: CutPart, place: Place, wording: Wording) -> list[Piece] | None:
        """One cut at those kinks that use it; None if none does."""
        values = _at(_array(part.share if part.shift is None else part.shift), place)
        used = values != 0
        if not used.any():
            return None
        order = [source for source, _ in self.sweep.net.layers[k - 1].terms]
        form, masks = MASKS[type(part.cut)](part.cut, place, used, order)
        if form != ROWS and any(has_sum(term) for _, term in self.sweep.net.layers[k - 1].terms):
            form, masks = ROWS, self._row_by_row(k, used, masks[0], ~masks[0] if form == BALANCED else masks[1])
        out = Pieces().numbers(form)
        if form != ROWS:
            for mask in masks:
                out.members(mask, keep=True)
        out.members(self._some(k, used))
        if form == ROWS:
            for mask in masks:
                out.raw(np.packbits(mask, bitorder="little").tobytes())
        if part.shift is None:
            wording.shares(out.numbers(SHARE), values[used])
        else:
            wording.numbers(out.numbers(SHIFT), values[used])
        return out.done()

    def _row_by_row(self, k: int, used: Bools, positive: Bools, negative: Bools) -> list[Bools]:
        """A mask of inputs as one of the weights of each neuron: whoever checks it need not know the signs of a sum."""
        layer, neurons = self.sweep.net.layers[k - 1], self.sweep.kinks[k - 1].index.cpu()[torch.from_numpy(used)]
        units = torch.zeros(len(neurons), layer.size, dtype=torch.float64, device=layer.bias.device)
        units[torch.arange(len(neurons)), neurons] = 1.0
        rows = np.concatenate([_array(term.transpose(units)) for _, term in sorted(layer.terms, key=_source)], axis=1)
        return list(((rows > 0) & positive) | ((rows < 0) & negative))


def has_sum(term: LinearMap) -> bool:
    """Whether a map adds others up: their entries may cancel."""
    parts: Sequence[LinearMap] = getattr(term, "maps", ())
    return isinstance(term, Sum) or any(has_sum(part) for part in parts)


def _source(term: tuple[int, LinearMap]) -> int:
    return term[0]


def _array(values: Float[Tensor, "*axes"]) -> Doubles:
    found: Doubles = values.detach().cpu().numpy()
    return found


def _at(values: Any, place: Place) -> Any:
    """The entry of a region and an objective, where either axis may have the size 1."""
    return values[place[0] if len(values) > 1 else 0][place[1] if values.shape[1] > 1 else 0]


def _mask(n: int, index: Tensor) -> Bools:
    found = np.zeros(n, dtype=bool)
    found[index.cpu().numpy()] = True
    return found


# ---------------------------------------------------------------- masks: which weights a cut keeps

Masks = tuple[int, list[Bools]]


def _balanced(cut: BalancedCut, place: Place, used: Bools, order: Sequence[int]) -> Masks:
    return BALANCED, [_ascending([_at(_array(sign), place) > 0 for sign in cut.signs], order)]


def _shared(cut: SharedCut, place: Place, used: Bools, order: Sequence[int]) -> Masks:
    halves = [np.split(_at(_array(kept), place) > 0, 2) for kept in cut.kept]
    return SHARED, [_ascending([half[side] for half in halves], order) for side in (0, 1)]


def _rows(cut: RowMaskCut, place: Place, used: Bools, order: Sequence[int]) -> Masks:
    geometry = cut.geometry
    kept = _at(cut.mask.cpu().numpy(), place) & (geometry.weights != 0).cpu().numpy()
    columns, ends = geometry.columns.cpu().numpy(), np.cumsum(geometry.sizes)[:-1]
    masks = []
    for neuron in np.flatnonzero(used):
        whole = np.zeros(sum(geometry.sizes), dtype=bool)
        whole[columns[neuron][kept[neuron]]] = True
        masks.append(_ascending(np.split(whole, ends), order))
    return ROWS, masks


MASKS: dict[type, Callable[[Any, Place, Bools, Sequence[int]], Masks]] = {
    BalancedCut: _balanced,
    SharedCut: _shared,
    RowMaskCut: _rows,
}
"""How each kind of cut says which weights it keeps: the form, and one mask, two, or one per neuron that uses it."""


def _ascending(parts: Sequence[Bools], order: Sequence[int]) -> Bools:
    """The parts of all sources as one mask, sources in ascending order."""
    return np.concatenate([part for _, part in sorted(zip(order, parts, strict=True), key=lambda pair: pair[0])])
