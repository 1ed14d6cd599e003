"""The Lagrangian of the Big-M relaxation with any set of Anderson cuts, as a function of its multipliers.

Constraints and multipliers at the kinks of each group ([SCB] eq:dual-active-set, with the signs of docs/notation.md):

    alpha >= 0:  x >= x_hat              beta0 >= 0:  x <= u_hat z
    beta1 >= 0:  x <= x_hat - l_hat (1 - z)          beta_c >= 0:  x <= (W.I_c) x_in - offset_c + z zc_c

while x in [0, u_hat] and z in [0, 1] stay as boxes.  Neurons that pass are substituted (their multiplier is the
coefficient itself, minus the multiplier of a split); neurons that block have x = 0.  Every choice of non-negative
multipliers gives a valid bound, so nothing has to hold with equality in floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.ascent import Average, Dual, Evaluation
from verifier.bounding.core.base import Objective
from verifier.bounding.core.sweep import Kinks, Remainder, Sweep, Trace, Values, dot
from verifier.bounding.cuts.anderson import Cut
from verifier.shapes import Float, Tensor


def largest_multiplier(dtype: torch.dtype) -> float:
    """Any multiplier gives a valid bound; with these no product with a number inside of the range overflows."""
    return 2.0**500 if dtype is torch.float64 else 2.0**120


Cuts = tuple[Cut | None, ...]
"""One cut for every group; None where a group takes no cut."""


@dataclass(frozen=True, eq=False)
class Inner(Evaluation):
    """The value of the dual function and the inner minimiser: x and z at the kinks of each group."""

    x: tuple[Float[Tensor, "D S _"], ...]  # of ambiguous kinks
    z: tuple[Float[Tensor, "D S _"], ...]


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Views of the variables at the kinks of one group."""

    alpha: Float[Tensor, "D S a"]
    beta0: Float[Tensor, "D S a"]
    beta1: Float[Tensor, "D S a"]
    split: Float[Tensor, "D S a"]
    cuts: tuple[Float[Tensor, "D S a"], ...]


