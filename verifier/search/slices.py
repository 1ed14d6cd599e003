"""Large networks in which few inputs move: thick boxes in slices, before their signs are searched.

Where one input accounts for much of what moves in a box, the box is halved across it, again and again, and affine forms
bound the halves: a pass through the network each.  What stays open of the thin slices gets sweeps for its hidden
neurons, and is then searched by signs, all slices in one tree.  A slice has about half of the ambiguous neurons of the
whole box, so that its sweeps are cheaper as well.

requires:   a large network, boxes in which few inputs move
guarantees: the slices of a box cover it; a clause of a slice is left out only if a rigorous bound closes it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from verifier.bounding.clauses import ClauseBounder, ClauseBounds
from verifier.bounding.core.base import Region, Until
from verifier.bounding.core.closing import closes
from verifier.bounding.forward import influences
from verifier.bounding.frugal import Frugal
from verifier.bounding.hidden import IN_TURN, GroupBounds, Workers
from verifier.property.problem import Problem
from verifier.search.boxes.boxes import middle
from verifier.search.domains import Counts, Outcome, Progress
from verifier.search.loop import Search
from verifier.search.saved import SavedSlices, SavedTree
from verifier.shapes import Float, Tensor

THICK = 0.3
"""The part of all that moves the first neurons from which on an input is worth a cut."""

MOST_CUTS = 4
"""How often a box is halved at most."""

FORMS, SWEEPS = "forms", "linear"
"""What bounds slices, as the statistics call it."""


@dataclass(frozen=True, eq=False)
class Slice:
    """A part of a box with its open clauses, a lower bound of the worst of them, and bounds of neurons if known."""

    lower: Float[Tensor, "1 n0"]
    upper: Float[Tensor, "1 n0"]
    clauses: tuple[int, ...]
    worst: float
    cuts: int = 0
    region: Region | None = None

    def halves(self, axis: int) -> tuple[Slice, Slice]:
        """The two sides of a cut in the middle, which both contain it."""
        at = middle(self.lower, self.upper)[:, axis]
        first, second = self.upper.clone(), self.lower.clone()
        first[:, axis], second[:, axis] = at, at
        cuts = self.cuts + 1
        return replace(self, upper=first, cuts=cuts), replace(self, lower=second, cuts=cuts)


@dataclass(frozen=True, eq=False)
class Slicing:
    """How slices are cut and bounded."""

    problem: Problem
    hidden: Frugal
    until: Until
    workers: Workers = IN_TURN

    def cut(self, slice_: Slice) -> tuple[Slice, Slice] | None:
        """Its halves; None if no input is worth a cut."""
        moving, shares = influences(self.problem.network, (slice_.lower, slice_.upper))
        if slice_.cuts >= MOST_CUTS or not len(moving) or float(shares.max()) < THICK:
            return None
        axis = int(moving[int(shares.argmax())])
        first, second = slice_.halves(axis)
        return (first, second) if float(slice_.lower[0, axis]) < float(first.upper[0, axis]) else None

    def thin(self, slice_: Slice) -> list[Slice]:
        """The slices that it is cut to; itself if no input is worth a cut."""
        halves = self.cut(slice_)
        return [slice_] if halves is None else [part for half in halves for part in self.thin(half)]

    def by_forms(self, slice_: Slice) -> Slice | None:
        """What affine forms leave open of it."""
        return self._left(slice_, self.hidden.unswept())

    def by_sweeps(self, slice_: Slice) -> Slice | None:
        """The same with sweeps for hidden neurons."""
        return self._left(slice_, self.hidden)

    def _left(self, slice_: Slice, hidden: GroupBounds) -> Slice | None:
        part = replace(self.problem, lower=slice_.lower, upper=slice_.upper, clauses_of=(slice_.clauses,))
        found: ClauseBounds = ClauseBounder(hidden).bound(part, self.until, workers=self.workers)
        own = {k: float(found.lower[k]) for k in slice_.clauses}
        left = tuple(k for k in slice_.clauses if not bool(closes(found.lower[k])))
        if not left:
            return None
        worst = max(slice_.worst, min(own[k] for k in left))
        return replace(slice_, clauses=left, worst=worst, region=found.regions.get(0, slice_.region))


class SlicedSearch(Search):
    """Cuts, bounds and sweeps slices, one of them in each step; then it is the search that is made of what is left."""

    def __init__(self, slicing: Slicing, slices: Sequence[Slice], make: Callable[[Sequence[Slice]], Search]) -> None:
        self._slicing, self._make = slicing, make
        self._parts = self._prepared(list(slices))
        self._search: Search | None = None
        self._before = Progress(open=len(slices), lower=min((s.worst for s in slices), default=0.0), left=1.0)
        self.progress, self.outcome = self._before, None

    def step(self) -> None:
        if self._search is None:
            left = next(self._parts)
            if left is None:
                return
            if not left:
                self.outcome = Outcome(None, None, self.progress)
                return
            self._search = self._make(left)
            self._before = replace(self.progress, lower=float("inf"))
        self._search.step()
        self.progress = self._before + self._search.progress
        if self._search.outcome is not None:
            self.outcome = replace(self._search.outcome, progress=self.progress)

    def _prepared(self, waiting: list[Slice]) -> Iterator[list[Slice] | None]:
        """None again and again, and in the end the slices that are left.

        Forms bound a slice first, unless they did not close the one before: slices of a box are much alike.
        """
        thin = [part for whole in waiting for part in self._slicing.thin(whole)]
        left, forms = list[Slice](), True
        for number, part in enumerate(thin, start=1):
            now = self._slicing.by_forms(part) if forms else part
            if forms:
                self._note(FORMS, [*left, *([] if now is None else [now]), *thin[number:]])
                yield None
            forms = now is None
            now = None if now is None else self._slicing.by_sweeps(now)
            left += [] if now is None else [now]
            self._note(SWEEPS, [*left, *thin[number:]], int(not forms))
            yield None
        yield left

    def _note(self, tier: str, left: Sequence[Slice], bounded: int = 1) -> None:
        """So many more slices were bounded; `left` are those that are not closed."""
        counts = self.progress.counts + Counts(tiers={tier: bounded}, batches=bounded)
        share = sum(2.0**-s.cuts for s in left)
        worst = min((s.worst for s in left), default=float("inf"))
        self.progress = Progress(counts, len(left), max(self.progress.max_open, len(left)), worst, min(1.0, share))

    @classmethod
    def going_on(cls, slicing: Slicing, saved: SavedSlices, search: Search) -> SlicedSearch:
        """After all slices were bounded: `search` is that of what they left."""
        self = cls(slicing, (), lambda slices: search)
        self._search, self._before = search, saved.before
        self.progress = saved.before + search.progress
        return self

    def saved(self, room: int) -> SavedSlices | None:
        """Nothing before the tree has begun."""
        tree = None if self._search is None else self._search.saved(room)
        if tree is None:
            return None
        assert isinstance(tree, SavedTree)
        return SavedSlices(tree, self._before)

    def close(self) -> None:
        if self._search is not None:
            self._search.close()
