"""Branch and bound over boxes of the input.

Domains are boxes; a batch of them is cut, bounded, closed, clipped, and what is left goes back to the engine.  A box
that cutting no longer helps is handed over to `finish`, which decides it in another way: by the signs of its few
ambiguous neurons, or by a linear program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import torch

from verifier.bounding.core.base import Until
from verifier.bounding.relaxation.zonotope import fits_single
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.boxes.bounds import DOUBLE, SINGLE, BoxBounder, BoxBounds, Effort
from verifier.search.boxes.boxes import BoxDomains, divisible, middle, split
from verifier.search.boxes.candidates import Candidates
from verifier.search.boxes.table import Table
from verifier.search.domains import Counts, Offer, Outcome, Progress, Space, Step, cat, outweighed
from verifier.shapes import Bool, Float, Int, Tensor

Finish = Callable[[Tensor, Tensor, tuple[int, ...]], Outcome]
"""Decides clauses (numbers of the property) on one box, given by its ends [n0]."""

NAMES = {SINGLE: "boxes", DOUBLE: "boxes_float64"}

BATCH_WORK = 2e10
"""Multiplications of one batch, roughly: a large network gets fewer boxes at a time, so that deadlines are kept."""

ROUGH = 0.25
"""Where rounding in float32 may have cost more than this share of the missing bound, children get float64."""

SHRUNK = 0.5
"""Where clipping left no more than this share of a box, it is bounded again before it is cut."""


@dataclass(frozen=True)
class InputOptions:
    """How boxes are searched."""

    batch: int = 2048  # boxes that are cut at a time
    least_children: int = 32  # fewer are not worth a batch: boxes are cut several times
    effort: Effort = field(default_factory=Effort)
    few_kinks: int = 12  # a box with no more ambiguous neurons may be finished in another way
    patience: int = 30  # cuts that it must have seen before that
    chunk_bytes: int = 4 * 2**20  # of one tensor of the zonotope: what a cache holds
    offers: int = 8  # points per batch that the falsifier may get


class InputSpace(Space[BoxDomains]):
    """The clauses of a problem that are to be searched, by boxes of the input.

    requires:   a problem in float64, and the numbers of its clauses that are open
    guarantees: that of `Space`
    """

    def __init__(
        self,
        problem: Problem,
        clauses: Sequence[int],
        offer: Offer,
        until: Until,
        finish: Finish | None = None,
        options: InputOptions | None = None,
    ) -> None:
        net = problem.network
        self.options = options or InputOptions()
        self._until, self._finish, self._net = until, finish, net
        self._table = Table.of(problem, clauses)
        single = net.to(dtype=torch.float32)
        self._first = SINGLE if fits_single(net) else DOUBLE
        self._bounder = BoxBounder(net, single, self._table, self.options.effort)
        self._candidates = Candidates(single, self._table, offer, self.options.offers)
        self._made = 0
        self._symbols = net.n_in + net.relus  # per box, in the last batch
        self._cutting, self._finishing = 0.0, 0.0  # seconds spent on each

    @property
    def parents(self) -> int:
        each = 2.0 * self._net.parameters * self._symbols
        return max(1, min(self.options.batch, int(BATCH_WORK / each)))

    def begin(self) -> Step[BoxDomains]:
        table = self._table
        boxes, device = len(table.lower), table.lower.device

        def same(value: float, dtype: torch.dtype) -> Tensor:
            return torch.full((boxes,), value, dtype=dtype, device=device)

        return self._bounded(
            BoxDomains(
                number=same(0, torch.long),
                clause=table.number.amax(dim=1),
                lower=same(-torch.inf, torch.float64),
                depth=same(0, torch.int32),
                tier=same(self._first, torch.int8),
                root=torch.arange(boxes, device=device),
                pending=table.number >= 0,
                low=table.lower,
                high=table.upper,
                gains=torch.zeros_like(table.lower, dtype=torch.float32),
                kinks=same(self._net.relus, torch.int32),
                shrunk=same(False, torch.bool),
            )
        )

    def expand(self, parents: BoxDomains) -> Step[BoxDomains]:
        return self._bounded(split(parents, min(self.options.least_children, self.parents)))

    def _bounded(self, boxes: BoxDomains) -> Step[BoxDomains]:
        """Bound boxes, chunk by chunk, and keep what is open; what time does not suffice for stays open as it is."""
        begun = perf_counter()
        boxes = self._numbered(boxes.select(boxes.kinks.argsort()))
        before = perf_counter()
        parts = [self._part(place, part) for place, part in enumerate(self._chunks(boxes))]
        seconds, bounded = perf_counter() - before, sum(count for _, _, count in parts)
        found = cat([left for left, _, _ in parts])
        witness = self._candidates.tried(found, torch.cat([corner for _, corner, _ in parts]))
        self._cutting += perf_counter() - begun
        counts = Counts({NAMES[int(boxes.tier[0])]: bounded}, batches=1, seconds=seconds)
        if witness is not None:
            return Step(found, counts, witness)
        if len(found):
            self._symbols = self._net.n_in + int(found.kinks.float().mean())
        return self._handed_over(found, counts)

    def _part(self, place: int, part: BoxDomains) -> tuple[BoxDomains, Float[Tensor, "D n0"], int]:
        """What stays open of a chunk, a corner of each box, and how many were bounded."""
        if place and self._until.expired():
            return part, part.low, 0
        return *self._judged(part, self._bounder.bound(part)), len(part)

    def _numbered(self, boxes: BoxDomains) -> BoxDomains:
        first, self._made = self._made, self._made + len(boxes)
        return replace(boxes, number=torch.arange(first, self._made, device=boxes.low.device))

    def _chunks(self, boxes: BoxDomains) -> list[BoxDomains]:
        """Parts of similar boxes whose zonotopes fit into the cache, judged by what their parents needed."""
        widest = max([self._net.n_in, *(group.size for group in self._net.groups)])
        symbols = boxes.kinks.long() + self._net.n_in
        budget = max(1, self.options.chunk_bytes // (4 * widest))
        # Boxes come sorted: cutting where the running sum passes a multiple of the budget keeps chunks below it.
        return [boxes.select(part) for part in _runs((symbols.cumsum(0) - symbols) // budget)]

    def _judged(self, boxes: BoxDomains, found: BoxBounds) -> tuple[BoxDomains, Float[Tensor, "D n0"]]:
        """The boxes that stay open, clipped, and a corner of each that may be unsafe."""
        pending = boxes.pending & ~found.closed
        kept = torch.nonzero(pending.any(dim=1) & found.some).flatten()
        before, low, high, pending = boxes.select(kept), found.low[kept], found.high[kept], pending[kept]
        lower, worst = torch.where(pending, found.lower[kept], torch.inf).min(dim=1)
        sure = torch.isfinite(lower) & (found.doubt[kept] <= ROUGH * lower.abs())
        rough = (before.tier == DOUBLE) | ~sure
        left = replace(
            before,
            clause=self._table.number[before.root, worst],
            lower=lower,
            tier=torch.where(rough, DOUBLE, SINGLE).to(torch.int8),
            pending=pending,
            low=low,
            high=high,
            gains=_gains(found.gains[kept], before, low, high),
            kinks=found.kinks[kept].to(torch.int32),
            shrunk=_shrunk(before, low, high),
        )
        return left, found.corner[kept].clamp(low, high)

    def _handed_over(self, left: BoxDomains, counts: Counts) -> Step[BoxDomains]:
        """Let `finish` decide boxes that cutting does not help; the others stay open.

        Those that can still be cut are handed over, deepest first, for as long as cutting has taken: neither way can
        lose more than half of the time to the other.
        """
        doubt: Reason | None = None
        undecided = float("inf")
        stays = torch.ones(len(left), dtype=torch.bool, device=left.low.device)
        for place, must in self._stuck(left):
            if self._until.expired():
                doubt = outweighed(doubt, Reason.TIMEOUT)
                break
            if not must and self._finishing >= self._cutting:
                break
            begun = perf_counter()
            outcome = self._decided(left, place)
            self._finishing += perf_counter() - begun
            counts, stays[place] = counts + outcome.progress.counts, False
            if outcome.witness is not None:
                return Step(left.select(stays), counts, outcome.witness)
            if outcome.reason is not None:
                doubt, undecided = outweighed(doubt, outcome.reason), min(undecided, float(left.lower[place]))
        return Step(left.select(stays), counts, None, doubt, undecided)

    def _stuck(self, left: BoxDomains) -> list[tuple[int, bool]]:
        """Boxes for `finish`, the most urgent first, and whether there is no other way."""
        whole = ~divisible(left)
        may = whole
        if self._finish is not None:
            may = whole | ((left.kinks <= self.options.few_kinks) & (left.depth >= self.options.patience))
        places = torch.nonzero(may).flatten()
        urgency = left.depth[places] + torch.where(whole[places], 2**20, 0)
        places = places[urgency.argsort(descending=True)]
        return list(zip(places.tolist(), whole[places].tolist(), strict=True))

    def _decided(self, left: BoxDomains, place: int) -> Outcome:
        if self._finish is None:
            return Outcome(None, Reason.NUMERICS, Progress())
        numbers = self._table.number[left.root[place]][left.pending[place]]
        return self._finish(left.low[place], left.high[place], tuple(numbers.tolist()))


def _gains(gains: Tensor, before: BoxDomains, low: Tensor, high: Tensor) -> Float[Tensor, "D n0"]:
    """The gains of cuts after clipping: in proportion to the width, and zero where no float lies between the ends."""
    width, cut = before.high - before.low, middle(low, high)
    gains = gains * torch.where(width > 0, (high - low) / width, 0.0)
    least = torch.finfo(torch.float32).tiny
    return torch.where((low < cut) & (cut < high), gains.nan_to_num().clamp(min=least), 0.0).to(torch.float32)


def _shrunk(before: BoxDomains, low: Tensor, high: Tensor) -> Bool[Tensor, " D"]:
    """Where clipping left so little of the volume that the box is worth another bound as it is."""
    width = before.high - before.low
    return torch.where(width > 0, (high - low) / width, 1.0).prod(dim=1) <= SHRUNK


def _runs(keys: Int[Tensor, " D"]) -> list[Int[Tensor, " _"]]:
    """The positions of equal keys, given in order."""
    counts = keys.unique_consecutive(return_counts=True)[1]
    return list(torch.arange(len(keys), device=keys.device).split(counts.tolist()))
