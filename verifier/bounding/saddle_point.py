"""Saddle Point: Frank-Wolfe on the saddle-point problem of the Anderson relaxation, with all its masks.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  Memory does not grow with the iterations
source:     [SCB] sec:sp, algorithm alg:sp-fw; price caps and primal start from its appendices

The multipliers of the exponentially many cuts enter the Lagrangian only through sums ("statistics"), so the masks
themselves are forgotten as soon as they have been added.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from verifier.bounding.active_set import ActiveSet, Additions
from verifier.bounding.anderson import RowGeometry
from verifier.bounding.ascent import Adam, Ascent, Steps
from verifier.bounding.base import Bound, Bounder, Objective, Region, Until, widest
from verifier.bounding.lagrangian import Lagrangian, Multipliers
from verifier.bounding.sweep import Kinks, Sweep, Total, dot
from verifier.network.network import Affine, Network
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Prices:
    """The multipliers at the kinks of one group, cuts only as far as the Lagrangian sees them.

    `total` is the sum of all beta; `spread[i]` the sum of (W.I)^T beta for the i-th term of the group; `constant` what
    offsets contribute; `g` the coefficient of -z.  All are linear in the multipliers.
    """

    alpha: Float[Tensor, "D S a"]
    total: Float[Tensor, "D S a"]
    spread: tuple[Float[Tensor, "D S _"], ...]
    constant: Float[Tensor, "D S"]
    g: Float[Tensor, "D S a"]

    def plus(self, other: Prices) -> Prices:
        return Prices(
            self.alpha + other.alpha,
            self.total + other.total,
            tuple(a + b for a, b in zip(self.spread, other.spread, strict=True)),
            self.constant + other.constant,
            self.g + other.g,
        )

    def blend(self, other: Prices, weight: float) -> Prices:
        """(1 - weight) self + weight other."""
        return Prices(
            torch.lerp(self.alpha, other.alpha, weight),
            torch.lerp(self.total, other.total, weight),
            tuple(torch.lerp(a, b, weight) for a, b in zip(self.spread, other.spread, strict=True)),
            torch.lerp(self.constant, other.constant, weight),
            torch.lerp(self.g, other.g, weight),
        )


@dataclass(frozen=True, eq=False)
class Primal:
    """A point of the boxes: the input, and x and z at the kinks of each group."""

    x0: Float[Tensor, "D S n0"]
    x: tuple[Float[Tensor, "D S _"], ...]
    z: tuple[Float[Tensor, "D S _"], ...]

    def blend(self, other: Primal, weight: float) -> Primal:
        return Primal(
            torch.lerp(self.x0, other.x0, weight),
            tuple(torch.lerp(a, b, weight) for a, b in zip(self.x, other.x, strict=True)),
            tuple(torch.lerp(a, b, weight) for a, b in zip(self.z, other.z, strict=True)),
        )


@dataclass(frozen=True, eq=False)
class Caps:
    """The largest alpha, and the largest sum of all beta, that each kink of a group may have."""

    alpha: Float[Tensor, "D S a"]
    beta: Float[Tensor, "D S a"]

    @classmethod
    def of(cls, prices: Prices) -> Caps:
        """[SCB] eq:price-caps: the value at the start or, where that is zero, a hundredth of the group's largest."""
        return cls(_cap(prices.alpha), _cap(prices.total))


