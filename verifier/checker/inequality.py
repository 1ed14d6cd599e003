"""The inequality that every rule rests on.

A scope is a box of inputs with bounds l <= t <= u of every neuron.  For rows q of some layer and ANY numbers mu_k, one
per neuron of each group below it, and ANY kappa_kc <= 0 of cuts c,

    q.t + d.x_0 + e  >=  e + q.b + sum_k mu_k.b_k + r_0.x_0 + sum_{k,i} h_ki            at every point of the scope

    r_j  = d (j = 0)  +  W_j^T q  +  sum_k W_kj^T mu_k  +  sum_{k,c} P_kcj^T kappa_kc
    h_ki = the smaller of   sum_c kappa_c gap_c + min {(r - mu - sum_c kappa_c) t : max(l, 0) <= t <= u}     it passes
                      and  -sum_c kappa_c off_c + min {-mu t : l <= t <= min(u, 0)}                          it blocks

with matrices P of any entries, off <= P x and gap >= b + (W - P) x for all x of the scope.  A case whose interval is
empty is left out.  That is a ReLU; a neuron with another function f, which has no cuts, has

    h_ki = min {r f(t) - mu t : l <= t <= u},      of a product  min {r s t - mu_s s - mu_t t} over the bounds of both,

or anything below that (`functions`).

Proof.  At a point of the scope t_k = sum_j W_kj x_j + b_k, so mu_k.(W_k x + b_k - t_k) = 0 can be added for every
group, and kappa.(P x) - kappa.(P x) for every cut.  Collect what stands in front of each x_j: it is r_j.  What is left
of neuron i of group k is  r x - mu t - sum_c kappa_c (P_c x)_i, where -kappa_c >= 0 and

    it blocks:  x = 0,  t is in [l, min(u, 0)],   (P x)_i >= off;
    it passes:  x = t,  t is in [max(l, 0), u],   (P x)_i = t - b - ((W - P) x)_i >= t - gap.

Put in the lower bounds of (P x)_i; the rest depends on t alone and is at least h_ki.  With another function x = f(t),
and r x - mu t is all that is left.

Rounding.  mu, kappa and the bounds are floats, taken as they are; only sums of products round.  docs/proofs.md shows,
line by line, that what they lose is at most gamma_N S with the S that is computed below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .network import Layer, Network
from .rationals import Array, where
from .scope import Scope, allowance
from .stream import Rejected


@runtime_checkable
class Mask(Protocol):
    """Which weights of a group a cut keeps."""

    def at(self, layer: Layer, scope: Scope) -> Cut:
        """P, with bounds of what it gives that hold in the scope."""


@runtime_checkable
class Cut(Protocol):
    """P of one group at one scope, with bounds of what it gives."""

    @property
    def mask(self) -> Mask: ...

    @property
    def off(self) -> Any: ...  # [1 or m, n]

    @property
    def gap(self) -> Any: ...  # [1 or m, n]

    def transpose(self, kappa: Any) -> list[tuple[int, Any]]:
        """P^T kappa, source by source."""


Choice = tuple[Any, Sequence[tuple[Any, Cut]]]
"""mu [m, n] of a group, and its cuts with their kappa [m, n]."""

Choose = Callable[[int, Any], Choice]
"""Multipliers of group k, given r [m, n].  Whatever they are, the bound is sound."""


@dataclass(frozen=True, eq=False)
class Target:
    """m functions q.t + d.x_0 + e of layer k; `_size` bounds what was added up for each, before anything cancels."""

    layer: int
    q: Any
    q_size: Array
    d: Any
    d_size: Array
    e: Any
    e_size: Array
    summands: int


@dataclass(frozen=True, eq=False)
class Plane:
    """offset + slope.x_0 - error is nowhere above the target in its scope, for each of m rows."""

    offset: Any
    slope: Any
    error: Array

    def minimum(self, lower: Any, upper: Any) -> Any:
        """Over boxes [.., n0] inside of the scope's."""
        return self.offset + np.minimum(self.slope * lower, self.slope * upper).sum(axis=-1) - self.error

    def least(self, lower: Array, upper: Array) -> Array:
        """The same; minus infinity if anything is not a number."""
        found = self.minimum(lower, upper)
        return np.where(np.isfinite(found), found, -np.inf)


