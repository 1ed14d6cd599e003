"""Branch and bound over boxes of the input.

Domains are boxes; a batch of them is cut, bounded, closed, clipped, and what is left waits for its turn.  A box
that cutting no longer helps is handed over to `finish`, which decides it in another way: by the signs of its few
ambiguous neurons, or by a linear program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from verifier.bounding.core.base import Until
from verifier.bounding.core.state import State, cat
from verifier.bounding.relaxation.zonotope import fits_single, symbols_of, symbols_within
from verifier.clock import Stopwatch
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.boxes.bounds import DOUBLE, SINGLE, BoxBounder, BoxBounds, Care, Effort
from verifier.search.boxes.boxes import BoxDomains, Table, divisible, moved_ends, moves, rounded_off, split
from verifier.search.boxes.candidates import Candidates
from verifier.search.boxes.contract import Contraction
from verifier.search.domains import Offer, Outcome, outweighed
from verifier.search.implied import all_force
from verifier.search.journal import Bounded, By, Clipped, Closed, Finishing, Journal, Place, Split
from verifier.search.space import Leaves, Recipe, Remaining, Space
from verifier.shapes import Bool, Float, Int, Tensor

Finish = Callable[[Tensor, Tensor, tuple[int, ...]], Outcome]
"""Decides clauses (numbers of the property) on one box, given by its ends [n0]."""

NAMES = {SINGLE: "boxes", DOUBLE: "boxes_float64"}

BATCH_WORK = 2e10
"""Multiplications of one batch, roughly: a large network gets fewer boxes at a time, so that deadlines are kept."""

ROUGH = 0.25
"""Where rounding in float32 may have cost more than this share of the missing bound, children get float64."""

SPARE = 16
"""Ambiguous neurons that a box may have besides twice as many as others."""

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
    care: Care = field(default_factory=Care)
    double: bool = False  # for networks that run in float64: points and zonotopes are never rounded to float32
    memory_bytes: int = 2**32  # of the zonotope of one box: what does not fit becomes intervals


def contraction_of(problem: Problem, options: InputOptions) -> Contraction | None:
    """How the rows of clauses contract boxes, where all clauses force signs and nobody has to follow how.

    Then a cut settles many other inputs at once, so there may be many, and every cut waits for what the last one did.
    """
    if options.care.followed or not all_force(problem):
        return None
    return Contraction.of(problem.network)


@dataclass(frozen=True, eq=False)
class BoundedBoxes:
    """Boxes with their bounds, chunk by chunk, and those for which time did not suffice."""

    chunks: list[tuple[BoxDomains, BoxBounds]]
    untouched: list[BoxDomains]
    number: Int[Tensor, " D"]


@dataclass(frozen=True, eq=False)
class RemainingBoxes(Remaining):
    """What is left of boxes, and a corner of each that may be unsafe."""

    boxes: BoxDomains
    corner: Float[Tensor, "L n0"]


@dataclass(frozen=True, eq=False)
class BoxRecipe(Recipe):
    """The clauses that are searched."""

    clauses: tuple[int, ...]


class InputSpace(Space[BoxDomains, BoxDomains, BoundedBoxes, RemainingBoxes]):
    """The clauses of a problem that are to be searched, by boxes of the input.

    requires:   a problem in float64, and the numbers of its clauses that are open
    guarantees: that of `Space`
    """

    def __init__(  # noqa: PLR0913 (the last three have defaults)
        self,
        problem: Problem,
        clauses: Sequence[int],
        offer: Offer,
        until: Until,
        finish: Finish | None = None,
        options: InputOptions | None = None,
        journal: Journal | None = None,
    ) -> None:
        net = problem.network
        self.journal = journal or Journal()
        self.bounding = Stopwatch()
        self.options = options or InputOptions()
        self._until, self._finish, self._net = until, finish, net
        self._clauses = tuple(clauses)
        self._table = Table.of(problem, clauses)
        self._widths = self._table.upper - self._table.lower
        single = net if self.options.double else net.to(dtype=torch.float32)
        self._first = DOUBLE if self.options.double or not fits_single(net) else SINGLE
        contraction = contraction_of(problem, self.options)
        self._least_children = self.options.least_children if contraction is None else 2
        symbols = symbols_within(net, symbols_of(net, 1, self.options.memory_bytes), self._table.inputs)
        effort, care = self.options.effort, self.options.care
        self._bounder = BoxBounder(net, single, self._table, effort, care, contraction, symbols)
        self._candidates = Candidates(single, self._table, offer, self.options.offers)
        self._symbols = self._table.inputs + net.neurons  # per box, in the last batch
        self._cutting, self._finishing = Stopwatch(), Stopwatch()
        self._whole = self._numbers(0, self._table.lower.device)  # of the root boxes

    @property
    def roots(self) -> int:
        return len(self._table.lower)

    @property
    def parents(self) -> int:
        each = 2.0 * self._net.parameters * self._symbols
        return max(1, min(self.options.batch, int(BATCH_WORK / each)))

    def whole(self) -> BoxDomains:
        table = self._table
        boxes, device = len(table.lower), table.lower.device

        def same(value: float, dtype: torch.dtype) -> Tensor:
            return torch.full((boxes,), value, dtype=dtype, device=device)

        whole = BoxDomains(
            number=same(-1, torch.long),
            clause=table.number.amax(dim=1),
            lower=same(-torch.inf, torch.float64),
            depth=same(0, torch.int32),
            tier=same(self._first, torch.int8),
            root=torch.arange(boxes, device=device),
            pending=table.number >= 0,
            low=table.lower,
            high=table.upper,
            gains=torch.zeros_like(table.lower, dtype=torch.float32),
            kinks=same(self._net.neurons, torch.int32),
            shrunk=same(False, torch.bool),
        )
        born = self._born(whole, whole.number, lambda: [[] for _ in range(boxes)])
        self._whole = born.number
        return born

    def split(self, parents: BoxDomains) -> BoxDomains:
        with self._cutting:
            parents = parents.to(self._table.lower.device)  # open boxes wait in main memory
            made = split(parents, min(self._least_children, self.parents))
            made = rounded_off(made.select(made.kinks.argsort()), self._table.ball)
            return self._born(made, made.number, lambda: moved_ends(parents, made))

    def _born(
        self, boxes: BoxDomains, parent: Int[Tensor, " D"], places: Callable[[], list[list[Place]]]
    ) -> BoxDomains:
        """The same with numbers of their own."""
        born = replace(boxes, number=self._numbers(len(boxes), boxes.low.device))
        self.journal.hear(Split(born.number, parent, born.clause, born, places))
        return born

    def bound(self, children: BoxDomains) -> BoundedBoxes:
        """Chunk by chunk; at least the first of them, however late it is."""
        chunks, found = self._chunks(children), list[tuple[BoxDomains, BoxBounds]]()
        with self._cutting, self.bounding:
            while chunks and not (found and self._until.expired()):
                chunk = chunks.pop(0)
                found.append((chunk, self._bounder.bound(chunk)))
                if chunks and int(chunk.depth[0]) == 0:
                    chunks = self._chunks(self._foreseen(cat(chunks), found[-1][1].kinks))
        return BoundedBoxes(found, chunks, children.number)

    @staticmethod
    def _foreseen(boxes: BoxDomains, kinks: Int[Tensor, " d"]) -> BoxDomains:
        """Whole boxes of which nothing is known will not have many more ambiguous neurons than those before them."""
        return replace(boxes, kinks=boxes.kinks.clamp(max=2 * int(kinks.max()) + SPARE))

    def certify(self, bounded: BoundedBoxes) -> RemainingBoxes:
        """Close and clip boxes; what time did not suffice for stays open as it is."""
        with self._cutting, self.bounding:
            parts = [self._judged(boxes, found) for boxes, found in bounded.chunks]
        left = cat([*(boxes for boxes, _ in parts), *bounded.untouched])
        corner = torch.cat([*(corner for _, corner in parts), *(boxes.low for boxes in bounded.untouched)])
        if len(left):
            self._symbols = self._table.inputs + int(left.kinks.float().mean())
        return RemainingBoxes(bounded.number, 0, left, corner)

    def attack(self, left: RemainingBoxes) -> Counterexample | None:
        with self._cutting:
            return self._candidates.tried(left.boxes, left.corner)

    def open(self, left: RemainingBoxes, leaves: Leaves) -> BoxDomains:
        return left.boxes if leaves.rows is None else left.boxes.select(~leaves.rows)

    def covering(self, domains: BoxDomains) -> Int[Tensor, " D"]:
        return self._whole[domains.root.to(self._whole.device)]

    def recipe(self) -> BoxRecipe:
        return BoxRecipe(self._clauses)

    def begin_again(self, kept: Sequence[State]) -> list[BoxDomains]:
        self._whole = self._numbers(len(self._table.lower), self._table.lower.device)
        return super().begin_again(kept)

    def _chunks(self, boxes: BoxDomains) -> list[BoxDomains]:
        """Parts of similar boxes whose zonotopes fit into the cache, judged by what their parents needed."""
        widest = max([self._net.n_in, *(group.size for group in self._net.groups)])
        symbols = boxes.kinks.long() + self._table.inputs
        budget = max(1, self.options.chunk_bytes // (4 * widest))
        # Boxes come sorted: cutting where the running sum passes a multiple of the budget keeps chunks below it.
        return [boxes.select(part) for part in _runs((symbols.cumsum(0) - symbols) // budget)]

    def _judged(self, boxes: BoxDomains, found: BoxBounds) -> tuple[BoxDomains, Float[Tensor, "D n0"]]:
        """The boxes that stay open, clipped, and a corner of each that may be unsafe."""
        pending = boxes.pending & ~found.closed
        if self._table.ball is not None:
            low, high, some = self._table.ball.contracted(found.low, found.high)
            found = replace(found, low=low, high=high, some=found.some & some)
        kept = torch.nonzero(pending.any(dim=1) & found.some).flatten()
        self._tell(boxes, found, pending, kept)
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
            gains=_gains(found.gains[kept], before, (low, high), self._widths[before.root]),
            kinks=found.kinks[kept].to(torch.int32),
            shrunk=_shrunk(before, low, high),
        )
        return left, found.corner[kept].clamp(low, high)

    def _tell(self, boxes: BoxDomains, found: BoxBounds, pending: Bool[Tensor, "D C"], kept: Int[Tensor, " d"]) -> None:
        """Which boxes the bounds close, of which clipping leaves nothing, and what it leaves of the others."""

        def evidence() -> tuple[BoxDomains, BoxBounds]:
            return boxes, found

        lower = torch.where(boxes.pending, found.lower, torch.inf).amin(dim=1)
        self.journal.hear(Bounded(boxes.number, lower, NAMES[int(boxes.tier[0])]))
        some = pending.any(dim=1)
        self.journal.hear(Closed(boxes.number[~some], By.BOUND, evidence))
        self.journal.hear(Closed(boxes.number[some & ~found.some], By.CLIPPED, evidence))
        sides = (boxes.low[kept], boxes.high[kept]), (found.low[kept], found.high[kept])
        self.journal.hear(Clipped(boxes.number[kept], *sides, evidence))

    def leaves(self, left: RemainingBoxes) -> Leaves:
        """Let `finish` decide boxes that cutting does not help; the others stay open.

        Those that can still be cut are handed over, deepest first, for as long as cutting has taken: neither way can
        lose more than half of the time to the other.
        """
        boxes = left.boxes
        decided = Leaves(torch.zeros(len(boxes), dtype=torch.bool, device=boxes.low.device))
        for place, must in self._stuck(boxes):
            if self._until.expired():
                return replace(decided, doubt=outweighed(decided.doubt, Reason.TIMEOUT))
            if not must and self._finishing.total >= self._cutting.total:
                break
            with self._finishing:
                decided = self._finished(boxes, place, decided)
            if decided.witness is not None:
                break
        return decided

    def _finished(self, boxes: BoxDomains, place: int, decided: Leaves) -> Leaves:
        """With one more box, decided by `finish` if that can do it."""
        assert decided.rows is not None
        decided.rows[place] = True
        number, reason, lower = boxes.number[place : place + 1], Reason.NUMERICS, float(boxes.lower[place])
        if self._finish is not None:
            self.journal.hear(Finishing(int(number)))
            clauses = self._table.number[boxes.root[place]][boxes.pending[place]]
            outcome = self._finish(boxes.low[place], boxes.high[place], tuple(clauses.tolist()))
            if outcome.witness is not None:
                return replace(decided, witness=outcome.witness)
            if outcome.reason is None:
                self.journal.hear(Closed(number, By.FINISHED, lambda: boxes.select(slice(place, place + 1))))
                return decided
            reason, lower = outcome.reason, max(lower, outcome.progress.lower)
        return self._doubtful(int(number), decided, reason, lower)

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


def _gains(
    gains: Tensor, before: BoxDomains, left: tuple[Tensor, Tensor], whole: Float[Tensor, "D n0"]
) -> Float[Tensor, "D n0"]:
    """The gains of cuts after clipping: in proportion to the width, and zero where no float lies between the ends.

    Where some are no numbers, because a function is not defined or too large, those of the widths themselves, in
    relation to that of the root.
    """
    (low, high), width = left, before.high - before.low
    gains = (gains * torch.where(width > 0, (high - low) / width, 0.0)).to(torch.float32)
    known = torch.isfinite(gains).all(dim=1, keepdim=True)
    gains = torch.where(known, gains, torch.where(whole > 0, (high - low) / whole, 0.0))
    least = torch.finfo(torch.float32).tiny
    return torch.where(moves(low, high), gains.nan_to_num().clamp(min=least), 0.0).to(torch.float32)


def _shrunk(before: BoxDomains, low: Tensor, high: Tensor) -> Bool[Tensor, " D"]:
    """Where clipping left so little of the volume that the box is worth another bound as it is."""
    width = before.high - before.low
    return torch.where(width > 0, (high - low) / width, 1.0).prod(dim=1) <= SHRUNK


def _runs(keys: Int[Tensor, " D"]) -> list[Int[Tensor, " _"]]:
    """The positions of equal keys, given in order."""
    counts = keys.unique_consecutive(return_counts=True)[1]
    return list(torch.arange(len(keys), device=keys.device).split(counts.tolist()))
