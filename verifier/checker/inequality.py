"""The inequality that every rule rests on.

A scope is a box of inputs with bounds l <= t <= u of every neuron.  For rows q of some layer and ANY numbers mu_k, one
per neuron of each group below it, and ANY kappa_kc <= 0 of cuts c,

    q.t + d.x_0 + e  >=  e + q.b + sum_k mu_k.b_k + r_0.x_0 + sum_{k,i} h_ki            at every point of the scope

    r_j  = d (j = 0)  +  W_j^T q  +  sum_k W_kj^T mu_k  +  sum_{k,c} P_kcj^T kappa_kc
    h_ki = the smaller of   sum_c kappa_c gap_c + min {(r - mu - sum_c kappa_c) t : max(l, 0) <= t <= u}     it passes
                      and  -sum_c kappa_c off_c + min {-mu t : l <= t <= min(u, 0)}                          it blocks

with matrices P of any entries, off <= P x and gap >= b + (W - P) x for all x of the scope.  A case whose interval is
empty is left out.

Proof.  At a point of the scope t_k = sum_j W_kj x_j + b_k, so mu_k.(W_k x + b_k - t_k) = 0 can be added for every
group, and kappa.(P x) - kappa.(P x) for every cut.  Collect what stands in front of each x_j: it is r_j.  What is left
of neuron i of group k is  r x - mu t - sum_c kappa_c (P_c x)_i, where -kappa_c >= 0 and

    it blocks:  x = 0,  t is in [l, min(u, 0)],   (P x)_i >= off;
    it passes:  x = t,  t is in [max(l, 0), u],   (P x)_i = t - b - ((W - P) x)_i >= t - gap.

Put in the lower bounds of (P x)_i; the rest depends on t alone and is at least h_ki.

Rounding.  mu, kappa and the bounds are floats, taken as they are; only sums of products round.  docs/proofs.md shows,
line by line, that what they lose is at most gamma_N S with the S that is computed below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .maps import Array
from .network import Layer, Network
from .scope import Scope, allowance
from .stream import Rejected


class Mask(Protocol):
    """Which weights of a group a cut keeps."""

    def at(self, layer: Layer, scope: Scope) -> Cut:
        """P, with bounds of what it gives that hold in the scope."""


class Cut(Protocol):
    """P of one group at one scope, with bounds of what it gives."""

    @property
    def mask(self) -> Mask: ...

    @property
    def off(self) -> Array: ...  # [n]

    @property
    def gap(self) -> Array: ...  # [n]

    def transpose(self, kappa: Array) -> list[tuple[int, Array]]:
        """P^T kappa, source by source."""


Choice = tuple[Array, Sequence[tuple[Array, Cut]]]
"""mu [m, n] of a group, and its cuts with their kappa [m, n]."""

Choose = Callable[[int, Array], Choice]
"""Multipliers of group k, given r [m, n].  Whatever they are, the bound is sound."""


@dataclass(frozen=True, eq=False)
class Target:
    """m functions q.t + d.x_0 + e of layer k; `_size` bounds what was added up for each, before anything cancels."""

    layer: int
    q: Array
    q_size: Array
    d: Array
    d_size: Array
    e: Array
    e_size: Array
    summands: int


@dataclass(frozen=True, eq=False)
class Plane:
    """offset + slope.x_0 - error is nowhere above the target in its scope, for each of m rows."""

    offset: Array
    slope: Array
    error: Array

    def minimum(self, lower: Array, upper: Array) -> Array:
        """Over a box inside of the scope's; minus infinity if anything is not a number."""
        found = self.offset + np.minimum(self.slope * lower, self.slope * upper).sum(axis=1) - self.error
        return np.where(np.isfinite(found), found, -np.inf)


def plane(net: Network, scope: Scope, target: Target, choose: Choose) -> Plane:
    """The right-hand side of the inequality; the error is gamma_N S.  See above."""
    offset, slope, price, cuts = evaluated(net, scope, target, choose)
    summands = target.summands + 8 * cuts * max(len(layer.terms) for layer in net.layers)
    return Plane(offset, slope, allowance(net, price, summands))


def evaluated(net: Network, scope: Scope, target: Target, choose: Choose) -> tuple[Array, Array, Array, int]:
    """The offset, the slope r_0 and S, for floats and for rationals alike; and how many cuts there were."""
    r: dict[int, Any] = {0: target.d}
    mu, cuts, count = target.q, (), 0  # type: tuple[Array, Sequence[tuple[Array, Cut]], int]
    offset, price = target.e, 4 * target.e_size + 4 * target.d_size @ scope.largest(0)
    for k in range(target.layer, 0, -1):
        layer = net.layers[k - 1]
        size = target.q_size
        if k < target.layer:
            coefficient = r.pop(k) if k in r else np.zeros((len(mu), layer.size), mu.dtype)
            mu, cuts = choose(k, coefficient)
            if not all((kappa <= 0).all() for kappa, _ in cuts):
                raise Rejected("a kappa is not at most zero")
            size = np.abs(mu)
            h, weight = _neurons(scope, k, coefficient, mu, cuts)
            offset = offset + h.sum(axis=1)
            price = price + 4 * (weight + size) @ scope.widest(k)
            count += len(cuts)
        offset = offset + mu @ layer.bias
        price = price + 4 * size @ scope.sizes[k - 1]
        parts = layer.transpose(mu)
        for kappa, cut in cuts:
            parts += cut.transpose(kappa)
            price = price + 8 * np.abs(kappa) @ scope.sizes[k - 1]
        for source, part in parts:
            r[source] = r[source] + part if source in r else part
    return offset, r[0], price + 4 * np.abs(r[0]) @ scope.largest(0), count


def _neurons(scope: Scope, k: int, r: Array, mu: Array, cuts: Sequence[tuple[Array, Cut]]) -> tuple[Array, Array]:
    """h [m, n], and |r| + sum |kappa|."""
    low, high = scope.lower[k - 1], scope.upper[k - 1]
    from_zero, to_zero = np.maximum(low, 0), np.minimum(high, 0)
    rest = r - mu
    weight, passed, blocked = np.abs(r), 0, 0  # type: Array, Any, Any
    for kappa, cut in cuts:
        rest = rest - kappa
        weight = weight - kappa
        passed = passed + kappa * cut.gap
        blocked = blocked - kappa * cut.off
    passes = passed + np.minimum(rest * from_zero, rest * high)
    blocks = blocked + np.minimum(-mu * low, -mu * to_zero)
    either = np.where(from_zero <= high, passes, blocks)
    h = np.where((from_zero <= high) & (low <= to_zero), np.minimum(passes, blocks), either)
    return np.where(low <= high, h, np.nan), weight
