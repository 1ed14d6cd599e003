"""Bounds of all neurons of a group at once, by going forward: what one sweep back with slopes u / (u - l) gives each.

Every value is written as

    v_i  =  c_i + sum_s G_si e_s + f_i        with unknown |e_s| <= 1, the same in all values, and |f_i| <= error_i.

The input has one e for each entry that is not fixed.  An affine layer maps c and G.  A ReLU of t in [l, u] with
l < 0 < u becomes, for ANY a in [0, 1],

    x - a t = (1 - a) t  lies in [0, (1 - a) u]   where it passes,
              -a t       lies in [0, -a l]        where it blocks;   so   x = a t + h + h e,  2 h = max((1 - a) u, -a l)

with a new e.  Those that pass are a = 1, those that block are a = 0, both with h = 0.  Then t lies in
c -+ (sum_s |G_s| + error).  Since e's are shared, this is the bound that `inequality.plane` has for mu = a r.

Rounding.  Let A_i = |c_i| + sum_s |G_si| + error_i.  Entries of a ReLU's form go through at most four roundings, those
of a layer through `Layer.depth` and three more, the sum over s through as many as there are.  N counts them all, so
gamma_N (|W| A + |b|) is more than what they lose in a ReLU and the layer behind it; that and |W| error is the error of
the layer.  The factor 2 in gamma_N pays for the rounding of A and of the error itself, and for products of errors.
Underflow costs less than TINY in each layer, since no A is above LARGEST and no chain magnifies by more; otherwise the
error is infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .maps import Chain
from .network import Layer, Network
from .rationals import Array, Ints
from .scope import LARGEST, TINY, UNIT, Scope


@dataclass(frozen=True, eq=False)
class Form:
    """Values in d scopes: c [d, n]; G [d, s, n] for the first unknowns, and for the next ones h [d, a] at `places` [a].

    `spread` is sum_s |G_s| + error, both parts of G included.
    """

    centre: Array
    dense: Array
    places: Ints
    own: Array
    error: Array
    spread: Array

    @property
    def unknowns(self) -> int:
        return int(self.dense.shape[1]) + len(self.places)

    @property
    def size(self) -> Array:
        """A"""
        found: Array = np.abs(self.centre) + self.spread
        return found


def of_input(scope: Scope) -> Form:
    middle, radius = scope.middle(0)
    places = np.flatnonzero((radius > 0).any(axis=0))
    none = np.zeros((len(middle), 0, middle.shape[1]))
    return Form(middle, none, places, radius[:, places], np.zeros_like(middle), radius)


def of_layer(net: Network, layer: Layer, forms: Mapping[int, Form]) -> Form:
    """Of what a layer gives, from the forms of what it reads."""
    reads = {j: forms[j] for j in layer.sources}
    count, d = max(form.unknowns for form in forms.values()), len(forms[0].centre)
    dense = np.zeros((d, count, layer.size))
    for j, chain in layer.terms:
        form = forms[j]
        s, a = form.dense.shape[1], len(form.places)
        dense[:, :s] += _rows(net, chain, form.dense.reshape(d * s, chain.n_in)).reshape(d, s, layer.size)
        unit = np.zeros((a, chain.n_in))
        unit[np.arange(a), form.places] = 1.0
        dense[:, s : s + a] += form.own[:, :, None] * _rows(net, chain, unit)
    centre = layer.moved(layer.forward({j: form.centre for j, form in reads.items()}))
    gamma = 2.0 * (layer.depth + count + 16) * UNIT
    gamma = gamma / (1.0 - gamma)
    lost = layer.absolute.forward({j: form.error + gamma * form.size for j, form in reads.items()})
    usable = np.full((d, 1), net.gain <= LARGEST)
    for form in reads.values():
        usable &= (form.size <= LARGEST).all(axis=1, keepdims=True)
    error = np.where(usable, (1.0 + gamma) * lost + gamma * layer.absolute.bias + TINY, np.inf)
    spread = (1.0 + gamma) * (np.abs(dense).sum(axis=1) + error)
    return Form(centre, dense, np.zeros(0, np.int64), np.zeros((d, 0)), error, spread)


def _rows(net: Network, chain: Chain, rows: Array) -> Array:
    """Through a chain, so many at a time that memory suffices."""
    some = max(1, (1 << 22) // net.room)
    parts = [chain.forward(rows[start : start + some]) for start in range(0, max(len(rows), 1), some)]
    return np.concatenate(parts)


def bounds(form: Form) -> tuple[Array, Array]:
    """Of the values of a layer; infinite where the analysis of rounding does not hold."""
    usable = form.size <= LARGEST
    low, high = form.centre - form.spread, form.centre + form.spread
    return np.where(usable, low, -np.inf), np.where(usable, high, np.inf)


def of_group(form: Form, low: Array, high: Array) -> Form:
    """Of a group's outputs, given its values' form and their bounds [d, n]; no numbers where these cross."""
    ambiguous = (low < 0) & (high > 0)
    slope = np.where(ambiguous, np.clip(high / (high - low), 0.0, 1.0), np.where(low >= 0, 1.0, 0.0))
    slope = np.where(low <= high, slope, np.nan)
    half = np.where(ambiguous, 0.5 * np.maximum((1.0 - slope) * high, -slope * low), 0.0)
    places = np.flatnonzero(ambiguous.any(axis=0))
    spread = slope * form.spread + half
    dense = slope[:, None] * form.dense
    return Form(slope * form.centre + half, dense, places, half[:, places], slope * form.error, spread)
