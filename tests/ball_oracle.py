"""Exact oracle for balls: plain numpy and scipy, nothing from package `verifier`.

The ReLU patterns of a small network are enumerated.  On each the output is affine on a polytope, and the least value of
an affine function over polytope, box and ball is a convex program: in the sum norm a linear one, in the Euclidean norm
one with a single cone, whose dual is concave in the multipliers of all rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

Array = NDArray[np.float64]
Layer = tuple[Array, Array]  # weight [m, k], bias [m]


@dataclass(frozen=True)
class BallCase:
    """norm_p(weight (x - centre)) <= radius and low <= x <= high."""

    p: int
    centre: Array
    weight: Array
    radius: float
    low: Array
    high: Array

    def holds(self, x: Array) -> NDArray[np.bool_]:
        far = np.linalg.norm(self.weight * (x - self.centre), self.p, axis=-1)
        inside: NDArray[np.bool_] = (far <= self.radius) & ((self.low <= x) & (x <= self.high)).all(axis=-1)
        return inside

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Points of the set: directions of all kinds, on the sphere and inside, cut off at the box."""
        n = len(self.centre)
        z = rng.normal(size=(count, n)) * (rng.random((count, n)) < rng.uniform(0.2, 1.0, size=(count, 1)))
        length = np.linalg.norm(z, self.p, axis=1, keepdims=True)
        z = z / np.where(length > 0, length, 1.0) * self.radius * rng.random((count, 1)) ** (1 / n)
        x = np.clip(self.centre + z / self.weight, self.low, self.high)
        return x[self.holds(x)]


def least(a: Array, case: BallCase, rows: tuple[Array, Array]) -> float:
    """min a . x over the set and G x <= h; inf if that is empty."""
    return _linear(a, case, rows) if case.p == 1 else _conic(a, case, rows)


def _linear(a: Array, case: BallCase, rows: tuple[Array, Array]) -> float:
    """Variables x and s >= |weight (x - centre)|, whose sum is at most the radius."""
    n, (normals, h) = len(a), rows
    W, eye, shift = np.diag(case.weight), np.eye(n), case.weight * case.centre
    A = np.block([[normals, np.zeros((len(normals), n))], [W, -eye], [-W, -eye], [np.zeros((1, n)), np.ones((1, n))]])
    b = np.concatenate([h, shift, -shift, [case.radius]])
    bounds = [*zip(case.low, case.high, strict=True), *[(0, None)] * n]
    found = linprog(np.concatenate([a, np.zeros(n)]), A, b, bounds=bounds, method="highs")
    return float(found.fun) if found.status == 0 else np.inf


def _conic(a: Array, case: BallCase, rows: tuple[Array, Array]) -> float:
    """In units in which the ball is the unit ball, by SLSQP from the best start; checked for being feasible."""
    n, (normals, h) = len(a), rows
    scale = case.radius / case.weight
    A = np.concatenate([normals, np.eye(n), -np.eye(n)]) * scale
    b = np.concatenate([h, case.high, -case.low]) - np.concatenate([normals, np.eye(n), -np.eye(n)]) @ case.centre
    inside = _deepest(A, b)
    if inside is None:
        return np.inf
    c = a * scale
    constraints = [
        {"type": "ineq", "fun": lambda z: b - A @ z, "jac": lambda z: -A},
        {"type": "ineq", "fun": lambda z: np.array([1.0 - z @ z]), "jac": lambda z: -2.0 * z[None]},
    ]
    best = np.inf
    for start in (inside, 0.5 * inside, np.zeros(n)):
        found = minimize(
            lambda z: c @ z, start, jac=lambda z: c, method="SLSQP", constraints=constraints,
            options={"maxiter": 500, "ftol": 1e-13},
        )  # fmt: skip
        feasible = (A @ found.x <= b + 1e-7).all() and found.x @ found.x <= 1.0 + 1e-7
        if feasible:
            best = min(best, float(found.fun))
    return best + float(a @ case.centre)


def _deepest(A: Array, b: Array) -> Array | None:
    """A point of the unit ball and the polytope; None if there is none (up to 1e-9)."""
    found = minimize(
        lambda z: z @ z, np.zeros(A.shape[1]), jac=lambda z: 2 * z, method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda z: b - A @ z, "jac": lambda z: -A}],
        options={"maxiter": 500, "ftol": 1e-14},
    )  # fmt: skip
    near = (A @ found.x <= b + 1e-9).all() and found.x @ found.x <= 1.0 + 1e-9
    return found.x if near else None


def minimum(layers: list[Layer], case: BallCase, c: Array) -> float:
    """The exact minimum of c . y over the set, by all patterns of the ReLUs that the box does not settle."""
    best = np.inf
    widths = [len(bias) for _, bias in layers[:-1]]
    for signs in itertools.product((0.0, 1.0), repeat=sum(widths)):
        M, v = np.eye(len(case.centre)), np.zeros(len(case.centre))
        normals, h, place, empty = [], [], 0, False
        for (W, bias), width in zip(layers[:-1], widths, strict=True):
            M, v = W @ M, W @ v + bias
            on = np.array(signs[place : place + width])
            place += width
            side = np.where(on > 0, -1.0, 1.0)
            normals.append(side[:, None] * M)
            h.append(-side * v)
            size = np.maximum(case.low * normals[-1], case.high * normals[-1]).sum(axis=1)
            least_side = np.minimum(case.low * normals[-1], case.high * normals[-1]).sum(axis=1)
            empty = bool((least_side > h[-1]).any())
            keep = size > h[-1]
            normals[-1], h[-1] = normals[-1][keep], h[-1][keep]
            if empty:
                break
            M, v = on[:, None] * M, on * v
        if empty:
            continue
        W, bias = layers[-1]
        value = least(c @ W @ M, case, (np.concatenate(normals), np.concatenate(h)))
        best = min(best, value + float(c @ (W @ v + bias)))
    return best
