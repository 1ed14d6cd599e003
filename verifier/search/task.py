"""A search at work on one problem: how the trees of its boxes are made, and those of an earlier run made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from verifier.bounding.clauses import ClauseBounds, inputs_of
from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.base import Region, Until
from verifier.bounding.frugal import Frugal, is_large
from verifier.errors import InputError
from verifier.processes import Forks
from verifier.property.problem import Problem
from verifier.search.boxes.space import BoxRecipe, InputSpace
from verifier.search.domains import DomainsT, Offer, Outcome
from verifier.search.groups import Group, OneAfterAnother
from verifier.search.integer import ClausePrograms, IntegerSearch
from verifier.search.journal import Journal
from verifier.search.loop import BranchAndBound, Limits, Search, run
from verifier.search.parallel import Cores, SharedSearch
from verifier.search.prepared import Prepared
from verifier.search.race import Race
from verifier.search.saved import (
    Members,
    Saved,
    SavedGroups,
    SavedRace,
    SavedSharpening,
    SavedSlices,
    SavedTree,
)
from verifier.search.sharpen import Blunt, SharpenedSearch, Sharpener
from verifier.search.signs.root import Root
from verifier.search.signs.space import Policy, SignDomains, SignRecipe, SignSpace
from verifier.search.slices import Slice, SlicedSearch, Slicing
from verifier.search.space import Recipe, Space
from verifier.shapes import Float, Tensor

if TYPE_CHECKING:
    from verifier.search.problem import ProblemSearch

DOMAIN = 8 * 48
"""Bytes for each neuron of a domain while it is bounded: numbers in float64, and how many of them there are."""


@dataclass(frozen=True, eq=False)
class SearchTask:
    """A search at work on one problem."""

    options: ProblemSearch
    problem: Problem
    found: ClauseBounds
    until: Until
    offer: Offer

    def going_on(self, waiting: list[Members], saved: Saved) -> Search:
        """The search that another run has saved, of the same boxes."""
        match saved:
            case SavedGroups(groups=groups, now=now):
                makers = [self.group(list(some), now if k == 0 else None) for k, some in enumerate(groups)]
                return OneAfterAnother(makers, self.options.limits, self.until, saved)
            case SavedRace(runners=(first, second)):
                by_boxes = partial(self.boxes, waiting, saved=first.search)
                return Race([by_boxes, partial(self.bounded_signs, waiting, saved=second.search)], saved)
            case SavedSlices(tree=tree):
                return self.sliced(waiting, saved) if tree.boxes is not None else self.sliced(waiting)
        return self.boxes(waiting, saved)

    def group(self, boxes: list[Members], saved: Saved | None = None) -> Group:
        """Boxes whose signs are searched, from where another run was."""
        return Group(self.worst(boxes), partial(self.signs, boxes, saved=saved), tuple(boxes))

    def signs(self, boxes: list[Members], limits: Limits, saved: Saved | None = None) -> Search:
        """By the signs of ReLUs; a long search gets sharper bounds of hidden neurons and goes on with them."""
        options = self.options
        policy, sharpening = options.policy, options.sharpening
        if sharpening is not None and not self.problem.network.piecewise_linear:
            sharpening = sharpening.at_once()
        tree = saved.tree if isinstance(saved, SavedSharpening) else saved
        assert tree is None or isinstance(tree, SavedTree)
        regions = self._regions(boxes, tree)
        journal = Journal(above=options.journal)
        each = self._each(limits)
        if sharpening is None or isinstance(saved, SavedTree):  # no stage was left
            return self._by_all(limits, self._tree(self._signs(boxes, regions, policy, journal), each, tree))
        lowest = replace(policy, ladder=policy.ladder.lowest())
        now = policy if isinstance(saved, SavedSharpening) and saved.stage else lowest
        first = self._tree(self._signs(boxes, regions, now, journal), each, tree)

        def sharper(regions: list[Region], before: BranchAndBound[SignDomains]) -> BranchAndBound[SignDomains]:
            nonlocal policy
            assert isinstance(before.space, SignSpace)
            policy = replace(policy, ladder=policy.ladder.after(before.space.schedule.looked))
            tree = BranchAndBound(self._signs(boxes, regions, policy, journal), each)
            tree.adopt(before)
            return tree

        known = {box: region for (box, _), region in zip(boxes, regions, strict=True)}
        blunt = Blunt(self.problem.network, known, journal)
        sharpener = Sharpener(sharpening, blunt, self.until, options.cores)
        if isinstance(saved, SavedSharpening):
            sharpener.go_on(saved)
        return SharpenedSearch(first, sharpener, sharper, partial(self._by_all, limits))

    def bounded_signs(self, boxes: list[Members], saved: Saved | None = None) -> Search:
        """The same; in large networks without bounds of hidden neurons yet these come first, bit by bit."""
        options, net = self.options, self.problem.network
        if saved is not None:
            return self.signs(boxes, options.limits, saved)
        missing = [box for box, _ in boxes if box not in self.found.regions]
        if not missing or not isinstance(options.intermediate, Frugal) or not is_large(net, len(missing)):
            return self.signs(boxes, options.limits)
        at = torch.tensor(missing, device=self.problem.lower.device)
        parts = options.intermediate.steps(net, inputs_of(self.problem, at), self.until)

        def make(region: Region) -> Search:
            each = {box: region.select(torch.tensor([i], device=at.device)) for i, box in enumerate(missing)}
            known = replace(self.found, regions=self.found.regions | each)
            return replace(self, found=known).signs(boxes, options.limits)

        return Prepared(parts, make, self.worst(boxes))

    def sliced(self, boxes: list[Members], saved: SavedSlices | None = None) -> Search:
        """By signs as well, of slices of the boxes; these have bounds of their own from the beginning."""
        options, problem = self.options, self.problem
        assert isinstance(options.intermediate, Frugal)
        slicing = Slicing(problem, options.intermediate, self.until, Forks(options.cores))

        def make(slices: Sequence[Slice]) -> Search:
            parts = (Region(s.lower, s.upper, ball=InputBall.of(problem.property.ball, s.lower)) for s in slices)
            regions = [self._bounded(s.region, part) for s, part in zip(slices, parts, strict=True)]
            return self._sliced([s.clauses for s in slices], regions)

        if saved is not None and saved.tree.boxes is not None:
            regions = saved.tree.boxes.regions(problem)
            return SlicedSearch.going_on(slicing, saved, self._sliced(saved.tree.clauses, regions, saved.tree))
        sides = [(problem.lower[box : box + 1], problem.upper[box : box + 1]) for box, _ in boxes]
        whole = [Slice(*s, m[1], self.worst([m])) for s, m in zip(sides, boxes, strict=True)]
        return SlicedSearch(slicing, whole, make)

    def _sliced(
        self, clauses: Sequence[tuple[int, ...]], regions: list[Region], saved: SavedTree | None = None
    ) -> Search:
        """The signs of slices, given by their clauses and bounds."""
        options = self.options
        policy = replace(options.policy, ladder=options.policy.ladder.plain())  # cuts take 20 times as long here
        space = self._signs(list(enumerate(clauses)), regions, policy, Journal(above=options.journal))
        return self._shared(space, options.limits, saved)

    def boxes(self, boxes: list[Members], saved: Saved | None = None) -> Search:
        """By boxes of the input."""
        assert saved is None or isinstance(saved, SavedTree)
        clauses = [clause for _, some in boxes for clause in some]
        return self._shared(self._boxes(clauses), self.options.limits, saved)

    def integer(self, boxes: list[Members]) -> Search:
        """By HiGHS, clause by clause."""
        members = [(box, clause) for box, some in boxes for clause in some]
        programs = ClausePrograms(self.problem, members, self._region, self.worst(boxes))
        return IntegerSearch(self.options.integer, programs, self.until, self.offer)

    def _signs(self, boxes: list[Members], regions: list[Region], policy: Policy, journal: Journal) -> SignSpace:
        if not self.problem.network.piecewise_linear:
            policy = replace(policy, tightening=policy.tightening.after_points())
        together = max(1, self.options.domain_bytes // (DOMAIN * self.problem.network.neurons + 1))
        policy = replace(policy, batch=min(policy.batch, together), fill=min(policy.fill, together))
        root = Root.of(self.problem, regions, [clauses for _, clauses in boxes]).knowing(self.found.lower)
        return SignSpace(root, policy, self.until, self.offer, journal)

    def _boxes(self, clauses: Sequence[int]) -> InputSpace:
        journal = Journal(above=self.options.journal)
        finish = partial(self._finish, journal) if self.problem.network.piecewise_linear else None
        return InputSpace(self.problem, clauses, self.offer, self.until, finish, self.options.inputs, journal)

    def space(self, recipe: Recipe) -> Space[Any, Any, Any, Any]:
        """The space that another process has described."""
        match recipe:
            case SignRecipe(boxes=boxes, clauses=clauses, policy=policy):
                journal = Journal(above=self.options.journal)
                return self._signs(list(enumerate(clauses)), boxes.regions(self.problem), policy, journal)
            case BoxRecipe(clauses=own):
                return self._boxes(own)
        raise NotImplementedError(f"{type(recipe).__name__} cannot be made here")

    def _shared(self, space: Space[DomainsT, Any, Any, Any], limits: Limits, saved: SavedTree | None = None) -> Search:
        """A search by as many processes as there may be."""
        return self._by_all(limits, self._tree(space, self._each(limits), saved))

    def _tree(
        self, space: Space[DomainsT, Any, Any, Any], limits: Limits, saved: SavedTree | None
    ) -> BranchAndBound[DomainsT]:
        """A tree, from where another run was."""
        tree = BranchAndBound(space, limits)
        if saved is not None:
            tree.go_on(saved)
        return tree

    def _by_all(self, limits: Limits, tree: BranchAndBound[DomainsT]) -> Search:
        """The search of a tree, which may have begun, by as many processes as there may be."""
        cores, engine = self.options.cores, self.options.engine
        if engine is None and cores == 1:
            return tree
        tree.limits = Limits(tree.limits.memory_bytes)  # the others are those of all processes together
        if engine is not None:
            return engine.search(self, tree, limits)
        keeping = None if self.options.keeping is None else self.options.keeping.among(cores)
        return SharedSearch(tree, limits, Cores(cores), keeping)

    def _each(self, limits: Limits) -> Limits:
        """Every process has its share of the memory."""
        return replace(limits, memory_bytes=limits.memory_bytes // self.options.cores)

    def _finish(
        self, journal: Journal, lower: Float[Tensor, " n0"], upper: Float[Tensor, " n0"], clauses: tuple[int, ...]
    ) -> Outcome:
        """Decide a small box by the signs of its few ambiguous ReLUs."""
        ball = InputBall.of(self.problem.property.ball, lower)
        part = Region(lower.unsqueeze(0), upper.unsqueeze(0), ball=ball)
        region = self.options.intermediate.completed(self.problem.network, part, self.until)
        root = Root.of(self.problem, [region], [clauses])
        space = SignSpace(root, self.options.policy, self.until, self.offer, Journal(above=journal))
        outcome = run(BranchAndBound(space, self.options.limits), self.until)
        if self.options.policy.certain:
            return outcome
        return replace(outcome, progress=replace(outcome.progress, lower=-float("inf")))  # bounds of boxes are rigorous

    def worst(self, boxes: list[Members]) -> float:
        """What is known of boxes whose search has not begun."""
        return min(float(self.found.lower[k]) for _, clauses in boxes for k in clauses)

    def _regions(self, boxes: list[Members], saved: SavedTree | None) -> list[Region]:
        """The bounds of boxes, in a search that goes on those that it had."""
        if saved is None or saved.boxes is None:
            return [self._region(box) for box, _ in boxes]
        if saved.clauses != tuple(clauses for _, clauses in boxes):
            raise InputError("the checkpoint does not fit this property: other clauses are open")
        return saved.boxes.regions(self.problem)

    def _region(self, box: int) -> Region:
        """The bounds of a box, unless they are known already."""
        inputs = inputs_of(self.problem, torch.tensor([box], device=self.problem.lower.device))
        return self._bounded(self.found.regions.get(box), inputs)

    def _bounded(self, known: Region | None, inputs: Region) -> Region:
        """What is known of a box or a slice, or else its bounds."""
        return self.options.intermediate.completed(self.problem.network, inputs, self.until) if known is None else known
