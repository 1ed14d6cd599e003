"""Multipliers that prove a bound by themselves: what closes a domain, in the one form that proofs know.

Every dual state of a search is a choice of numbers mu at the neurons and kappa <= 0 at their cuts, and the weights of a
clause's rows.  Given these, each neuron is minimised by itself over its two cases (docs/proofs.md), so the bound of a
witness is at least that of the state it comes from, and any rounding of the numbers leaves a valid one.

requires:   the task in float64
guarantees: `Witness.lower` is rigorous, as that of any proof
source:     docs/proofs.md; the form covers slopes, split multipliers, Big-M multipliers and Anderson cuts
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from verifier.bounding.core.state import State
from verifier.bounding.core.sweep import Kinks, Remainder, Sweep
from verifier.bounding.cuts.anderson import Cut
from verifier.bounding.solvers.face_dual import FaceVariables
from verifier.bounding.solvers.multipliers import MultiplierVariables
from verifier.bounding.solvers.propagated import PropagatedDual
from verifier.bounding.solvers.solver import Proof, Task
from verifier.shapes import Float, Tensor

KAPPA_PRICE = 16.0
"""What rounding costs a unit of kappa, in slacks of its layer: its passes, its offset and its vertex."""


@dataclass(frozen=True, eq=False)
class CutPart(State):
    """One cut at the kinks of a group: kappa = share min(r, 0) - shift, where r is the coefficient of x."""

    cut: Cut
    share: Float[Tensor, "D S a"]  # in [0, 1]
    shift: Float[Tensor, "D S a"] | None = None  # >= 0

    def kappa(self, r: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
        found = self.share * r.clamp(max=0.0)
        return found if self.shift is None else found - self.shift


@dataclass(frozen=True, eq=False)
class GroupPart(State):
    """What a witness says at the kinks of one group: mu = slope r + shift, where r is the coefficient of x.

    `lower` is the slope where r >= 0, `upper` where r < 0 (None: that of the chord).
    """

    lower: Float[Tensor, "D S a"]
    upper: Float[Tensor, "D S a"] | None = None
    shift: Float[Tensor, "D S a"] | None = None
    cuts: tuple[CutPart, ...] = ()

    def mu(self, r: Float[Tensor, "D S a"], kinks: Kinks) -> Float[Tensor, "D S a"]:
        slope = torch.where(r >= 0, self.lower, kinks.upper if self.upper is None else self.upper)
        return slope * r if self.shift is None else slope * r + self.shift


@dataclass(frozen=True, eq=False)
class Witness(Proof):
    """The parts of all groups before the objective's layer, and the weights of a clause's rows."""

    groups: tuple[GroupPart, ...]
    weights: Float[Tensor, "D S m"] | None = None

    kind = "witness"

    def lower(self, task: Task) -> Float[Tensor, "D S"]:
        """The right-hand side of the inequality of docs/proofs.md."""
        sweep = task.sweep

        def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
            own = sweep.zeros(k, task.objective) if lam is None else lam
            return _eliminate(sweep, k, own, self.groups[k - 1], rest)

        return sweep.walk(task.weighted(self.weights), eliminate).lower


def _eliminate(sweep: Sweep, k: int, lam: Tensor, part: GroupPart, rest: Remainder) -> Tensor:
    """Minimise every kink of group k by itself; the multipliers of x_hat that go back through its layer."""
    kinks = sweep.kinks[k - 1]
    r = kinks.gather(lam)
    mu = part.mu(r, kinks)
    kappas = [(at.cut, at.kappa(r)) for at in part.cuts]
    value, size = _least(kinks, r, mu, kappas)
    rest.value += value.sum(dim=-1)
    rest.summed += size.sum(dim=-1)
    passed = mu
    for cut, kappa in kappas:
        for source, back in cut.transpose(kappa):
            rest.add(source, back)
        if sweep.slacks is not None:
            rest.error += (KAPPA_PRICE * kappa.abs() * kinks.gather(sweep.slacks[k - 1]).unsqueeze(1)).sum(dim=-1)
        if cut.whole:  # the rest of the cut is a multiple of W x_in = x_hat - b
            held = cut.whole * kappa
            rest.value -= held @ kinks.gather(sweep.net.layers[k - 1].bias)
            passed = passed + held
    return kinks.scatter(lam, passed)


def _least(kinks: Kinks, r: Tensor, mu: Tensor, kappas: list[tuple[Cut, Tensor]]) -> tuple[Tensor, Tensor]:
    """The least value of each kink over both of its cases, and the magnitude of what was added up for it."""
    low, high = kinks.l_hat, kinks.u_hat
    slope, at_pass, at_block = r - mu, torch.zeros_like(r), torch.zeros_like(r)
    size = (r.abs() + 2.0 * mu.abs()) * torch.maximum(low.abs(), high.abs())
    for cut, kappa in kappas:
        slope = slope - kappa
        at_pass = at_pass + kappa * (cut.zc - cut.offset)
        at_block = at_block - kappa * cut.offset
        size = size + kappa.abs() * (2.0 * cut.offset.abs() + cut.zc.abs() + high.abs())
    passes = at_pass + torch.minimum(slope * low.clamp(min=0.0), slope * high)
    blocks = at_block + torch.minimum(-mu * low, -mu * high.clamp(max=0.0))
    passes = torch.where(high < 0, torch.inf, passes)
    blocks = torch.where(low > 0, torch.inf, blocks)
    return torch.minimum(passes, blocks), size


# ---------------------------------------------------------------- from the states of solvers

Conversion = Callable[[Any, Task], Witness]


def of_faces(state: FaceVariables, task: Task) -> Witness:
    """Slopes, split multipliers and shares of cuts: the faces that they choose."""
    dual, faces = state.dual(task), state.faces(task)
    point = state.start(task, dual)
    choices = faces.choices(point[..., : faces.variables])
    cuts = [None] * len(choices) if not isinstance(faces, PropagatedDual) else faces.faces
    parts = []
    for kinks, choice, bent in zip(task.sweep.kinks, choices, cuts, strict=True):
        part = GroupPart(choice.slope)
        if kinks.sign is not None and choice.split is not None:
            part = replace(part, shift=-kinks.sign * choice.split)
        if bent is not None:
            face = bent.face([share for share in choice.face.shares])
            taken = tuple(CutPart(at.cut, w) for at, w in zip(bent.cuts, face.weights, strict=True))
            part = replace(part, upper=face.slope, cuts=taken)
        parts.append(part)
    weights = None if state.weights is None else point[..., faces.variables :]
    return Witness(tuple(parts), weights)


def of_multipliers(state: MultiplierVariables, task: Task) -> Witness:
    """The multipliers of a Lagrangian; neurons that a region fixes are substituted there."""
    dual = state.dual(task)
    parts = []
    for k, (kinks, at) in enumerate(zip(task.sweep.kinks, dual.views(state.start(task, dual)), strict=True)):
        fixed = torch.zeros_like(at.split) if kinks.sign is None else -kinks.sign * at.split
        shift = torch.where(kinks.ambiguous, at.alpha - at.beta1, fixed)
        slope = torch.where(kinks.ambiguous, 0.0, kinks.upper).expand_as(shift)
        taken = [
            CutPart(cut, torch.zeros_like(beta), beta * kinks.ambiguous)
            for cuts, beta in zip(dual.cuts, at.cuts, strict=True)
            if (cut := cuts[k]) is not None
        ]
        parts.append(GroupPart(slope, slope, shift, tuple(taken)))
    return Witness(tuple(parts), state.weights)


CONVERSIONS: dict[str, Conversion] = {"slopes": of_faces, "shares": of_faces, "multipliers": of_multipliers}
"""By the kind of a state."""


def witness_of(state: Proof, task: Task) -> Witness:
    """What a state says, as a witness.  Raises KeyError if there is no such form."""
    return CONVERSIONS[state.kind](state, task)