@dataclass(frozen=True, eq=False)
class Step:
    """What was at one group: r, and the multipliers."""

    k: int
    r: Any
    mu: Any
    cuts: Sequence[tuple[Any, Cut]]


def plane(net: Network, scope: Scope, target: Target, choose: Choose) -> tuple[Plane, list[Step]]:
    """The right-hand side of the inequality, with the error gamma_N S; and how it came about.  See above.

    The scope has one row for each row of the target, or one for all.
    """
    offset, slope, steps = evaluated(net, scope, target, choose)
    cuts = sum(len(step.cuts) for step in steps)
    summands = target.summands + 8 * cuts * max(len(layer.terms) for layer in net.layers)
    return Plane(offset, slope, allowance(net, _price(scope, target, slope, steps), summands)), steps


def evaluated(net: Network, scope: Scope, target: Target, choose: Choose) -> tuple[Any, Any, list[Step]]:
    """The offset and the slope r_0, for floats and for rationals alike."""
    r: dict[int, Any] = {0: target.d}
    mu, cuts, offset, steps = target.q, (), target.e, []  # type: Any, Sequence[tuple[Any, Cut]], Any, list[Step]
    for k in range(target.layer, 0, -1):
        layer = net.layers[k - 1]
        if k < target.layer:
            coefficient = r.pop(k) if k in r else np.zeros((len(mu), layer.outputs))
            mu, cuts = choose(k, coefficient)
            if any((kappa > 0).any() for kappa, _ in cuts):  # what is no number makes S infinite
                raise Rejected("a kappa is not at most zero")
            offset = offset + _least(scope, k, coefficient, mu, cuts).sum(axis=1)
            steps.append(Step(k, coefficient, mu, cuts))
        offset = offset + (mu * layer.bias_of(mu)).sum(axis=1)
        for source, part in [*layer.transpose(mu), *(part for kappa, cut in cuts for part in cut.transpose(kappa))]:
            r[source] = r[source] + part if source in r else part
    return offset, r[0], steps


def _least(scope: Scope, k: int, r: Any, mu: Any, cuts: Sequence[tuple[Any, Cut]]) -> Any:
    """h [m, n] of a group."""
    function = scope.functions[k - 1]
    if function.bends_at_zero:
        return _relus(scope, k, r, mu, cuts)
    if cuts:
        raise Rejected(f"group {k} has cuts, but no ReLUs")
    return function.least(r, mu, (scope.lower[k - 1], scope.upper[k - 1]))


def _relus(scope: Scope, k: int, r: Any, mu: Any, cuts: Sequence[tuple[Any, Cut]]) -> Any:
    """h [m, n]; where the bounds of a neuron exclude each other it means nothing, and S is infinite."""
    low, high = scope.lower[k - 1], scope.upper[k - 1]
    rest, passed, blocked = r - mu, 0, 0  # type: Any, Any, Any
    for kappa, cut in cuts:
        rest = rest - kappa
        passed = passed + kappa * cut.gap
        blocked = blocked - kappa * cut.off
    passes = passed + np.minimum(rest * np.maximum(low, 0), rest * high)
    blocks = blocked - np.maximum(mu * low, mu * np.minimum(high, 0))
    either = where(low > 0, passes, blocks)
    return where((low <= 0) & (high >= 0), np.minimum(passes, blocks), either)


def _price(scope: Scope, target: Target, slope: Array, steps: Sequence[Step]) -> Array:
    """S of docs/proofs.md."""
    price = target.e_size + _dot(target.d_size + np.abs(slope), scope.largest(0))
    price = price + _dot(target.q_size, scope.sizes[target.layer - 1])
    for step in steps:
        size, cut = np.abs(step.mu), -sum((kappa for kappa, _ in step.cuts), np.zeros((1, 1)))
        if scope.functions[step.k - 1].bends_at_zero:
            price = price + _dot(np.abs(step.r) + cut + size, scope.widest(step.k))
        else:
            price = price + _dot(np.abs(step.r), scope.largest(step.k)) + _dot(size, scope.widest(step.k))
        price = price + _dot(size + 2 * cut, scope.sizes[step.k - 1])
    return 4 * price


def _dot(rows: Array, values: Array) -> Array:
    found: Array = (rows * values).sum(axis=1)
    return found
