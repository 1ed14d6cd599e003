"""alpha-CROWN: the propagated dual of the Planet relaxation, with slopes and split multipliers optimised.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  With enough iterations it approaches the
            optimum of the linear program over the Planet relaxation with the split constraints
source:     alpha-CROWN and beta-CROWN, here with the supergradients written out

One backward and one forward sweep per iteration.  With lam the coefficient of x and x_hat taken from the forward
sweep of the minimiser:

    d/da = max(lam, 0) x_hat        d/ds = -x_hat (passing split), +x_hat (blocking split)

A neuron that is no ReLU may be split at a point of its range, again and again.  The bounds l <= t <= u that this leaves
have one multiplier s of any sign: s t >= s l where s > 0, and s t >= s u where s < 0.

    d/ds = l - x_hat (s > 0), u - x_hat (s < 0)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder
from verifier.bounding.core.sweep import Choice, Route, Sweep, Taken
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.face_dual import ConjunctionDual, FaceDual, FaceSolver, FaceVariables, SlopePoint
from verifier.bounding.solvers.solver import Certified, Task
from verifier.registry import AscentOptions, Count
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class SlopeDual(FaceDual):
    """The variables are the slopes of all neurons, then (if there are splits) a multiplier for each entry of x_hat.

    Of ReLUs only kinks count.  Multipliers of signs are not negative, those of bounds at other neurons have any sign.
    """

    split_scale: float = 0.5

    @cached_property
    def kinks(self) -> int:
        return sum(neurons.count for neurons in self.sweep.neurons)

    @cached_property
    def entries(self) -> int:
        """Multipliers of splits, if there are some."""
        return sum(neurons.entries for neurons in self.sweep.neurons)

    @cached_property
    def has_splits(self) -> bool:
        return self.sweep.region.splits is not None and bool(self.sweep.neurons)

    @cached_property
    def least_splits(self) -> Float[Tensor, " A"] | None:
        """The least multipliers of splits; None: 0 for all."""
        least = [neurons.least_split for neurons in self.sweep.neurons]
        if not any(least):
            return None
        like = self.sweep.region.lower
        return torch.cat([like.new_full((n.entries,), x) for n, x in zip(self.sweep.neurons, least, strict=True)])

    @cached_property
    def units(self) -> tuple[Float[Tensor, "D 1 1"], ...] | None:
        """In which the multipliers of splits are counted, group by group; None: as they are."""
        units = self.sweep.region.units
        return None if units is None else tuple(unit[:, None, None] for unit in units.unbind(dim=1))

    @property
    def variables(self) -> int:
        return self.kinks + (self.entries if self.has_splits else 0)

    def start(self) -> Float[Tensor, "D S V"]:
        """CROWN's slopes, no split multipliers."""
        like, shape = self.sweep.region.lower, (self.sweep.region.count, self.objective.count)
        slopes = [neurons.adaptive().expand(*shape, -1) for neurons in self.sweep.neurons]
        if self.has_splits:
            slopes.append(like.new_zeros(*shape, self.entries))
        return torch.cat(slopes, dim=-1) if slopes else like.new_zeros(*shape, 0)

    def choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        """The groups' parts of the variables; neurons that are stable in a region have no choice there."""
        sizes = [neurons.count for neurons in self.sweep.neurons]
        parts = point[..., : self.kinks].split(sizes, dim=-1)
        slopes = [neurons.faces(part) for neurons, part in zip(self.sweep.neurons, parts, strict=True)]
        if not self.has_splits:
            return tuple(Choice(a) for a in slopes)
        splits = point[..., self.kinks :].split([neurons.entries for neurons in self.sweep.neurons], dim=-1)
        if self.units is not None:
            splits = tuple(unit * split for unit, split in zip(self.units, splits, strict=True))
        return tuple(Choice(a, s) for a, s in zip(slopes, splits, strict=True))

    def gains(self, at: SlopePoint, route: Route) -> Float[Tensor, "D S V"]:
        found = [at.x0[..., :0]]  # a network may have no group at all
        for k, (neurons, x_hat) in enumerate(zip(self.sweep.neurons, route.x_hat, strict=True)):
            lam = at.trace.coefficients[k]
            if lam is None:
                found.append(x_hat.new_zeros(*x_hat.shape[:-1], neurons.count))
            else:
                found.append(neurons.gains(x_hat, Taken(at.choices[k], lam, at.trace.lines[k])))
        if self.has_splits:
            for k, (neurons, x_hat) in enumerate(zip(self.sweep.neurons, route.x_hat, strict=True)):
                split = at.choices[k].split
                assert split is not None
                gain = neurons.split_gains(x_hat, split)
                found.append(gain if self.units is None else self.units[k] * gain)
        return torch.cat(found, dim=-1)

    def project(self, point: Float[Tensor, "D S V"]) -> None:
        point[..., : self.kinks].clamp_(0.0, 1.0)
        if self.has_splits and self.least_splits is None:
            point[..., self.kinks :].clamp_(min=0.0)
        elif self.has_splits:
            point[..., self.kinks :].clamp_(min=self.least_splits)

    def step_scale(self) -> Float[Tensor, " V"] | float:
        paces = [neurons.pace for neurons in self.sweep.neurons]
        if not self.has_splits and all(pace == 1.0 for pace in paces):
            return 1.0
        scale = self.sweep.region.lower.new_ones(self.variables)
        for pace, part in zip(paces, scale[: self.kinks].split([n.count for n in self.sweep.neurons]), strict=True):
            part.fill_(pace)
        scale[self.kinks :] = self.split_scale
        return scale


def of_rows(sweep: Sweep, rows: Conjunction) -> ConjunctionDual:
    """The bound of clauses, as a function of slopes, split multipliers and the weights of their rows."""
    return ConjunctionDual(SlopeDual(sweep, rows.combined(sweep.layer, rows.even())), rows)


@dataclass(frozen=True, eq=False)
class Slopes(FaceVariables):
    """Slopes and split multipliers at all kinks."""

    kind = "slopes"

    def faces(self, task: Task) -> SlopeDual:
        return SlopeDual(task.sweep, task.objective)

    def variables(self, task: Task) -> int:
        return self.faces(task).variables


@dataclass(frozen=True)
class AlphaCrown(FaceSolver):
    """Adam on slopes and split multipliers, from CROWN's slopes or from a parent's variables."""

    ascent: Ascent = field(default_factory=lambda: Ascent(100, Steps(0.2, 0.01)))

    kind = "slopes"

    def blank(self, point: Float[Tensor, "D S V"]) -> Slopes:
        return Slopes(point)


class AlphaCrownOptions(AscentOptions, frozen=True):
    """Slopes of the propagated Planet dual."""

    iterations: Count = 100


@BOUNDERS.register("alpha_crown", AlphaCrownOptions)
def alpha_crown(options: AlphaCrownOptions) -> Bounder:
    return Certified(AlphaCrown(Ascent.of(options)))
