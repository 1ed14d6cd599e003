"""Lagrangian decomposition: the dual in which every group has its own copy of what it reads.

Layer k makes x_hat_A[k] = W x + b; group k reads a copy x_hat_B[k], and (x_hat_B[k], x[k]) lies in the convex hull of
the ReLU over [l_hat, u_hat].  The multipliers mu[k], of any sign, price x_hat_A[k] - x_hat_B[k].  In the words of
`core/sweep` mu[k] is the coefficient of x_hat[k], only that it is chosen freely: with lam the coefficients of x[k],

    lam . x[k] >= mu . x_hat[k] + min over the hull of (lam . x - mu . x_hat)

and the minimum is attained at a vertex: (l_hat, relu(l_hat)), (u_hat, relu(u_hat)) or, inside of an ambiguous neuron,
(0, 0).  A propagated bound is the point mu = slope lam of the same value.  What is relaxed is the Planet relaxation, so
the maximum over mu is its linear program's value, as it is for Big-M, with one variable per neuron instead of three.

Every neuron has a multiplier here, stable ones too: their boxes and the signs that branches have imposed are bounds of
the hull, and nothing has to be substituted or split off.

requires:   bounds of all groups before the objective's layer
guarantees: a valid bound for every mu, so nothing has to hold with equality in floats; in float64 all rounding is paid
source:     Bunel, De Palma et al., Lagrangian decomposition for neural network verification, UAI 2020
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.ascent import Average, Dual, Evaluation
from verifier.bounding.core.base import Objective
from verifier.bounding.core.sweep import Choice, Kinks, Remainder, Sweep, Values
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.bounding.solvers.face_dual import FaceVariables
from verifier.bounding.solvers.lagrangian import Lagrangian, largest_multiplier
from verifier.bounding.solvers.multipliers import MultiplierVariables, multipliers_of
from verifier.bounding.solvers.solver import Task, Variables, converts
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Copies(Evaluation):
    """The value of the dual function and the inner minimiser: x0, and what each group reads and gives."""

    x_hat: tuple[Float[Tensor, "D S _"], ...]  # x_hat_B
    x: tuple[Float[Tensor, "D S _"], ...]


@dataclass(frozen=True, eq=False)
class Decomposition(Dual[Copies]):
    """Variables: mu of all neurons, group after group.  Require: a sweep at full width."""

    sweep: Sweep
    objective: Objective

    @classmethod
    def of(cls, task: Task) -> Decomposition:
        whole, objective = task.sweep, task.objective
        return cls(Sweep.prepare(whole.net, whole.region.full_width(), whole.layer, whole.slacks), objective)

    @property
    def sizes(self) -> list[int]:
        return [kinks.count for kinks in self.sweep.kinks]

    @property
    def variables(self) -> int:
        return sum(self.sizes)

    def groups(self, point: Float[Tensor, "D S V"]) -> list[Float[Tensor, "D S _"]]:
        """The variables of each group."""
        return list(point.split(self.sizes, dim=-1))

    def propagated(self, choices: Sequence[Choice]) -> Float[Tensor, "D S V"]:
        """The variables of the same value as a backward sweep with those slopes."""
        trace = self.sweep.backward(self.objective, choices)
        found = [trace.x0[..., :0]]
        for k, (kinks, choice, lam) in enumerate(zip(self.sweep.kinks, choices, trace.coefficients, strict=True), 1):
            known = self.sweep.zeros(k, self.objective) if lam is None else lam
            found.append(known * torch.where(known >= 0, choice.slope, kinks.upper))
        return torch.cat(found, dim=-1)

    def start(self) -> Float[Tensor, "D S V"]:
        """The variables of Wong and Kolter's bound."""
        return self.propagated(Linear(Slope.PARALLEL).choices(self.sweep))

    def evaluate(self, point: Float[Tensor, "D S V"]) -> Copies:
        mus = self.groups(point)
        x_hat: dict[int, Tensor] = {}
        x: dict[int, Tensor] = {}

        def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
            kinks, mu = self.sweep.kinks[k - 1], mus[k - 1]
            own = self.sweep.zeros(k, self.objective) if lam is None else lam
            least, x_hat[k], x[k] = vertex(kinks, own, mu)
            rest.value += least.sum(dim=-1)
            if self.sweep.slacks is not None:
                top = torch.maximum(kinks.l_hat.abs(), kinks.u_hat.abs())
                rest.summed += (own.abs() * kinks.u_hat.clamp(min=0) + mu.abs() * top).sum(dim=-1)
            return mu

        plane = self.sweep.walk(self.objective, eliminate)
        order = range(1, self.sweep.layer)
        return Copies(plane.lower, plane.x0, tuple(x_hat[k] for k in order), tuple(x[k] for k in order))

    def copies(self, at: Copies) -> tuple[Values, list[Float[Tensor, "D S _"]]]:
        """x[j] of all sources, and what the layers make of them: x_hat_A of each group."""
        return self.sweep.complete(at.x0, lambda k, x_hat, before: at.x[k - 1])

    def supergradient(
        self, point: Float[Tensor, "D S V"], at: Copies, seen: Average | None = None
    ) -> Float[Tensor, "D S V"]:
        values, made = self.copies(at)
        if seen is not None:
            seen.add(values)
        return torch.cat([at.x0[..., :0], *(a - b for a, b in zip(made, at.x_hat, strict=True))], dim=-1)

    def project(self, point: Float[Tensor, "D S V"]) -> None:
        most = largest_multiplier(point.dtype)
        point.clamp_(-most, most)


