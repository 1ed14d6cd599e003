"""Multipliers that prove a bound by themselves: what closes a domain, in the one form that proofs know.

Every dual state of a search is a choice of numbers mu at the neurons and kappa <= 0 at their cuts, and of weights of a
clause's rows.  Given these, each neuron is minimised by itself over its two cases (docs/proofs.md), so the bound of a
witness is at least that of the state it comes from, and any rounding of its numbers leaves a valid one.  What is
written down is rounded first, and then evaluated here: a proof holds nothing that was not seen to suffice.

requires:   the task in float64
guarantees: `Witness.lower` is rigorous, as that of any proof
source:     docs/proofs.md; slopes, split multipliers, Big-M multipliers, duals of linear programs, Anderson cuts
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from verifier.bounding.core.state import State
from verifier.bounding.core.sweep import Choice, Kinks, Plane, Remainder, Sweep
from verifier.bounding.cuts.anderson import Cut
from verifier.bounding.solvers.decomposition import Decomposition, PairVariables
from verifier.bounding.solvers.face_dual import FaceVariables
from verifier.bounding.solvers.lagrangian import Multipliers
from verifier.bounding.solvers.multipliers import MultiplierVariables
from verifier.bounding.solvers.solver import Proof, Task
from verifier.shapes import Float, Tensor

KAPPA_PRICE = 16.0
"""What rounding costs a unit of kappa, in slacks of its layer: its passes, its offset and its vertex."""


@dataclass(frozen=True, eq=False)
class CutPart(State):
    """One cut at the kinks of a group: kappa = -shift or, without a shift, share min(r, 0)."""

    cut: Cut
    share: Float[Tensor, "D S a"]  # in [0, 1]
    shift: Float[Tensor, "D S a"] | None = None  # >= 0

    def pure(self, masks: int) -> Iterator[CutPart]:
        """The same without mixtures: each of them becomes so many cuts, which together come near to it."""
        parts = self.cut.pure(masks)
        for cut in parts:
            shift = None if self.shift is None else self.shift / len(parts)
            yield replace(self, cut=cut, share=self.share / len(parts), shift=shift)

    def kappa(self, r: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
        return self.share * r.clamp(max=0.0) if self.shift is None else -self.shift


@dataclass(frozen=True, eq=False)
class GroupPart(State):
    """What a witness says at the kinks of one group; r is the coefficient of x that later groups have left.

    Of other functions than ReLUs it speaks of all neurons.
    """

    slope: Float[Tensor, "D S a"]  # of the lower face, where that is asked for; of other functions the variable
    delta: Float[Tensor, "D S a"] | None = None  # added to mu
    cuts: tuple[CutPart, ...] = ()

    def kappas(self, r: Float[Tensor, "D S a"]) -> list[tuple[Cut, Float[Tensor, "D S a"]]]:
        return [(part.cut, part.kappa(r)) for part in self.cuts]

    def mu(
        self, r: Float[Tensor, "D S a"], kinks: Kinks, kappas: Sequence[tuple[Cut, Float[Tensor, "D S a"]]]
    ) -> Float[Tensor, "D S a"]:
        """The multipliers of x_hat: where an upper face is asked for, the one that makes both cases equal."""
        found = base(r, kinks, kappas, self.slope)
        return found if self.delta is None else found + self.delta


def base(
    r: Float[Tensor, "D S a"],
    kinks: Kinks,
    kappas: Sequence[tuple[Cut, Float[Tensor, "D S a"]]],
    slope: Float[Tensor, "D S a"],
) -> Float[Tensor, "D S a"]:
    """The multipliers of x_hat without any delta."""
    s, turned = r, torch.zeros_like(r)
    for cut, kappa in kappas:
        s = s - kappa
        turned = turned + kappa * cut.zc
    width = kinks.u_hat - kinks.l_hat
    level = torch.minimum(torch.maximum((turned + s * kinks.u_hat) / width, s), torch.zeros_like(s))
    return torch.where(kinks.ambiguous, torch.where(s >= 0, slope * s, level), s * kinks.upper)


@dataclass(frozen=True, eq=False)
class Witness(Proof):
    """The parts of all groups before the objective's layer, and the weights of a clause's rows."""

    groups: tuple[GroupPart, ...]
    weights: Float[Tensor, "D S m"] | None = None

    kind = "witness"

    def lower(self, task: Task) -> Float[Tensor, "D S"]:
        return self.plane(task).lower

    def plane(self, task: Task) -> Plane:
        """The right-hand side of the inequality of docs/proofs.md, as a function of the input."""
        sweep = task.sweep

        def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
            own = sweep.zeros(k, task.objective) if lam is None else lam
            return _eliminate(sweep, k, own, self.groups[k - 1], rest)

        return sweep.walk(task.weighted(self.weights), eliminate)


def _eliminate(sweep: Sweep, k: int, lam: Tensor, part: GroupPart, rest: Remainder) -> Tensor:
    """Minimise every kink of group k by itself; the multipliers that go back through its layer."""
    kinks = sweep.neurons[k - 1]
    if not isinstance(kinks, Kinks):
        # Whoever checks it takes the least value for the sum of slopes and deltas, which is not below the sum of both.
        split = None if part.delta is None else -part.delta
        return kinks.relax(lam, Choice(part.slope, split), rest, priced=sweep.slacks is not None)[0]
    r = kinks.gather(lam)
    kappas = part.kappas(r)
    mu = part.mu(r, kinks, kappas)
    value, size = _least(kinks, r, mu, kappas)
    rest.value += value.sum(dim=-1)
    rest.summed += size.sum(dim=-1)
    for cut, kappa in kappas:
        for source, back in cut.transpose(kappa):
            rest.add(source, back)
        if sweep.slacks is not None:
            rest.error += (KAPPA_PRICE * kappa.abs() * kinks.gather(sweep.slacks[k - 1]).unsqueeze(1)).sum(dim=-1)
        if cut.whole:  # the rest of the cut is a multiple of W x_in = x_hat - b
            held = cut.whole * kappa
            rest.value -= held @ kinks.gather(sweep.net.layers[k - 1].bias)
            mu = mu + held
    return kinks.scatter(lam, mu)


def _least(
    kinks: Kinks, r: Tensor, mu: Tensor, kappas: Sequence[tuple[Cut, Tensor]]
) -> tuple[Float[Tensor, "D S a"], Float[Tensor, "D S a"]]:
    """The least value of each kink over both of its cases, and the magnitude of what was added up for it."""
    low, high = kinks.l_hat, kinks.u_hat
    slope, at_pass, at_block = r - mu, torch.zeros_like(r), torch.zeros_like(r)
    size = 2.0 * (r.abs() + 2.0 * mu.abs()) * torch.maximum(low.abs(), high.abs())
    for cut, kappa in kappas:
        slope = slope - kappa
        at_pass = at_pass + kappa * (cut.zc - cut.offset)
        at_block = at_block - kappa * cut.offset
        size = size + 2.0 * kappa.abs() * (cut.offset.abs() + cut.zc.abs() + high.abs())
    passes = at_pass + torch.minimum(slope * low.clamp(min=0.0), slope * high)
    blocks = at_block + torch.minimum(-mu * low, -mu * high.clamp(max=0.0))
    passes = torch.where(high < 0, torch.inf, passes)
    blocks = torch.where(low > 0, torch.inf, blocks)
    return torch.minimum(passes, blocks), size


# ---------------------------------------------------------------- from the states of solvers


def of_faces(state: FaceVariables, task: Task) -> Witness:
    """Slopes, split multipliers and shares of cuts: the faces that they choose."""
    faces = state.faces(task)
    point = state.start(task, state.dual_of(task, faces))
    plain = faces.plain_choices(point)
    parts = []
    for kinks, choice, cuts in zip(task.sweep.neurons, plain, faces.weighted_cuts(point), strict=True):
        split = None if choice.split is None else -choice.split
        if split is not None and isinstance(kinks, Kinks):
            split = None if kinks.sign is None else kinks.sign * split
        parts.append(GroupPart(choice.slope, split, tuple(CutPart(cut, weight) for cut, weight in cuts)))
    return Witness(tuple(parts), None if state.weights is None else point[..., faces.variables :])


def of_multipliers(state: MultiplierVariables, task: Task) -> Witness:
    """The multipliers of a Lagrangian: slopes as far as mu is one, and deltas for the rest."""
    dual, sweep = state.dual(task), task.sweep
    views = dual.views(state.start(task, dual))
    parts: dict[int, GroupPart] = {}

    def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
        own = sweep.zeros(k, task.objective) if lam is None else lam
        taken = [(cuts[k - 1], beta) for cuts, beta in zip(dual.cuts, views[k - 1].cuts, strict=True)]
        parts[k] = _part(sweep.kinks[k - 1], own, views[k - 1], [(c, b) for c, b in taken if c is not None])
        return _eliminate(sweep, k, own, parts[k], rest)

    sweep.walk(task.weighted(state.weights), eliminate)
    return Witness(tuple(parts[k] for k in range(1, sweep.layer)), state.weights)


def _part(kinks: Kinks, lam: Tensor, at: Multipliers, cuts: Sequence[tuple[Cut, Tensor]]) -> GroupPart:
    """What the multipliers of one group say, if its outputs have the coefficients `lam`."""
    r = kinks.gather(lam)
    taken = tuple(CutPart(cut, torch.zeros_like(beta), beta * kinks.ambiguous) for cut, beta in cuts)
    wanted = at.alpha - at.beta1
    part = GroupPart(_slope(wanted, r), cuts=taken)
    missing = wanted - base(r, kinks, part.kappas(r), part.slope)
    split = torch.zeros_like(missing) if kinks.sign is None else -kinks.sign * at.split
    return replace(part, delta=torch.where(kinks.ambiguous, missing, split))


def _slope(wanted: Float[Tensor, "D S a"], r: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
    """The share of r that comes nearest to multipliers."""
    return torch.where(r > 0, wanted / r, 0.0).clamp(0.0, 1.0)


def of_pairs(state: PairVariables, task: Task) -> Witness:
    """The multipliers of a decomposition: those of kinks, as multipliers of a Lagrangian are."""
    sweep, mus = task.sweep, Decomposition.of(task).groups(state.point.to(task.dtype))
    parts: dict[int, GroupPart] = {}

    def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
        own = sweep.zeros(k, task.objective) if lam is None else lam
        kinks = sweep.kinks[k - 1]
        r, wanted = kinks.gather(own), kinks.gather(mus[k - 1])
        part = GroupPart(_slope(wanted, r))
        parts[k] = replace(part, delta=wanted - base(r, kinks, (), part.slope))
        return _eliminate(sweep, k, own, parts[k], rest)

    sweep.walk(task.weighted(state.weights), eliminate)
    return Witness(tuple(parts[k] for k in range(1, sweep.layer)), state.weights)


def parallel(task: Task) -> Witness:
    """Wong and Kolter's slopes."""
    shape = (-1, task.objective.count, -1)
    return Witness(tuple(GroupPart(kinks.parallel().expand(shape)) for kinks in task.sweep.neurons))