@dataclass(frozen=True, eq=False)
class Lagrangian(Dual[Inner]):
    """Variables: alpha, beta0, beta1, split multipliers at all kinks, then the multipliers of each set of cuts."""

    sweep: Sweep
    objective: Objective
    cuts: tuple[Cuts, ...] = ()

    FIXED = 4  # alpha, beta0, beta1, split

    @property
    def sizes(self) -> list[int]:
        return [kinks.count for kinks in self.sweep.kinks]

    @property
    def blocks(self) -> int:
        return self.FIXED + len(self.cuts)

    @property
    def variables(self) -> int:
        return self.blocks * sum(self.sizes)

    def zero(self) -> Float[Tensor, "D S V"]:
        """The start of [SCB]: all multipliers zero."""
        shape = (self.sweep.region.count, self.objective.count, self.variables)
        return self.sweep.region.lower.new_zeros(shape)

    def from_trace(self, trace: Trace, slopes: Sequence[Tensor], splits: Sequence[Tensor | None]) -> Tensor:
        """The multipliers of the same value as a backward sweep with those slopes and split multipliers."""
        blocks: list[list[Tensor]] = [[] for _ in range(self.FIXED)]
        for k, (kinks, slope, split) in enumerate(zip(self.sweep.kinks, slopes, splits, strict=True)):
            known = trace.coefficients[k]
            lam = self.zero()[..., : kinks.count] if known is None else known
            theta = (-lam).clamp(min=0) * kinks.ambiguous
            blocks[0].append(slope * lam.clamp(min=0) * kinks.ambiguous)
            blocks[1].append(theta * (1 - kinks.upper))
            blocks[2].append(theta * kinks.upper)
            blocks[3].append(torch.zeros_like(lam) if split is None else split.expand_as(lam))
        nothing = trace.x0[..., :0]  # a network may have no group at all
        point = torch.cat([nothing, *(part for block in blocks for part in block)], dim=-1)
        return torch.nn.functional.pad(point, (0, len(self.cuts) * sum(self.sizes))).clamp_(min=0)

    def views(self, point: Float[Tensor, "D S V"]) -> list[Multipliers]:
        """The variables of each group."""
        blocks = point.unflatten(-1, (self.blocks, -1)).unbind(dim=-2) if sum(self.sizes) else [point] * self.blocks
        split = [block.split(self.sizes, dim=-1) for block in blocks]
        alpha, beta0, beta1, branch, *cuts = split
        return [
            Multipliers(alpha[k], beta0[k], beta1[k], branch[k], tuple(cut[k] for cut in cuts))
            for k in range(len(self.sizes))
        ]

    def evaluate(self, point: Float[Tensor, "D S V"]) -> Inner:
        return self._walk(self.views(point))

    def settle(self, point: Float[Tensor, "D S V"]) -> None:
        """Let multipliers of a parent speak for its children, in place: those of neurons that a split has fixed since.

        A neuron that is fixed is substituted, so what alpha and the betas priced would be lost, and the coefficient of
        its x_hat would jump.  The multiplier of the split takes their place: it keeps the coefficient alpha - beta1 as
        far as its sign allows.  The others become zero, so settling twice is settling once.
        """
        self._walk(self.views(point), _settle)

    def prices(self, point: Float[Tensor, "D S V"]) -> Float[Tensor, "D S n"]:
        """mu of all neurons, group after group: the coefficients of x_hat that these multipliers make."""
        found = [point[..., :0]]

        def hear(kinks: Kinks, lam: Tensor, at: Multipliers) -> None:
            found.insert(0, kinks.scatter(lam, priced(kinks, kinks.gather(lam), at)))

        self._walk(self.views(point), hear)
        return torch.cat(found, dim=-1)

    def _walk(
        self, views: list[Multipliers], before: Callable[[Kinks, Tensor, Multipliers], None] | None = None
    ) -> Inner:
        """From the output to the input; `before` sees a group's coefficients and multipliers, and may change these."""
        x: dict[int, Tensor] = {}
        z: dict[int, Tensor] = {}

        def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
            own = self.sweep.zeros(k, self.objective) if lam is None else lam
            if before is not None:
                before(self.sweep.kinks[k - 1], own, views[k - 1])
            mu, x[k], z[k] = self._eliminate(k, own, views[k - 1], rest)
            return mu

        plane = self.sweep.walk(self.objective, eliminate)
        groups = range(1, self.sweep.layer)
        return Inner(plane.lower, plane.x0, tuple(x[k] for k in groups), tuple(z[k] for k in groups))

    def _eliminate(self, k: int, lam: Tensor, at: Multipliers, rest: Remainder) -> tuple[Tensor, Tensor, Tensor]:
        """Minimise over x and z of one group; the multiplier of x_hat, and the minimisers at the kinks."""
        kinks = self.sweep.kinks[k - 1]
        lam_kinks = kinks.gather(lam)
        beta = at.beta0 + at.beta1
        constant = at.beta1 * kinks.l_hat
        g = at.beta0 * kinks.u_hat + constant
        for cuts, beta_c in zip(self.cuts, at.cuts, strict=True):
            cut = cuts[k - 1]
            if cut is not None:
                beta = beta + beta_c
                constant = constant + beta_c * cut.offset
                g = g + beta_c * cut.zc
        f = lam_kinks - at.alpha + beta
        x = torch.where(f < 0, kinks.u_hat, 0.0)
        value = torch.where(kinks.ambiguous, f * x - g.clamp(min=0) + constant, 0.0)
        rest.value += value.sum(dim=-1)
        if self.sweep.slacks is not None:
            price = kinks.gather(self.sweep.slacks[k - 1])
            paid = (lam_kinks.abs() + at.alpha + 4 * beta) * kinks.ambiguous
            rest.error += dot(paid, price)
            # The layer's slack prices numbers up to its own magnitude, and bounds may be looser than that.
            widest = torch.where(kinks.ambiguous, torch.maximum(kinks.u_hat, -kinks.l_hat), 0.0)
            rest.summed += (paid * widest).sum(dim=-1)
        self._charge_cuts(k, at, rest)
        return kinks.scatter(lam, priced(kinks, lam_kinks, at)), x, (g >= 0).to(g.dtype)

    def _charge_cuts(self, k: int, at: Multipliers, rest: Remainder) -> None:
        """What the cuts of group k add to the coefficients of its sources."""
        for cuts, beta_c in zip(self.cuts, at.cuts, strict=True):
            cut = cuts[k - 1]
            if cut is None:
                continue
            for source, part in cut.transpose(beta_c * self.sweep.kinks[k - 1].ambiguous):
                rest.subtract(source, part)

    def primal(self, at: Inner) -> tuple[list[Tensor | None], list[Tensor]]:
        """x[j] of all sources and x_hat at the kinks, when the inner minimiser is completed by the passing neurons."""
        return self.sweep.through_kinks(at.x0, at.x)

    def vertex(self, at: Inner) -> list[Tensor | None]:
        """`primal` with every x[j] at the nearer end of its box: a minimiser if passing neurons had multipliers too.

        Only their values move, those of the input and of ambiguous neurons are ends already.
        """
        return [self._nearer_end(j, x) for j, x in enumerate(self.primal(at)[0])]

    def _nearer_end(self, source: int, x: Float[Tensor, "D S n"] | None) -> Float[Tensor, "D S n"] | None:
        if x is None:
            return None
        low, high = (side.unsqueeze(1) for side in self.sweep.region.source(source))
        return torch.where(x - low > high - x, high, low)

    def supergradient(
        self, point: Float[Tensor, "D S V"], at: Inner, seen: Average | None = None
    ) -> Float[Tensor, "D S V"]:
        values, x_hats = self.primal(at)
        if seen is not None:
            seen.add(values, at.z)
        blocks: list[list[Tensor]] = [[] for _ in range(self.blocks)]
        for k, (kinks, x_hat) in enumerate(zip(self.sweep.kinks, x_hats, strict=True)):
            for block, part in zip(blocks, self._violations(k, kinks, x_hat, at, values), strict=True):
                block.append(part)
        return torch.cat([at.x0[..., :0], *(part for block in blocks for part in block)], dim=-1)

    def _violations(self, k: int, kinks: Kinks, x_hat: Tensor, at: Inner, values: Values) -> list[Tensor]:
        """How far the minimiser violates each relaxed constraint of a group: the supergradient."""
        x, z, free = at.x[k], at.z[k], kinks.ambiguous
        found = [
            (x_hat - x) * free,
            (x - kinks.u_hat * z) * free,
            (x - x_hat + kinks.l_hat * (1 - z)) * free,
            torch.zeros_like(x) if kinks.sign is None else -kinks.sign * x_hat,
        ]
        for cuts in self.cuts:
            cut = cuts[k]
            if cut is None:
                found.append(torch.zeros_like(x))
            else:
                found.append((x - cut.forward(values) + cut.offset - z * cut.zc) * free)
        return found

    def project(self, point: Float[Tensor, "D S V"]) -> None:
        point.clamp_(0.0, largest_multiplier(point.dtype))

    def with_cuts(self, cuts: Cuts) -> Lagrangian:
        """One more set of cuts; its variables come last."""
        return replace(self, cuts=(*self.cuts, cuts))


def priced(kinks: Kinks, lam: Float[Tensor, "D S a"], at: Multipliers) -> Float[Tensor, "D S a"]:
    """The multiplier of x_hat at the kinks, whose outputs have the coefficients `lam`."""
    stable = lam * kinks.upper
    if kinks.sign is not None:
        stable = stable - kinks.sign * at.split
    return torch.where(kinks.ambiguous, at.alpha - at.beta1, stable)


def _settle(kinks: Kinks, lam: Float[Tensor, "D S n"], at: Multipliers) -> None:
    """What `Lagrangian.settle` does at one group, whose outputs have the coefficients `lam`.

    A passing neuron has the coefficient lam - split, a blocking one split.
    """
    if kinks.sign is None:
        return
    priced = (at.alpha, at.beta0, at.beta1, *at.cuts)
    anew = (kinks.sign != 0) & ~kinks.ambiguous & (sum(priced) > 0)
    kept = at.alpha - at.beta1
    split = torch.where(kinks.sign > 0, kinks.gather(lam) - kept, kept).clamp(min=0)
    at.split.copy_(torch.where(anew, split, at.split))
    for multiplier in priced:
        multiplier.masked_fill_(anew, 0.0)
