"""Better bounds of hidden neurons for searches that turn out to be long."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from verifier.bounding.core.ascent import Ascent
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.hidden import Ends, GroupBounds, Known, Sharpened, all_ambiguous, laborious
from verifier.bounding.rations import Rations
from verifier.bounding.relaxation.relu import chord
from verifier.bounding.solvers.propagated import Propagated
from verifier.network.network import Network
from verifier.processes import Forked
from verifier.search.domains import Progress
from verifier.search.hidden_trees import HiddenTrees
from verifier.search.journal import Improved, Journal, Note
from verifier.search.loop import BranchAndBound, Search
from verifier.search.saved import SavedSharpening, SavedTree
from verifier.search.signs.losses import losses
from verifier.search.signs.space import SignDomains, SignSpace
from verifier.shapes import Float, Tensor

SOON = 0.5
"""Seconds of search after which another core begins with it: one search in many then ends before it is used."""

BESIDE = 0.8
"""The part of the time that is left which a stage on a core of its own may take: the search must have some of it."""

DEAR, LONGER = 0.8, 3.0
"""Seconds for the whole boxes; where they take longer, a search that need not wait splits three times as long."""

HALF = 0.5
"""Where less of a tree is left, splits do their work."""

LEAST = 1.0
"""Seconds of search between two stages, at least."""

LIFT = 0.01
"""The part of the worst bound of a whole box that a stage has to lift, too."""

TRIAL = 4
"""Leaves of the first trees, which tell whether trees are any good in a network."""

WORTH = 0.1
"""The part of what faces lose at the neurons of some group that a stage has to save, if another one is to follow."""


@dataclass(frozen=True)
class Trees:
    """The stages after the first one: a tree for each side of a neuron, with so many leaves in each stage."""

    solver: Propagated
    ascent: Ascent
    leaves: tuple[int, ...] = ()

    def stage(self, known: Region, number: int) -> GroupBounds:
        """The first trees are tried out with few leaves; later ones, which must gain on those before, with all."""
        leaves = self.leaves[number]
        trial = TRIAL if number == 0 and leaves > TRIAL else None
        return HiddenTrees(Known(known), self.solver.learning(), self.ascent, leaves, trial)


@dataclass(frozen=True)
class Sharpening:
    """How long searches get better bounds of hidden neurons, with which they then go on; in stages, each dearer.

    The first stage is the `bounder`, `trees` are those that follow as long as they pay.  On a single core: the first
    one not before `after` seconds of search, nor before the search has taken as long as it took to bound the whole
    boxes, for where these are dear, so are all neurons; each other one after half the time that the one before took;
    where half of the tree is closed at that moment, only after twice the time, and where `little` is left, after four
    times.  The first stage has at most `share` of the time that is left, the first one of trees `tree_share`, the next
    one twice as much and so on up to `share`, and none has more than `most` seconds.  With more cores a second one does
    it while the search goes on, and may take twice the share, but never all that is left.
    """

    bounder: Bounder
    after: float = 0.5
    share: float = 0.6
    tree_share: float = 0.25
    most: float = 120.0
    little: float = 0.1
    trees: Trees | None = None

    def at_once(self) -> Sharpening:
        """The same without waiting: curves in deep networks gain more by bounds of hidden neurons than by splits.

        Only where whole boxes are dear (attention, with products of many terms) splits come first.
        """
        return replace(self, after=0.0)

    @property
    def stages(self) -> int:
        return 1 + (0 if self.trees is None else len(self.trees.leaves))

    def share_of(self, stage: int) -> float:
        """The part of the time that is left which a stage may take; later ones of trees only come where trees pay."""
        return min(self.share, stage * self.tree_share) if stage else self.share

    def patience(self, left: float) -> float:
        """How many times longer to wait, if that part of the tree is left."""
        if left >= HALF:
            return 1.0
        return 2.0 if left >= self.little else 4.0


@dataclass(frozen=True, eq=False)
class Blunt:
    """What is to be sharpened: boxes of a property, by their numbers, with the bounds that a search begins with."""

    net: Network
    known: dict[int, Region]
    journal: Journal = field(default_factory=Journal)
    losses: dict[int, Sequence[Float[Tensor, " _"]]] = field(default_factory=dict)  # at each neuron of every group

    def sharp(self, options: Sharpening, stage: int, until: Until) -> list[Region]:
        """The boxes with bounds that are nowhere looser; the journal hears of those of the first stage.

        Of curves and products only those are bounded again whose sweeps are short: the time is better spent on ReLUs.
        """
        return [
            self._bounds(options, stage, box).completed(
                self.net, Region(region.lower, region.upper, ball=region.ball), until
            )
            for box, region in self.known.items()
        ]

    def _bounds(self, options: Sharpening, stage: int, box: int) -> GroupBounds:
        known = self.known[box]
        if stage and options.trees is not None:
            return options.trees.stage(known, stage - 1)
        return Sharpened(
            Known(known), options.bounder.learning(), partial(self._tell, box), laborious(self.net), self._rations(box)
        )

    def _rations(self, box: int) -> Rations | None:
        """Who gets better bounds where time does not suffice for all, once it is known what is lost at each."""
        if box not in self.losses:
            return None
        return Rations(self.net, self.losses[box], all_ambiguous(self.net, self.known[box], laborious(self.net)))

    def knowing(self, regions: Sequence[Region]) -> Blunt:
        """The same boxes with the bounds that were found."""
        return replace(self, known=dict(zip(self.known, regions, strict=True)))

    def saved(self, regions: Sequence[Region]) -> float:
        """The largest part of what the faces of a group lose that other bounds of the boxes save."""
        found = [0.0]
        for known, now in zip(self.known.values(), regions, strict=True):
            for k in range(known.known):
                before, after = (float(chord(*_bent(region, k))[1].sum()) for region in (known, now))
                found.append(1.0 - after / before if before > 0 else 0.0)
        return max(found)

    def _tell(self, box: int, known: Ends, rows: Objective, found: Bound) -> None:
        self.journal.hear(Improved(box, known, rows, found))


def _bent(region: Region, k: int) -> tuple[Float[Tensor, " a"], Float[Tensor, " a"]]:
    """The bounds of the ambiguous neurons of group k, counted from 0."""
    low, high = region.l_hat[k], region.u_hat[k]
    bent = (low < 0) & (high > 0)
    return low[bent], high[bent]


class Sharpener:
    """Decides when bounds are to be sharpened in one search, and does it, stage by stage."""

    def __init__(self, options: Sharpening, blunt: Blunt, until: Until, cores: int = 1) -> None:
        self._options, self._blunt, self._until, self._cores = options, blunt, until, cores
        self._began: float | None = None
        self._stage, self._wait = 0, options.after
        self._beside: Forked[tuple[list[Region], list[Note]]] | None = None

    def close(self) -> None:
        """Nobody needs the bounds any more."""
        if self._beside is not None:
            self._beside.end()

    @property
    def over(self) -> bool:
        """Whether no stage is left."""
        return self._stage >= self._options.stages

    def saved(self, tree: SavedTree) -> SavedSharpening:
        """A tree with the bounds that are known here; a stage that has begun begins anew."""
        return SavedSharpening(tree, self._stage, self._wait)

    def go_on(self, saved: SavedSharpening) -> None:
        """The stages of another run are done.  Require: this one is given the bounds that they have found."""
        self._stage, self._wait = saved.stage, saved.wait

    def ready(self, progress: Progress) -> bool:
        """Whether the search should now ask for bounds; time counts from the first call, or from the stage before."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        elapsed = now - self._began
        if self._cores == 1:
            return self._patient(elapsed, progress)
        if self._beside is None and elapsed >= min(SOON, self._wait):
            self._beside = Forked(lambda send: self._abroad(min(BESIDE, 2 * self._share)))
        return self._beside is not None and self._beside.now() is not None

    @property
    def _share(self) -> float:
        """The part of the time that is left which the next stage may take."""
        return self._options.share_of(self._stage)

    def _patient(self, elapsed: float, progress: Progress) -> bool:
        return elapsed >= self._wait * self._options.patience(progress.left)

    def told(self, losses: Sequence[Sequence[Float[Tensor, " _"]]], seconds: float = 0.0) -> None:
        """What the search loses at each neuron of every group, box by box, and how long it took to find out."""
        if self._stage == 0 and self._wait:
            self._wait = max(self._wait, seconds)
        elif self._stage == 0 and seconds > DEAR:
            self._wait = LONGER * seconds
        self._blunt = replace(self._blunt, losses=dict(zip(self._blunt.known, losses, strict=True)))

    def regions(self) -> list[Region]:
        """The boxes with bounds that are nowhere looser.  Require: `ready`."""
        begun = time.monotonic()
        found = self._sharp(self._share) if self._beside is None else self._fetched(self._beside)
        pays = self._blunt.saved(found) >= WORTH
        self._blunt, self._beside = self._blunt.knowing(found), None
        self._stage = self._stage + 1 if pays else self._options.stages
        self._began = time.monotonic()
        self._wait = max(LEAST, (self._began - begun) / 2)
        return found

    def _fetched(self, beside: Forked[tuple[list[Region], list[Note]]]) -> list[Region]:
        found, notes = beside.wait()
        self._blunt.journal.receive(notes)
        return found

    def _abroad(self, share: float) -> tuple[list[Region], list[Note]]:
        """What a fork does: its notes are worth something only to a search that goes on with its bounds."""
        self._blunt.journal.go_abroad()
        return self._sharp(share), self._blunt.journal.sent()

    def _sharp(self, share: float) -> list[Region]:
        allowed = min(self._options.most, share * self._until.clock.remaining())
        return self._blunt.sharp(self._options, self._stage, Until(self._until.clock.within(allowed)))