def _cap(start: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
    if not start.shape[-1]:
        return start
    return torch.where(start > 0, start, start.amax(dim=-1, keepdim=True) / 100)


@dataclass(frozen=True, eq=False)
class Answer:
    """The bound for given prices, the primal minimiser, and the coefficients of the input and of x at the kinks."""

    lower: Float[Tensor, "D S"]
    vertex: Primal
    lam0: Float[Tensor, "D S n0"]
    f: tuple[Float[Tensor, "D S _"], ...]


@dataclass(frozen=True, eq=False)
class Saddle:
    """The bilinear function of prices and primal points, and the best answer of either side.

    The multipliers of splits keep the values that the initial ascent found.
    """

    dual: Lagrangian  # its cuts matter for the start only
    rows: tuple[RowGeometry | None, ...]
    splits: tuple[Float[Tensor, "D S _"], ...]

    @classmethod
    def of(cls, dual: Lagrangian, point: Float[Tensor, "D S V"]) -> Saddle:
        sweep = dual.sweep
        rows = [
            RowGeometry.of(layer, sweep.region, kinks.index) if len(kinks.index) else None
            for layer, kinks in zip(sweep.net.layers, sweep.kinks, strict=False)
        ]
        return cls(dual, tuple(rows), tuple(at.split for at in dual.views(point)))

    @property
    def sweep(self) -> Sweep:
        return self.dual.sweep

    def start(self, point: Float[Tensor, "D S V"]) -> list[Prices]:
        """The prices of explicit multipliers."""
        found = []
        for k, at in enumerate(self.dual.views(point)):
            kinks, layer = self.sweep.kinks[k], self.sweep.net.layers[k]
            prices = big_m_prices(layer, kinks, at)
            for cuts, beta in zip(self.dual.cuts, at.cuts, strict=True):
                cut = cuts[k]
                if cut is not None:
                    free = beta * kinks.ambiguous
                    parts = [part for _, part in cut.transpose(free)]
                    offset = (free * cut.offset).sum(dim=-1)
                    prices = prices.plus(Prices(torch.zeros_like(free), free, tuple(parts), offset, free * cut.zc))
            found.append(prices)
        return found

    def answer(self, prices: list[Prices], blends: int) -> Answer:
        """Minimise over the boxes, after `blends` roundings of the prices."""
        sweep, objective = self.sweep, self.dual.objective
        mu = objective.coefficients.expand(sweep.region.count, -1, -1)
        lam: list[Tensor | None] = [objective.inputs, *[None] * (sweep.layer - 1)]
        f: list[Tensor] = [mu] * (sweep.layer - 1)
        total = Total.of(objective, sweep.region)
        for k in range(sweep.layer, 0, -1):
            layer = sweep.net.layers[k - 1]
            if k < sweep.layer:
                coefficients, lam[k] = lam[k], None
                if coefficients is None:
                    coefficients = mu.new_zeros(sweep.region.count, objective.count, layer.size)
                mu, f[k - 1] = self._eliminate(k, coefficients, prices[k - 1], total, blends)
                for (source, _), part in zip(layer.terms, prices[k - 1].spread, strict=True):
                    known = lam[source]
                    lam[source] = -part if known is None else known - part
            total.value += mu @ layer.bias
            if sweep.slacks is not None:
                total.error += dot(mu.abs(), sweep.slacks[k - 1])
            for source, term in layer.terms:
                part, known = term.transpose(mu), lam[source]
                lam[source] = part if known is None else known + part
        trace = sweep.at_input(lam[0], total, ())
        x = tuple(torch.where(c < 0, kinks.u_hat, 0.0) for c, kinks in zip(f, sweep.kinks, strict=True))
        z = tuple((p.g > 0).to(p.g.dtype) for p in prices)
        lam0 = torch.zeros_like(trace.x0) if lam[0] is None else lam[0].expand_as(trace.x0)
        return Answer(trace.lower, Primal(trace.x0, x, z), lam0, tuple(f))

    def _eliminate(self, k: int, lam: Tensor, at: Prices, total: Total, blends: int) -> tuple[Tensor, Tensor]:
        kinks = self.sweep.kinks[k - 1]
        lam_kinks = lam.index_select(-1, kinks.index)
        f = lam_kinks - at.alpha + at.total
        value = torch.where(kinks.ambiguous, f.clamp(max=0) * kinks.u_hat - at.g.clamp(min=0), 0.0)
        total.value += value.sum(dim=-1) + at.constant
        if self.sweep.slacks is not None:
            price = self.sweep.slacks[k - 1][:, kinks.index]
            weight = lam_kinks.abs() + at.alpha + (4 + blends) * at.total
            total.error += dot(weight * kinks.ambiguous, price)
        stable = lam_kinks * kinks.upper
        if kinks.sign is not None:
            stable = stable - kinks.sign * self.splits[k - 1]
        mu_kinks = torch.where(kinks.ambiguous, at.alpha, stable)
        return (lam * kinks.passing).index_copy_(-1, kinks.index, mu_kinks), f

    def complete(self, primal: Primal) -> tuple[list[Tensor], list[Tensor]]:
        """x[j] of all sources, passing neurons computed from the others, and x_hat at the kinks."""
        values, x_hats = [primal.x0], []
        for k, kinks in enumerate(self.sweep.kinks):
            x_hat = self.sweep.net.layers[k].forward(values)
            at_kinks = x_hat.index_select(-1, kinks.index)
            x = torch.where(kinks.ambiguous, primal.x[k], at_kinks * kinks.upper)
            values.append((x_hat * kinks.passing).index_copy_(-1, kinks.index, x))
            x_hats.append(at_kinks)
        return values, x_hats

    def reply(self, primal: Primal, caps: list[Caps], with_cuts: bool) -> list[Prices]:
        """The prices that are worst for a primal point: [SCB] eq:alphak-condg and eq:betak-condg."""
        values, x_hats = self.complete(primal)
        found = []
        for k, (kinks, x_hat) in enumerate(zip(self.sweep.kinks, x_hats, strict=True)):
            x, z, layer = primal.x[k], primal.z[k], self.sweep.net.layers[k]
            alpha = caps[k].alpha * (x_hat >= x) * kinks.ambiguous
            beta = caps[k].beta * kinks.ambiguous
            gain0 = x - kinks.u_hat * z
            gain1 = x - x_hat + kinks.l_hat * (1 - z)
            best = torch.maximum(gain0, gain1)
            rows = self.rows[k] if with_cuts else None
            cut = None
            if rows is not None:
                cut = rows.excess(values, z)
                gain_cut = x - z * (rows.bias + rows.w_u.sum(dim=-1)) + cut.clamp(min=0).sum(dim=-1)
                use_cut = (gain_cut > best) & (gain_cut >= 0)
                best = torch.maximum(best, gain_cut)
            use0 = (gain0 == best) & (best >= 0)
            use1 = (gain1 == best) & (best >= 0) & ~use0
            at = Multipliers(alpha, beta * use0, beta * use1, torch.zeros_like(x), ())
            prices = big_m_prices(layer, kinks, at)
            if rows is not None and cut is not None:
                prices = prices.plus(_cut_prices(rows, cut >= 0, beta * use_cut))
            found.append(prices)
        return found


def big_m_prices(layer: Affine, kinks: Kinks, at: Multipliers) -> Prices:
    """The statistics of alpha, beta0 and beta1: cuts with empty and full masks, sharpened by l_hat and u_hat."""
    beta0, beta1 = at.beta0 * kinks.ambiguous, at.beta1 * kinks.ambiguous
    full = beta1.new_zeros(*beta1.shape[:-1], layer.size).index_copy_(-1, kinks.index, beta1)
    constant = (beta1 * (kinks.l_hat - layer.bias[kinks.index])).sum(dim=-1)
    return Prices(
        at.alpha * kinks.ambiguous,
        beta0 + beta1,
        tuple(term.transpose(full) for _, term in layer.terms),
        constant,
        beta0 * kinks.u_hat + beta1 * kinks.l_hat,
    )


def _cut_prices(rows: RowGeometry, mask: Tensor, beta: Float[Tensor, "D S a"]) -> Prices:
    """The statistics of one cut per kink."""
    kept = (mask * rows.w_l).sum(dim=-1)
    zc = rows.bias + kept + (~mask * rows.w_u).sum(dim=-1)
    spread = [part for _, part in rows.spread(mask * rows.weights * beta.unsqueeze(-1))]
    return Prices(torch.zeros_like(beta), beta, tuple(spread), (beta * kept).sum(dim=-1), beta * zc)


@dataclass(frozen=True)
class SaddlePoint(Bounder):
    """Frank-Wolfe with step 1 / (t + offset), after an ascent on Big-M (or Active Set) multipliers."""

    iterations: int = 1000
    offset: int = 10
    initial: ActiveSet = field(default_factory=lambda: ActiveSet(additions=Additions(most=0), ascent=_no_ascent()))
    primal_start: Ascent = field(default_factory=lambda: Ascent(100, Steps(1e-2, 1e-5, linear=True)))
    check_every: int = 10

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        chunk = until.chunk(60 * widest(net, objective.layer) * region.lower.element_size() * region.count)
        sweep = Sweep.prepare(net, region, objective.layer)
        found = [
            self._run(Lagrangian(sweep, objective.part(first, first + chunk)), until)
            for first in range(0, objective.count, chunk)
        ]
        return Bound.joined(found)

    def _run(self, dual: Lagrangian, until: Until) -> Bound:
        dual, begin = self.initial.climb(dual, until)
        saddle = Saddle.of(dual, begin.point)
        prices = saddle.start(begin.point)
        caps = [Caps.of(p) for p in prices]
        now = saddle.answer(prices, 0)
        primal = self._descend(saddle, now.vertex, caps, until)
        best, x0 = torch.maximum(now.lower, begin.lower), now.vertex.x0
        for t in range(self.iterations):
            if t % self.check_every == 0 and _done(best, until):
                return Bound(best, x0, None, begin.iterations + t)
            weight = 1.0 / (t + self.offset)
            reply = saddle.reply(primal, caps, with_cuts=True)
            primal = primal.blend(now.vertex, weight)
            prices = [p.blend(r, weight) for p, r in zip(prices, reply, strict=True)]
            now = saddle.answer(prices, t + 1)
            x0 = torch.where((now.lower > best).unsqueeze(-1), now.vertex.x0, x0)
            best = torch.maximum(best, now.lower)
            if until.watch is not None:
                until.watch(best)
        return Bound(best, x0, None, begin.iterations + self.iterations)

    def _descend(self, saddle: Saddle, start: Primal, caps: list[Caps], until: Until) -> Primal:
        """Subgradient descent on the primal view, cuts left out ([SCB] sec:sp-fw-primalinit)."""
        point = torch.cat([start.x0, *start.x, *start.z], dim=-1)
        sizes = [start.x0.shape[-1], *(x.shape[-1] for x in start.x), *(z.shape[-1] for z in start.z)]
        groups = len(start.x)
        low, high = self._boxes(saddle, start)
        adam = Adam.start(point)

        def primal() -> Primal:
            parts = point.split(sizes, dim=-1)
            return Primal(parts[0], parts[1 : 1 + groups], parts[1 + groups :])

        for t in range(self.primal_start.iterations):
            if t % self.check_every == 0 and until.expired():
                break
            reply = saddle.reply(primal(), caps, with_cuts=False)
            against = saddle.answer(reply, 0)
            gradient = torch.cat([against.lam0, *against.f, *(-r.g for r in reply)], dim=-1)
            adam.step(point, -gradient, self.primal_start.steps.at(t, self.primal_start.iterations), t)
            torch.minimum(torch.maximum(point, low, out=point), high, out=point)
        return primal()

    @staticmethod
    def _boxes(saddle: Saddle, like: Primal) -> tuple[Tensor, Tensor]:
        region = saddle.sweep.region
        zeros = [torch.zeros_like(x) for x in (*like.x, *like.z)]
        tops = [kinks.u_hat.clamp(min=0).expand_as(x) for kinks, x in zip(saddle.sweep.kinks, like.x, strict=True)]
        tops += [torch.ones_like(z) for z in like.z]
        low = torch.cat([region.lower.unsqueeze(1).expand_as(like.x0), *zeros], dim=-1)
        high = torch.cat([region.upper.unsqueeze(1).expand_as(like.x0), *tops], dim=-1)
        return low, high


def _done(best: Float[Tensor, "D S"], until: Until) -> bool:
    return until.expired() or (until.threshold is not None and bool((best > until.threshold).all()))


def _no_ascent() -> Ascent:
    return Ascent(0, Steps(1e-3, 1e-6, linear=True))
