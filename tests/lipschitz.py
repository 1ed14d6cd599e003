"""Minima of small networks of any functions, by Lipschitz constants: plain numpy, no bounds of the package.

Over a cube with radius r around a point, no function with Lipschitz constant L (for the largest entry) is further than
L r from its value there.  Cubes that cannot hold the minimum are dropped, the others are cut in all directions, until
what the value of their centres leaves open is small enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from verifier.network.network import Network

MOST_CUBES = 400_000


def _sigmoid(t: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-t))


@dataclass(frozen=True)
class Bent:
    """A function of one number, and how steep it can be for |t| <= r; `size` bounds its values there."""

    value: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    size: Callable[[np.ndarray], np.ndarray]


KINDS = {
    "Relu": Bent(lambda t: np.maximum(t, 0), np.ones_like, lambda r: r),
    "Sigmoid": Bent(_sigmoid, lambda r: np.full_like(r, 0.25), np.ones_like),
    "Tanh": Bent(np.tanh, np.ones_like, np.ones_like),
    "Sin": Bent(np.sin, np.ones_like, np.ones_like),
    "Cos": Bent(np.cos, np.ones_like, np.ones_like),
    "Exp": Bent(np.exp, np.exp, np.exp),
}


@dataclass(frozen=True, eq=False)
class Twin:
    """The same network as dense matrices of numpy."""

    layers: list[tuple[list[tuple[int, np.ndarray]], np.ndarray, str]]

    @classmethod
    def of(cls, net: Network) -> Twin:
        layers = []
        for layer in net.layers:
            terms = [(j, term.forward(torch.eye(term.n_in, dtype=torch.float64)).T.numpy()) for j, term in layer.terms]
            layers.append((terms, layer.bias.numpy(), layer.function.name))
        return cls(layers)

    def values(self, x: np.ndarray) -> np.ndarray:
        """y at points [P, n0]."""
        known = [x]
        for terms, bias, name in self.layers[:-1]:
            known.append(_applied(name, sum(known[j] @ w.T for j, w in terms) + bias))
        terms, bias, _ = self.layers[-1]
        return np.asarray(sum(known[j] @ w.T for j, w in terms) + bias)

    def steepness(self, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """A Lipschitz constant of each output on the box, for the largest entry of x."""
        size, steep = [np.maximum(np.abs(lower), np.abs(upper))], [np.ones_like(lower)]
        for terms, bias, name in self.layers[:-1]:
            r = sum(np.abs(w) @ size[j] for j, w in terms) + np.abs(bias)
            d = sum(np.abs(w) @ steep[j] for j, w in terms)
            if name == "Product":
                (r_p, r_q), (d_p, d_q) = np.split(r, 2), np.split(d, 2)
                r, d = r_p * r_q, r_p * d_q + r_q * d_p
            else:
                r, d = KINDS[name].size(r), KINDS[name].slope(r) * d
            size.append(r)
            steep.append(d)
        return np.asarray(sum(np.abs(w) @ steep[j] for j, w in self.layers[-1][0]))


def _applied(name: str, t: np.ndarray) -> np.ndarray:
    if name == "Product":
        p, q = np.split(t, 2, axis=-1)
        return p * q
    return KINDS[name].value(t)


def minimum(
    net: Network, box: tuple[np.ndarray, np.ndarray], A: np.ndarray, c: np.ndarray, within: float
) -> tuple[float, float] | None:
    """Bounds of the least value of max_i (A y - c)_i on a box, at most `within` apart; None if that takes too long."""
    twin, (lower, upper) = Twin.of(net), box
    steep = float((np.abs(A) @ twin.steepness(lower, upper)).max()) * (1 + 1e-9)
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=len(lower))))
    centre, radius = (lower + upper)[None] / 2, (upper - lower) / 2
    best = np.inf
    while len(centre) <= MOST_CUBES:
        value = (twin.values(centre) @ A.T - c).max(axis=1)
        best = min(best, float(value.min()))
        reach = steep * float(radius.max())
        if reach <= within:
            return best - reach, best
        kept = centre[value - reach <= best]
        radius = radius / 2
        centre = (kept[:, None] + corners * radius).reshape(-1, len(lower))
    return None