class SharpenedSearch(Search):
    """A search that moves to sharper bounds of hidden neurons if it turns out to be long, in several stages.

    `sharper` makes the tree that then goes on with the domains of the one before, which is no longer needed; `shared`
    the search that takes over when no stage is left.
    """

    def __init__(
        self,
        first: BranchAndBound[SignDomains],
        sharpener: Sharpener,
        sharper: Callable[[list[Region], BranchAndBound[SignDomains]], BranchAndBound[SignDomains]],
        shared: Callable[[BranchAndBound[SignDomains]], Search],
    ) -> None:
        self._tree, self._sharper, self._shared = first, sharper, shared
        self._now: Search = first
        self._sharpener: Sharpener | None = sharpener
        self._begun = first.begun
        if self._begun:
            self._tell_losses()
        self.progress = first.progress
        self.outcome = first.outcome

    def step(self) -> None:
        if self._begun and self._sharpener is not None and self._sharpener.ready(self.progress):
            before, self._tree = self._tree, self._sharper(self._sharpener.regions(), self._tree)
            self._now = self._tree
            if self._sharpener.over or not _lifted(before, self._tree):
                self._sharpener.close()
                self._sharpener = None
                self._now = self._shared(self._tree)
        else:
            began = time.monotonic()
            self._now.step()
            if not self._begun:
                self._tell_losses(time.monotonic() - began)
        self._begun = True
        self.progress, self.outcome = self._now.progress, self._now.outcome

    def _tell_losses(self, seconds: float = 0.0) -> None:
        """The whole boxes are bounded: now it is known where better bounds are worth most."""
        space = self._tree.space
        assert self._sharpener is not None
        assert isinstance(space, SignSpace)
        self._sharpener.told(losses(space.root, space.schedule.whole), seconds)

    def saved(self, room: int) -> SavedSharpening | SavedTree | None:
        if self._sharpener is None:
            saved = self._now.saved(room)
            assert saved is None or isinstance(saved, SavedTree)
            return saved
        tree = self._tree.saved(room)
        return None if tree is None else self._sharpener.saved(tree)

    def close(self) -> None:
        self._now.close()
        if self._sharpener is not None:
            self._sharpener.close()


def _lifted(before: BranchAndBound[SignDomains], after: BranchAndBound[SignDomains]) -> bool:
    """Whether the whole boxes of a tree have bounds that are worth another stage."""
    old, new = (tree.space.schedule.worst for tree in (before, after) if isinstance(tree.space, SignSpace))
    return not new - old < LIFT * abs(old)