def vertex(
    kinks: Kinks, lam: Float[Tensor, "D S a"], mu: Float[Tensor, "D S a"]
) -> tuple[Float[Tensor, "D S a"], Float[Tensor, "D S a"], Float[Tensor, "D S a"]]:
    """The least value of lam x - mu x_hat over the hull of each ReLU, and the x_hat and x that attain it."""
    low, high = kinks.l_hat, kinks.u_hat
    at_low = lam * low.clamp(min=0) - mu * low
    at_high = lam * high.clamp(min=0) - mu * high
    least = torch.minimum(at_low, at_high)
    x_hat = torch.where(at_low <= at_high, low, high)
    at_kink = kinks.ambiguous & (least >= 0)
    x_hat = torch.where(at_kink, 0.0, x_hat)
    return torch.where(at_kink, 0.0, least), x_hat, x_hat.clamp(min=0)


@dataclass(frozen=True, eq=False)
class PairVariables(Variables):
    """The multipliers of a decomposition.  There are no cuts, and the weights of a clause's rows are fixed."""

    kind = "pairs"

    def dual(self, task: Task) -> Decomposition:
        return Decomposition.of(replace(task, objective=task.weighted(self.weights)))

    def variables(self, task: Task) -> int:
        return Decomposition.of(task).variables


@converts("multipliers", "pairs")
def pairs_of(task: Task, state: MultiplierVariables) -> PairVariables:
    """The coefficients of x_hat under Big-M's multipliers.  Guarantee: no lower value than theirs without the cuts."""
    plain = state.without_cuts()
    dual = plain.dual(task)
    return PairVariables(dual.prices(plain.start(task, dual)), weights=state.weights)


@converts("slopes", "pairs")
@converts("shares", "pairs")
def pairs_of_faces(task: Task, state: FaceVariables) -> Variables:
    return pairs_of(task, multipliers_of(task, state))


@converts("pairs", "multipliers")
def multipliers_of_pairs(task: Task, state: PairVariables) -> MultiplierVariables:
    """Multipliers of the same value, if the mu of stable neurons are such as multipliers of splits can make them.

    Where mu >= 0 the least value over the hull is that of alpha = mu.  Else beta1 = -mu, and beta0 is what makes g = 0.
    """
    dual = Lagrangian(task.sweep, task.objective)
    blocks: list[list[Tensor]] = [[] for _ in range(Lagrangian.FIXED)]
    mus = state.dual(task).groups(state.point.to(task.dtype))
    for kinks, mu in zip(task.sweep.kinks, mus, strict=True):
        own = kinks.gather(mu)
        beta1 = (-own).clamp(min=0)
        beta0 = torch.where(kinks.ambiguous, -beta1 * kinks.l_hat / kinks.u_hat, 0.0)
        for block, part in zip(blocks, (own.clamp(min=0), beta0, beta1, torch.zeros_like(own)), strict=True):
            block.append(part)
    point = torch.cat([state.point[..., :0].to(task.dtype), *(part for block in blocks for part in block)], dim=-1)
    dual.project(point)
    dual.settle(point)  # alpha - beta1 of neurons that a split has fixed is for its multiplier to make
    return MultiplierVariables(point, weights=state.weights)