CONVERSIONS: dict[str, Callable[[Any, Task], Witness]] = {
    "slopes": of_faces,
    "shares": of_faces,
    "multipliers": of_multipliers,
    "saddle": of_multipliers,
    "pairs": of_pairs,
}
"""By the kind of a state."""


def witness_of(state: Proof, task: Task) -> Witness:
    """What a state says, as a witness.  Raises KeyError if it has no such form."""
    return CONVERSIONS[state.kind](state, task)


# ---------------------------------------------------------------- rounding


@dataclass(frozen=True)
class Precision:
    """How numbers are written down: slopes and shares on a grid of so many steps (None: floats), others as floats.

    A cut that mixes masks becomes so many cuts, each with one of them.
    """

    steps: int | None
    floats: torch.dtype
    free: bool = False  # deltas that no split asks for are kept, too
    masks: int = 4

    @property
    def single(self) -> bool:
        """Whether floats take four bytes."""
        return self.floats is torch.float32

    def share(self, values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        if self.steps is None:
            return self.number(values)
        return (values.clamp(0.0, 1.0) * self.steps).round() / self.steps

    def cut(self, part: CutPart) -> CutPart:
        shift = None if part.shift is None else self.number(part.shift)
        return replace(part, share=self.share(part.share), shift=shift)

    def number(self, values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return values.to(self.floats).to(values.dtype)


BYTE = Precision(255, torch.float32)
EXACT = Precision(None, torch.float64, True, masks=64)
PRECISIONS = (
    BYTE,
    Precision(65535, torch.float32, masks=16),
    Precision(None, torch.float32, True, masks=16),
    EXACT,
)
"""From short to long; the last one is what the search itself has evaluated, but for mixtures of masks."""


def rounded(witness: Witness, sweep: Sweep, precision: Precision) -> Witness:
    """The witness as it is read back from a proof."""
    groups = []
    for part, kinks in zip(witness.groups, sweep.neurons, strict=True):
        delta = part.delta
        if delta is not None and not precision.free and isinstance(kinks, Kinks):
            delta = torch.where(kinks.ambiguous, 0.0, delta)
        cuts = tuple(precision.cut(cut) for mixed in part.cuts for cut in mixed.pure(precision.masks))
        delta = None if delta is None else precision.number(delta)
        groups.append(GroupPart(precision.share(part.slope), delta, cuts))
    return replace(witness, groups=tuple(groups))
