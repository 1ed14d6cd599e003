"""BDD+: a proximal method with momentum on the dual of a Lagrangian decomposition.

The dual function (`decomposition`) is concave but not smooth.  Around an anchor mu' its proximal form is, seen from the
primal side, a smooth problem over x0 and the pairs (x_hat_B[k], x[k]) of all groups: with r = x_hat_A - x_hat_B

    min  objective + mu' . r + |r|^2 / (2 eta)          where mu = mu' + r / eta at the minimum

One iteration visits the input and then the groups, block by block.  At the current mu a block's linear minimiser is a
vertex, and how far to go towards it has a closed form, because the problem is quadratic along that line: Frank and
Wolfe's method by blocks.  After `inner` iterations the anchor moves to mu, and goes on by a share of its last move.

The published settings: 400 iterations, two between moves of the anchor, eta from 10 to 500 (MNIST: from 1 to 50),
momentum 0.3, started at Wong and Kolter's multipliers; in branch and bound 100 iterations from those of the parent, eta
100, no momentum.  The published method returns the better of its first and last bound; here the best of the bounds that
are looked at on the way is kept, and a child begins at the better of both starts.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound, never below Wong and Kolter's, nor below what the parent's multipliers give; it
            approaches that of the Planet relaxation
source:     Bunel, De Palma et al., Lagrangian decomposition for neural network verification, UAI 2020; "BDD+" in [SCB]
            sec:exp, whose settings are facts about the program that was released with it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Steps
from verifier.bounding.core.base import Bounder, Until, minimise_over_input, widest
from verifier.bounding.solvers.decomposition import Decomposition, PairVariables, vertex
from verifier.bounding.solvers.solver import Certified, Sizes, Solved, Solver, Task, Variables
from verifier.registry import Count, Options, Positive, Share, Step
from verifier.shapes import Float, Tensor


class BddPlusOptions(Options, frozen=True):
    """The proximal method on the dual of a Lagrangian decomposition of the Planet relaxation."""

    iterations: Count = 400  # proximal steps
    inner: Positive = 2  # iterations between moves of the anchor
    first_weight: Step = 10.0  # eta of the proximal term; it grows linearly
    last_weight: Step = 500.0  # its value at the end
    momentum: Share = 0.3  # the part of the last move that is made once more


@dataclass(frozen=True)
class BddPlus(Solver):
    """See the top of the file."""

    kind = "pairs"

    iterations: int = 400
    inner: int = 2
    weights: Steps = field(default_factory=lambda: Steps(10.0, 500.0, linear=True))
    momentum: float = 0.3
    check_every: int = 10  # iterations between looks at the bound and at the clock

    @classmethod
    def of(cls, options: BddPlusOptions) -> BddPlus:
        weights = Steps(options.first_weight, options.last_weight, linear=True)
        return cls(options.iterations, options.inner, weights, options.momentum)

    @property
    def proves(self) -> bool:
        return True

    def inherits(self, sizes: Sizes) -> int:
        return sizes.neurons

    def blank(self, point: Float[Tensor, "D S V"]) -> PairVariables:
        return PairVariables(point)

    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        start = Decomposition.of(task).start()
        if parent is None:
            return PairVariables(start)
        dual = parent.dual(task)
        known = parent.start(task, dual)
        better = dual.evaluate(known).lower > dual.evaluate(start).lower
        return replace(parent, point=torch.where(better.unsqueeze(-1), known, start))

    def solve(self, task: Task, state: Variables, until: Until) -> Solved:
        assert isinstance(state, PairVariables)
        dual = state.dual(task)
        point = state.start(task, dual)
        blocks = Blocks(dual, point, self.momentum)
        best, lower, made = point, dual.evaluate(point).lower, 0
        while made < self.iterations and not self._done(lower, until):
            stop = min(made + self.check_every, self.iterations)
            while made < stop:
                eta = self.weights.at(made, self.iterations)
                inner = min(self.inner, self.iterations - made)
                for _ in range(inner):
                    blocks.visit(eta)
                blocks.move(eta)
                made += inner
            point = blocks.point()
            found = dual.evaluate(point).lower
            best = torch.where((found > lower).unsqueeze(-1), point, best)
            lower = torch.fmax(found, lower)
        return Solved(lower, blocks.x0, replace(state, point=best), made)

    def _done(self, lower: Float[Tensor, "D S"], until: Until) -> bool:
        """Tell who listens, and ask whether to go on."""
        if self.watch is not None:
            self.watch(lower)
        return until.expired() or (until.threshold is not None and bool((lower > until.threshold).all()))

    def bytes_each(self, task: Task) -> int:
        net, layer = task.sweep.net, task.sweep.layer
        neurons = sum(group.size for group in net.layers[: layer - 1])
        return (12 * neurons + 12 * widest(net, layer)) * task.sweep.region.lower.element_size()


class Blocks:
    """The proximal problem at work: x0, the pairs of all groups, the copies that the layers make, and the anchor."""

    def __init__(self, dual: Decomposition, start: Float[Tensor, "D S V"], momentum: float) -> None:
        self.dual, self.momentum = dual, momentum
        at = dual.evaluate(start)
        self.x0, self.x, self.x_hat = at.x0, list(at.x), list(at.x_hat)
        self.made = dual.copies(at)[1]
        self.anchor = dual.groups(start)
        self.last_move = [torch.zeros_like(mu) for mu in self.anchor]
        self.fixed = self._from_objective()

    def _from_objective(self) -> list[Tensor | None]:
        """The objective's coefficients of every source: they do not change."""
        sweep, objective = self.dual.sweep, self.dual.objective
        found: list[Tensor | None] = [objective.inputs, *[None] * (sweep.layer - 1)]
        rows = objective.coefficients.expand(sweep.region.count, -1, -1)
        for source, term in sweep.net.layers[sweep.layer - 1].terms:
            part, known = term.transpose(rows), found[source]
            found[source] = part if known is None else known + part
        return found

    def point(self) -> Float[Tensor, "D S V"]:
        """The multipliers that the anchor stands at."""
        return torch.cat([self.x0[..., :0], *self.anchor], dim=-1)

    def visit(self, eta: float) -> None:
        """One iteration: every block goes towards its vertex, the input first."""
        self._step_input(eta)
        for k in range(1, self.dual.sweep.layer):
            self._step_group(k, eta)

    def move(self, eta: float) -> None:
        """The anchor goes to the multipliers of the current point, and a little further."""
        for k, (made, read) in enumerate(zip(self.made, self.x_hat, strict=True)):
            self.last_move[k] = self.momentum * self.last_move[k] + (made - read) / eta
            self.anchor[k] = self.anchor[k] + self.last_move[k]

    def _step_input(self, eta: float) -> None:
        lam = self._coefficients(0, self.x0, eta)
        towards = minimise_over_input(self.dual.sweep.region, lam).x - self.x0
        images = self._images(0, towards)
        share = _share((lam * towards).sum(dim=-1), _squares(images.values()), eta)
        self.x0 = self.x0 + share * towards
        self._apply(images, share)

    def _step_group(self, k: int, eta: float) -> None:
        mu = self._prices(k, eta)
        lam = self._coefficients(k, self.x[k - 1], eta)
        _, x_hat, x = vertex(self.dual.sweep.kinks[k - 1], lam, mu)
        towards, read = x - self.x[k - 1], x_hat - self.x_hat[k - 1]
        images = self._images(k, towards)
        rise = (lam * towards).sum(dim=-1) - (mu * read).sum(dim=-1)
        share = _share(rise, _squares([read, *images.values()]), eta)
        self.x[k - 1] = self.x[k - 1] + share * towards
        self.x_hat[k - 1] = self.x_hat[k - 1] + share * read
        self._apply(images, share)

    def _prices(self, k: int, eta: float) -> Float[Tensor, "D S n"]:
        """mu of group k at the current point."""
        return self.anchor[k - 1] + (self.made[k - 1] - self.x_hat[k - 1]) / eta

    def _coefficients(self, source: int, like: Float[Tensor, "D S n"], eta: float) -> Float[Tensor, "D S n"]:
        """lam of a source: what the objective and the groups that read it ask of it."""
        known = self.fixed[source]
        lam = torch.zeros_like(like) if known is None else known.expand_as(like)
        for k, layer in enumerate(self.dual.sweep.net.layers[: self.dual.sweep.layer - 1], start=1):
            for read, term in layer.terms:
                if read == source:
                    lam = lam + term.transpose(self._prices(k, eta))
        return lam

    def _images(self, source: int, towards: Float[Tensor, "D S n"]) -> dict[int, Float[Tensor, "D S _"]]:
        """What a step of a source changes in the copies that layers make, by group."""
        found: dict[int, Tensor] = {}
        for k, layer in enumerate(self.dual.sweep.net.layers[: self.dual.sweep.layer - 1], start=1):
            for read, term in layer.terms:
                if read == source:
                    part = term.forward(towards)
                    found[k] = found[k] + part if k in found else part
        return found

    def _apply(self, images: dict[int, Float[Tensor, "D S _"]], share: Float[Tensor, "D S 1"]) -> None:
        for k, image in images.items():
            self.made[k - 1] = self.made[k - 1] + share * image


def _squares(parts: Iterable[Float[Tensor, "D S _"]]) -> Float[Tensor, "D S"] | float:
    """The squared length of all parts together."""
    return sum((part.square().sum(dim=-1) for part in parts), 0.0)


def _share(rise: Float[Tensor, "D S"], squares: Float[Tensor, "D S"] | float, eta: float) -> Float[Tensor, "D S 1"]:
    """How far to go: the minimiser of share rise + share^2 squares / (2 eta) over [0, 1]."""
    bent = torch.as_tensor(squares, dtype=rise.dtype, device=rise.device)
    best = torch.where(bent > 0, -eta * rise / bent, 1.0)
    return best.clamp(0.0, 1.0).unsqueeze(-1)


@BOUNDERS.register("bdd_plus", BddPlusOptions)
def bdd_plus(options: BddPlusOptions) -> Bounder:
    return Certified(BddPlus.of(options))
