"""Bounds of many functions in many scopes, each by the inequality with multipliers of its own.

The rows of several nodes are put below each other and bounded together: numpy is fast with many rows only.  Each row
has the scope of its node, so nothing that holds in one place is used in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .inequality import Choice, Plane, Step, Target, evaluated, plane
from .network import Network
from .rationals import Array, Rationals
from .scope import UNIT, Scope, image
from .stream import Rejected
from .vnnlib import Clause
from .witness import Witness, Witnesses

_NUMBERS = 1 << 18
"""So many of each kind are held at a time; a row needs as many as the network has room for."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What a proof is about, and how it is judged."""

    net: Network
    clauses: Sequence[Clause]
    exact: bool = False

    @property
    def output(self) -> int:
        return self.net.groups + 1

    @property
    def rows(self) -> int:
        """How many rows are bounded together."""
        return max(1, _NUMBERS // self.net.room)


@dataclass(frozen=True, eq=False)
class Claim:
    """Functions to be bounded in a scope, by its number, and multipliers; `sharp` is the target without rounding."""

    scope: int
    target: Target
    witness: Witness
    sharp: Target | None = None

    def __len__(self) -> int:
        return len(self.target.q)


@dataclass(frozen=True, eq=False)
class Proved:
    """Planes below the functions of some claims, and the same in rationals if these shall confirm every bound."""

    plane: Plane
    sharp: Plane | None = None

    def least(self, low: Array, high: Array) -> Array:
        """Over boxes [m or 1, n0], or [.., 1, n0] for each of them."""
        found = self.plane.least(low, high)
        if self.sharp is not None:
            exact = self.sharp.minimum(Rationals.of(low), Rationals.of(high))
            confirm(exact, found, "a bound")
        return found

    def rows(self, some: slice) -> Proved:
        """Some of the functions."""
        one, two = self.plane, self.sharp
        part = Plane(one.offset[some], one.slope[some], one.error[some])
        return Proved(part, two and Plane(two.offset[some], two.slope[some], two.error[some]))


def proved(setting: Setting, scopes: Scope, claims: Iterable[Claim]) -> Iterator[tuple[Scope, Proved]]:
    """Planes for all functions of all claims in their order, some at a time, with the scopes of their rows."""
    waiting: list[Claim] = []
    count = 0
    for claim in claims:
        alone = setting.exact or claim.witness.single
        if waiting and (alone or waiting[0].witness.single or count + len(claim) > setting.rows):
            yield _together(setting, scopes, waiting)
            waiting, count = [], 0
        waiting.append(claim)
        count += len(claim)
    if waiting:
        yield _together(setting, scopes, waiting)


def _together(setting: Setting, scopes: Scope, claims: Sequence[Claim]) -> tuple[Scope, Proved]:
    counts = [len(claim) for claim in claims]
    own = scopes.rows(np.repeat([claim.scope for claim in claims], counts))
    target = _joined([claim.target for claim in claims])
    choose = Witnesses(counts, [claim.witness for claim in claims]).chooser(setting.net, own)
    found, steps = plane(setting.net, own, target, choose)
    if not setting.exact:
        return own, Proved(found)
    (claim,) = claims
    return own, Proved(found, _sharp(setting.net, own, claim.sharp or exact_target(target), found, steps))


def _joined(targets: Sequence[Target]) -> Target:
    if len(targets) == 1:
        return targets[0]
    q, q_size, d, d_size, e, e_size = (
        np.concatenate([getattr(target, name) for target in targets])
        for name in ("q", "q_size", "d", "d_size", "e", "e_size")
    )
    return Target(targets[0].layer, q, q_size, d, d_size, e, e_size, max(target.summands for target in targets))


def least(setting: Setting, scopes: Scope, claims: Iterable[Claim]) -> Array:
    """The bounds of all functions of all claims, in their order."""
    parts = [found.least(own.low, own.high) for own, found in proved(setting, scopes, claims)]
    return np.concatenate(parts) if parts else np.zeros(0)


def confirm_all(setting: Setting, scopes: Scope, claims: Iterable[Claim], bounds: Array) -> None:
    """Raises Rejected unless rational arithmetic confirms bounds of all functions that were found in another way."""
    start = 0
    for own, found in proved(setting, scopes, claims):
        end = start + len(found.plane.error)
        sharp = found.sharp.minimum(Rationals.of(own.low), Rationals.of(own.high)) if found.sharp else -np.inf
        confirm(sharp, bounds[start:end], "a bound")
        start = end


# -- in rational arithmetic --------------------------------------------------------------------------------------------


def _sharp(net: Network, scope: Scope, target: Target, found: Plane, steps: Sequence[Step]) -> Plane | None:
    """What `plane` gives for the same multipliers, without rounding; None if it proves nothing.

    Nothing of the analysis of rounding is believed here.  The multipliers are the floats that were used, so the numbers
    do not grow with the depth of the network.  The error is zero, unless the network itself has numbers that are no
    rationals (the roots of normalisations), which are known up to so many of the N roundings.
    """
    usable = np.isfinite(found.error)
    if not usable.any():
        return None
    sharp, chosen = scope.exact(range(target.layer)), {step.k: step for step in steps}

    def of(numbers: Array) -> Rationals:
        return Rationals.of(np.where(usable[:, None], numbers, 0.0))  # other rows have no bound to be confirmed

    def replay(k: int, r: Any) -> Choice:
        layer, step = net.layers[k - 1], chosen[k]
        return of(step.mu), [(of(kappa), cut.mask.at(layer, sharp)) for kappa, cut in step.cuts]

    offset, slope, _ = evaluated(net, sharp, target, replay)
    share = Rationals.of(np.array(Fraction(2 * net.roundings, net.depth), dtype=object))
    return Plane(offset, slope, share * np.where(usable, found.error, 0.0))


def exact_target(target: Target) -> Target:
    """A target whose floats are the numbers meant, in rationals."""
    return replace(target, q=Rationals.of(target.q), d=Rationals.of(target.d), e=Rationals.of(target.e))


def confirm(exact: Any, claims: Array, what: str) -> None:
    """Raises Rejected unless the numbers are at least what is claimed, minus infinity aside."""
    known = np.isfinite(claims)
    if not (~known | (exact >= np.where(known, claims, 0.0))).all():
        raise Rejected(f"exact arithmetic does not confirm {what}")


def confirm_interval(net: Network, scope: Scope, k: int, low: Array, high: Array) -> None:
    """The same for the intervals of layer k."""
    known = np.isfinite(low) & np.isfinite(high)
    if known.any():
        centre, radius = image(net.layers[k - 1], scope.exact(net.layers[k - 1].sources))
        radius = radius + 32 * net.roundings * UNIT * Rationals.of(np.where(known, scope.sizes[k - 1], 0.0))
        confirm(centre - radius, low, "an interval")
        confirm(-centre - radius, -high, "an interval")
