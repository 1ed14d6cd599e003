"""The propagated Anderson bound: alpha-CROWN whose upper faces are bent by cuts, with all weights optimised.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  Never below alpha-CROWN after the same
            first ascent, and with enough iterations it approaches the linear program over the Planet relaxation with
            the same cuts
source:     [SCB] eq:primal-anderson with z eliminated (see `faces`); masks from the mean of the last forward points

With lam the coefficient of x, the derivative by the share of a cut is min(lam, 0) times what a unit of the share adds
to the upper face at the forward point.  So one sweep back and one forward give value and supergradient, no autograd.

Masks may be variables too (`learns`): the oracle finds where they begin, and the ascent goes on with mixtures of masks,
one share per input of a group (`cuts/balanced`).  Their constants are then computed at every iterate, which takes two
more passes, and the derivatives take another one.  The function is no longer concave, but every iterate is valid.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Average, Averaging, Steps
from verifier.bounding.core.base import Bounder, Objective, Until, widest
from verifier.bounding.core.sweep import Choice, Route, Sweep
from verifier.bounding.cuts.anderson import Cut
from verifier.bounding.cuts.balanced import BalancedGeometry
from verifier.bounding.cuts.faces import CutFaces, Face
from verifier.bounding.cuts.masks import CutMasks, Form, Geometries, Threshold, find_masks
from verifier.bounding.solvers.alpha_crown import AlphaCrownOptions, SlopeDual, Slopes
from verifier.bounding.solvers.face_dual import FaceDual, FaceSolver, FaceVariables, SlopePoint
from verifier.bounding.solvers.solver import (
    Certified,
    Sizes,
    Solved,
    Task,
    Variables,
    converted,
    converts,
    variables_of,
)
from verifier.bounding.solvers.usual import UsualSlopes
from verifier.registry import AscentOptions, Count, Positive, Share, Step
from verifier.shapes import Float, Tensor

LEAST = 0.01
"""The part of what all cuts gain that those of a group have to gain, or else they are not worth their passes."""


class Block(NamedTuple):
    """The shares of one cut at the kinks of one group, or those of its mask at the inputs; both count from 0."""

    cut: int
    group: int
    size: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the shares are: cut after cut, each at the kinks of the groups that take it; then the learned masks."""

    blocks: tuple[Block, ...]
    learned: tuple[Block, ...] = ()  # the masks that are variables: one cut at most

    @classmethod
    def of(cls, masks: CutMasks, sweep: Sweep) -> Layout:
        blocks = tuple(Block(cut, group, sweep.neurons[group].count) for cut, group in masks.places)
        return cls(blocks, tuple(Block(0, group, sweep.net.layers[group].inputs) for group in masks.learned))

    @property
    def size(self) -> int:
        return sum(block.size for block in (*self.blocks, *self.learned))

    @property
    def shares(self) -> int:
        """Without the masks."""
        return sum(block.size for block in self.blocks)

    @property
    def masks(self) -> list[int]:
        """How many variables each learned mask has."""
        return [block.size for block in self.learned]

    def split(self, variables: Float[Tensor, "D S _"]) -> list[tuple[Block, Float[Tensor, "D S _"]]]:
        """Every block with its part of the variables, a view: first those of shares, then those of masks."""
        blocks = (*self.blocks, *self.learned)
        parts = variables.split([block.size for block in blocks], dim=-1)
        return list(zip(blocks, parts, strict=True))

    def in_order(self, parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """What belongs to the cuts of each group, in the order of the variables."""
        left = [iter(group) for group in parts]
        return [next(left[block.group]) for block in self.blocks]


@dataclass(frozen=True, eq=False)
class PropagatedDual(FaceDual):
    """The variables of `SlopeDual`, then for every cut its shares at the kinks of all groups that take it.

    Masks that are learned come last, group by group.
    """

    faces: tuple[CutFaces | None, ...]  # of masks that are given
    layout: Layout
    learned: tuple[BalancedGeometry | None, ...] = ()  # where masks are variables
    share_scale: float = 2.0
    mask_scale: float = 3.0

    @classmethod
    def of(cls, geometries: Geometries, objective: Objective, masks: CutMasks) -> PropagatedDual:
        """Require: the kinks of the sweep are those that the masks were made for."""
        sweep = geometries.sweep
        cuts: list[list[Cut]] = [[] for _ in sweep.neurons]
        learned: list[BalancedGeometry | None] = [None for _ in sweep.neurons]
        for mask in masks.cuts:
            for k, bits in enumerate(mask):
                geometry = None if bits is None else geometries.at(k, bits.form)
                if bits is None or geometry is None:
                    continue
                if bits.form is Form.LEARNED:
                    assert isinstance(geometry, BalancedGeometry)
                    learned[k] = geometry
                else:
                    cuts[k].append(bits.cut(geometry))
        faces = tuple(_bent(sweep, k, found) if found else None for k, found in enumerate(cuts))
        return cls(sweep, objective, faces, Layout.of(masks, sweep), tuple(learned))

    @cached_property
    def slopes(self) -> SlopeDual:
        return SlopeDual(self.sweep, self.objective)

    @property
    def variables(self) -> int:
        return self.slopes.variables + self.layout.size

    def start(self) -> Float[Tensor, "D S V"]:
        """CROWN's slopes; split multipliers and shares are zero."""
        return torch.nn.functional.pad(self.slopes.start(), (0, self.layout.size))

    def shares(self, point: Float[Tensor, "D S V"]) -> list[list[Float[Tensor, "D S _"]]]:
        """The shares of each group, cut by cut: views."""
        found: list[list[Tensor]] = [[] for _ in self.faces]
        for block, part in self.layout.split(point[..., self.slopes.variables :])[: len(self.layout.blocks)]:
            found[block.group].append(part)
        return found

    def bent(self, point: Float[Tensor, "D S V"]) -> list[CutFaces | None]:
        """The cuts of each group; where masks are variables, their own."""
        return self._mixed(point[..., self.slopes.variables + self.layout.shares :])

    def keeping(self, mixed: Float[Tensor, "D S _"]) -> PropagatedDual:
        """The same function of all other variables, if those of masks stay as they are."""
        return replace(self, faces=tuple(self._mixed(mixed)), layout=Layout(self.layout.blocks), learned=())

    def _mixed(self, masks: Float[Tensor, "D S _"]) -> list[CutFaces | None]:
        found = list(self.faces)
        for block, part in zip(self.layout.learned, masks.split(self.layout.masks, dim=-1), strict=True):
            geometry = self.learned[block.group]
            assert geometry is not None
            found[block.group] = _bent(self.sweep, block.group, [geometry.mixed(part)])
        return found

    def plain_choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        return self.slopes.plain_choices(point)

    def weighted_cuts(self, point: Float[Tensor, "D S V"]) -> list[list[tuple[Cut, Float[Tensor, "D S _"]]]]:
        found: list[list[tuple[Cut, Tensor]]] = []
        point = point[..., : self.variables]
        for face, shares in zip(self.bent(point), self.shares(point), strict=True):
            cuts = () if face is None else face.cuts
            found.append([(at.cut, share * at.most) for at, share in zip(cuts, shares, strict=True)])
        return found

    def choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        plain = self.plain_choices(point)
        return tuple(
            choice if face is None else replace(choice, face=face.face(shares))
            for choice, face, shares in zip(plain, self.bent(point), self.shares(point), strict=True)
        )

    def gains(self, at: SlopePoint, route: Route) -> Float[Tensor, "D S V"]:
        found: list[list[Tensor]] = []
        for choice, lam, gains in zip(at.choices, at.trace.coefficients, route.gains, strict=True):
            face = _face(choice)
            if face is None:
                found.append([])
            elif lam is None or gains is None:
                found.append([torch.zeros_like(share) for share in face.shares])
            else:
                negative = lam.clamp(max=0)
                found.append([negative * gain for gain in gains])
                face.of.project_direction(found[-1], face.shares)
        masks = [self._mask_gains(block, at, route) for block in self.layout.learned]
        return torch.cat([self.slopes.gains(at, route), *self.layout.in_order(found), *masks], dim=-1)

    def _mask_gains(self, block: Block, at: SlopePoint, route: Route) -> Float[Tensor, "D S n"]:
        """What a unit of each share of a learned mask adds to the bound."""
        k = block.group
        face, lam, gains = _face(at.choices[k]), at.trace.coefficients[k], route.gains[k]
        if face is None or lam is None or gains is None:
            return route.x_hat[k].new_zeros(*route.x_hat[k].shape[:-1], block.size)
        return face.learned(lam.clamp(max=0), route.values, route.x_hat[k], gains[0])

    def project(self, point: Float[Tensor, "D S V"]) -> None:
        plain = self.slopes.variables
        self.slopes.project(point[..., :plain])
        if self.layout.learned:  # then there is one cut, and its shares are those of an interval, too
            point[..., plain:].clamp_(0.0, 1.0)
            return
        point[..., plain:].clamp_(min=0.0)
        for face, shares in zip(self.faces, self.shares(point), strict=True):
            if face is not None:
                face.project(shares)

    def step_scale(self) -> Float[Tensor, " V"]:
        scale = self.sweep.region.lower.new_full((self.variables,), self.share_scale)
        scale[: self.slopes.variables] = self.slopes.step_scale()
        scale[self.slopes.variables + self.layout.shares :] = self.mask_scale
        return scale

    def gained(self, objective: Objective, point: Float[Tensor, "D S V"]) -> Float[Tensor, "D K"]:
        """What the cuts of every group add to the bounds of all objectives, at the minimiser."""
        at = self.bound_of(objective, point)
        route = self.sweep.forward(at.trace, at.choices)
        found = []
        for choice, lam, gains in zip(at.choices, at.trace.coefficients, route.gains, strict=True):
            face, total = _face(choice), point.new_zeros(len(point))
            if face is not None and lam is not None and gains is not None:
                for share, gain in zip(face.shares, gains, strict=True):
                    total = total + (lam.clamp(max=0) * share * gain).sum(dim=(1, 2))
            found.append(total)
        return torch.stack(found, dim=1)


def _bent(sweep: Sweep, k: int, cuts: Sequence[Cut]) -> CutFaces | None:
    """Faces that some cuts of group k, counted from 0, can turn; None if it has no kinks."""
    slack, kinks = None if sweep.slacks is None else sweep.slacks[k], sweep.bent(k + 1)
    return None if kinks is None else CutFaces.of(cuts, kinks, sweep.net.layers[k].bias, slack)


def _face(choice: Choice) -> Face | None:
    """The upper faces that cuts have bent."""
    assert isinstance(choice.face, Face | None)
    return choice.face


@dataclass(frozen=True, eq=False)
class Shares(FaceVariables):
    """Slopes, split multipliers and shares, and the masks of the cuts that the shares belong to."""

    kind = "shares"

    def faces(self, task: Task) -> FaceDual:
        if not self.masks.count:
            return SlopeDual(task.sweep, task.objective)
        return PropagatedDual.of(task.geometries, task.objective, self.masks)

    def variables(self, task: Task) -> int:
        slopes = SlopeDual(task.sweep, task.objective)
        return slopes.variables + Layout.of(self.masks, task.sweep).size

    def ready(self, task: Task) -> Shares:
        """Also with the masks that are learned from here on, which until then are only known as bits."""
        found = super().ready(task)
        layout, masks = Layout.of(self.masks, task.sweep), self.masks.learned
        if not any(bits.bits.shape[-1] for bits in masks.values()):
            return found
        point = found.point.clone()
        for block, part in layout.split(point[..., point.shape[-1] - layout.size :])[len(layout.blocks) :]:
            part.copy_(masks[block.group].bits)
        return replace(found, point=point, masks=self.masks.begun())


@dataclass(frozen=True, eq=False)
class KeptShares(Shares):
    """The same while masks that were learned stay as they are: `mixed` holds them, and the point does not."""

    mixed: Float[Tensor, "D S _"] | None = None

    @classmethod
    def of(cls, state: Variables, layout: Layout) -> KeptShares:
        """Require: the point of a state with the masks of that layout."""
        point, mixed = state.point.tensor_split([state.point.shape[-1] - sum(layout.masks)], dim=-1)
        return cls(point, state.masks, state.weights, mixed)

    def faces(self, task: Task) -> FaceDual:
        assert self.mixed is not None
        return PropagatedDual.of(task.geometries, task.objective, self.masks).keeping(self.mixed.to(task.dtype))

    def put_back(self) -> Shares:
        """With the masks among the variables again."""
        assert self.mixed is not None
        return Shares(torch.cat([self.point, self.mixed.to(self.point)], dim=-1), self.masks, self.weights)


@converts("slopes", "shares")
def shares_of(task: Task, state: Slopes) -> Shares:
    return Shares(state.point, state.masks, state.weights)


@converts("shares", "slopes")
def slopes_of(task: Task, state: Shares) -> Slopes:
    """What is left without the cuts."""
    return Slopes(state.point[..., : SlopeDual(task.sweep, task.objective).variables], weights=state.weights)


@dataclass(frozen=True)
class Scout:
    """An ascent that is followed by new cuts, one per threshold.

    Their masks are found at the mean of its last `averaged` forward points.
    """

    ascent: Ascent
    averaged: int
    thresholds: tuple[Threshold, ...]


@dataclass(frozen=True)
class Propagated(FaceSolver):
    """Scouts that add cuts, each with those before it, and an ascent with all of them.

    From a parent's variables and masks (their constants are computed anew) the ascent goes on at once.
    """

    scouts: tuple[Scout, ...] = ()
    learns: bool = False  # the masks are variables; for a single cut with the threshold 1/2
    keeps: bool = False  # of these variables an ascent leaves those of masks as they are

    kind = "shares"

    def learned(self) -> Propagated:
        """The same with masks that are variables, if there is one cut, and of the form that can be learned."""
        return replace(self, learns=self.thresholds == (0.5,))

    @classmethod
    def in_rounds(
        cls,
        initial: Ascent = Ascent(100, Steps(0.2, 0.01)),  # noqa: B008 (frozen)
        ascent: Ascent = Ascent(150, Steps(0.05, 0.005)),  # noqa: B008 (frozen)
        thresholds: tuple[Threshold, ...] = (0.5,),
        rounds: int = 1,
        averaged: int = 40,
    ) -> Propagated:
        """An ascent without cuts, then rounds that add a cut per threshold and go on."""
        *scouts, last = (initial, *[ascent] * rounds)
        return cls(last, tuple(Scout(scout, averaged, thresholds) for scout in scouts))

    @classmethod
    def one_by_one(cls, scout: Ascent, ascent: Ascent, thresholds: tuple[Threshold, ...]) -> Propagated:
        """Each cut is found where those before it leave the relaxation; then an ascent with all of them."""
        return cls(ascent, tuple(Scout(scout, scout.iterations // 2, (threshold,)) for threshold in thresholds))

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """Of all cuts, in the order in which they are found."""
        return tuple(threshold for scout in self.scouts for threshold in scout.thresholds)

    def inherits(self, sizes: Sizes) -> int:
        return (self.PLAIN + len(self.thresholds)) * sizes.kinks + self.learns * sizes.read

    def blank(self, point: Float[Tensor, "D S V"]) -> Shares:
        return Shares(point)

    def climb(
        self, task: Task, state: Variables, ascent: Ascent, until: Until, averaging: Averaging | None = None
    ) -> Solved:
        layout = Layout.of(state.masks, task.sweep) if self.keeps else None
        if layout is None or not layout.learned:
            return super().climb(task, state, ascent, until, averaging)
        found = super().climb(task, KeptShares.of(state, layout), ascent, until, averaging)
        assert isinstance(found.state, KeptShares)
        return replace(found, state=found.state.put_back())

    def begin(self, task: Task, until: Until, parent: Variables | None = None) -> Solved:
        """A parent's cuts take the place of those that would have been found first, if both learn masks or neither.

        Where other objectives have told whether it pays to learn masks, they are learned only if it does.
        """
        usual = self.usual if task.rows is None else None
        if self.learns and usual is not None and usual.masks_pay is False:
            return replace(self, learns=False).begin(task, until, parent)
        if parent is not None and parent.masks.count and bool(parent.masks.learned) is not self.learns:
            parent = converted(task, parent, Slopes.kind)
        state = self.init(task, None if parent is None else converted(task, parent, self.kind))
        done = known = 0
        among: Container[int] | None = state.masks.groups
        if not state.masks.count:  # where cuts are worth looking for, as far as is known
            among = None if usual is None else usual.cuts(task.sweep.layer)
        trial = None
        for scout in self.scouts:
            known += len(scout.thresholds)
            if known <= state.masks.count:
                continue
            averaging = Averaging(scout.averaged)
            found = self.climb(task, state, scout.ascent, until, averaging)
            assert isinstance(found.state, Variables)
            state, done = found.state, done + found.iterations
            if averaging.average is None:  # time is up, or all regions are done
                break
            new = [find(task, averaging.average, threshold, among, self.learns) for threshold in scout.thresholds]
            state = replace(state, masks=CutMasks((*state.masks.cuts, *(cut for mask in new for cut in mask.cuts))))
            state = state.ready(task)
            if self.learns and usual is not None and usual.masks_pay is None:
                given = find(task, averaging.average, scout.thresholds[0], among)
                trial = replace(found, state=replace(found.state, masks=given))
        best = self.solve(task, state, until)
        if usual is not None and trial is not None:
            best = self._better(task, usual, trial, best, until)
        if usual is not None and not usual.knows_cuts(task.sweep.layer):
            end = variables_of(best)
            usual.learn_cuts(task.sweep.layer, end.masks.groups, self._useful(task, end))
        return replace(best, iterations=done + best.iterations, scouted=done)

    def _better(self, task: Task, usual: UsualSlopes, begun: Solved, learned: Solved, until: Until) -> Solved:
        """The bound by learned masks, or that from a start with given ones, whichever is worth its time.

        `usual` remembers which, so that all other objectives are bounded the same way.
        """
        given = self.solve(task, variables_of(begun).ready(task), until)
        if until.expired():
            return learned
        usual.learn_masks(*(float((bound.lower - begun.lower).sum()) for bound in (learned, given)))
        return learned if usual.masks_pay else given

    def lean(self, task: Task, state: Variables) -> Variables:
        """Without the cuts of groups where they gain next to nothing: in many networks that is all but a few."""
        groups = self._useful(task, state)
        dropped = state.masks.groups - groups
        if not dropped:
            return state
        layout, plain = Layout.of(state.masks, task.sweep), SlopeDual(task.sweep, task.objective).variables
        shares = [part for block, part in layout.split(state.point[..., plain:]) if block.group in groups]
        return replace(
            state, point=torch.cat([state.point[..., :plain], *shares], dim=-1), masks=state.masks.only(groups)
        )

    def _useful(self, task: Task, state: Variables) -> frozenset[int]:
        """The groups whose cuts gain something in some region; all that have cuts, if nobody can tell."""
        if not state.masks.groups:
            return frozenset()
        dual = PropagatedDual.of(task.geometries, task.objective, state.masks)
        gained = dual.gained(task.weighted(state.weights), state.point.to(task.dtype))
        share = gained / gained.sum(dim=1, keepdim=True)
        clear = share.isfinite().all(dim=1) & (gained.sum(dim=1) > 0)
        worth = (share[clear] >= LEAST).any(dim=0).tolist()
        found = frozenset(k for k in state.masks.groups if worth[k])
        return found or state.masks.groups

    def bytes_each(self, task: Task) -> int:
        """What an ascent keeps of one objective in one region: sweeps, variables, masks, and one masked pass."""
        sweep = task.sweep
        size, wide = sweep.region.lower.element_size(), widest(sweep.net, sweep.layer)
        kinks = [neurons.count for neurons in sweep.neurons]
        exact = 4 * max(kinks, default=0) * wide * (None in self.thresholds)  # one entry per weight
        if self.learns:  # a variable with its best value, its moments and its derivative; constants of cuts
            exact += 6 * sum(layer.inputs for layer in sweep.net.layers[: len(kinks)]) + 8 * wide
        return size * (24 * wide + len(self.thresholds) * (4 * wide + 16 * sum(kinks)) + exact)


def find(
    task: Task,
    average: Average,
    threshold: Threshold,
    groups: Container[int] | None = None,
    learned: bool = False,
) -> CutMasks:
    """The masks of one more cut, at an averaged point; None: of all groups that can have one."""
    form, z = Form.LEARNED if learned else Form.of(threshold), 0.5 if threshold is None else threshold
    return CutMasks((find_masks(task.geometries, average, form, z, groups),))


class PropagatedOptions(AscentOptions, frozen=True):
    """alpha-CROWN first, then rounds that bend the upper faces by Anderson cuts, one per threshold."""

    iterations: Count = 150  # of each round
    first_step: Step = 0.05
    last_step: Step = 0.005
    initial: AlphaCrownOptions = AlphaCrownOptions()
    thresholds: tuple[Share | None, ...] = (0.5,)  # null: exact masks, one bit per weight
    learn: bool = True  # the masks too, if there is one cut per neuron and its threshold is 1/2
    rounds: Count = 1  # of cuts; 0: alpha-CROWN alone
    averaged: Positive = 40  # forward points at whose mean the masks are found


@BOUNDERS.register("propagated", PropagatedOptions)
def propagated(options: PropagatedOptions) -> Bounder:
    first, then = Ascent.of(options.initial), Ascent.of(options)
    solver = Propagated.in_rounds(first, then, options.thresholds, options.rounds, options.averaged)
    return Certified(solver.learned() if options.learn else solver)
