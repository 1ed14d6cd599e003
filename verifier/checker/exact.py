"""The inequality once more, in rational arithmetic: every bound that float64 gave must be one.

Nothing of the analysis of rounding is believed here.  The multipliers are the floats that were used, so the numbers do
not grow with the depth of the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from .inequality import Choice, Choose, Plane, Target, evaluated
from .maps import Array, rational
from .network import Network
from .scope import UNIT, Scope, image
from .stream import Rejected


def recorded(choose: Choose, record: dict[int, Choice]) -> Choose:
    """The same multipliers, kept by group."""

    def choose_and_keep(k: int, r: Array) -> Choice:
        record[k] = choose(k, r)
        return record[k]

    return choose_and_keep


def exact_plane(net: Network, scope: Scope, target: Target, record: Mapping[int, Choice]) -> Plane:
    """What `plane` gives for the same multipliers, without rounding.  Requires a target in rationals.

    The error is zero, unless the network itself has numbers that are no rationals (the roots of normalisations), which
    are known up to some roundings.
    """
    sharp = scope.exact(target.layer)

    def replay(k: int, r: Array) -> Choice:
        mu, cuts = record[k]
        layer = net.exact.layers[k - 1]
        return rational(mu), [(rational(kappa), cut.mask.at(layer, sharp)) for kappa, cut in cuts]

    offset, slope, price, _ = evaluated(net.exact, sharp, target, replay)
    return Plane(offset, slope, _slack(net) * price)


def require_confirmed(exact: Plane, low: Array, high: Array, claims: Array) -> None:
    """Raises Rejected unless the minima of the planes over a box are at least what is claimed, minus infinity aside."""
    low, high = rational(low), rational(high)
    found = exact.offset + np.minimum(exact.slope * low, exact.slope * high).sum(axis=1) - exact.error
    for value, claim in zip(found, claims, strict=True):
        if claim != -np.inf and not (isinstance(value, Fraction) and value >= Fraction(claim)):
            raise Rejected("exact arithmetic does not confirm a bound")


def require_confirmed_interval(net: Network, scope: Scope, k: int, low: Array, high: Array) -> None:
    """The same for the intervals of layer k."""
    sharp = scope.exact(k)
    centre, radius = image(net.exact.layers[k - 1], sharp)
    slack = _slack(net) * 8 * sharp.sizes[k - 1]
    for c, r, below, above in zip(centre, radius + slack, low, high, strict=True):
        if not (Fraction(below) <= c - r and c + r <= Fraction(above)):
            raise Rejected("exact arithmetic does not confirm an interval")


def _slack(net: Network) -> Fraction:
    gamma = Fraction(2 * net.roundings) * Fraction(UNIT)
    return gamma / (1 - gamma)


def exact_target(target: Target) -> Target:
    """A target whose floats are the numbers meant, in rationals."""
    sizes = {"q_size": rational(target.q_size), "d_size": rational(target.d_size), "e_size": rational(target.e_size)}
    parts = {"q": rational(target.q), "d": rational(target.d), "e": rational(target.e)}
    return Target(layer=target.layer, summands=target.summands, **sizes, **parts)
