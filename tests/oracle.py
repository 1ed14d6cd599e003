"""Exact oracle for random small networks: plain numpy and HiGHS, nothing from package `verifier`.

    net = chain([(W1, b1), (W2, b2)])                      # a ReLU between the layers, none after the last
    net = dag(n_in, [((0,), (W1,), b1), ((0, 1), (V0, V1), c1)])   # the last entry is the output

    minimum(net, (lower, upper), c, d)                     # min over the box of c . y + d
    minimum_of_max(net, (lower, upper), A, c, B)           # min over the box of max_i (A y + B x - c)_i
    planet_lp(net, (lower, upper), bounds, c, d)           # the same objective over the Planet relaxation

The work is done by scripts/exact.py, which also confirms the verdicts of properties/.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
if str(SCRIPTS) not in sys.path:
    sys.path.insert(0, str(SCRIPTS))

from exact import enumerated_minimum, milp_minimum, planet_minimum, tightened_bounds  # noqa: E402
from exact_network import Affine, Bounds, Dag, Minimum, Rows, crown_bounds, interval_bounds  # noqa: E402

__all__ = [
    "Affine", "Bounds", "Dag", "Minimum", "Rows", "chain", "crown", "dag", "interval", "minimum", "minimum_of_max",
    "planet_lp", "planet_lp_of_max", "random_box", "random_chain", "random_dag", "tightened",
]  # fmt: skip

Layer = tuple[np.ndarray, np.ndarray]  # weight [m, k], bias [m]
Node = tuple[Sequence[int], Sequence[np.ndarray], np.ndarray]  # sources, one weight each, bias


def chain(layers: Sequence[Layer]) -> Dag:
    """A feed-forward network; ReLU after every layer but the last."""
    return dag(layers[0][0].shape[1], [((k,), (weight,), bias) for k, (weight, bias) in enumerate(layers)])


def dag(n_in: int, nodes: Sequence[Node]) -> Dag:
    """A DAG of affine maps; source 0 is the input, source k the ReLU of node k (from 1); the last is the output."""
    built = [
        Affine(tuple(sources), tuple(np.asarray(w, dtype=float) for w in weights), np.asarray(bias, dtype=float))
        for sources, weights, bias in nodes
    ]
    sizes = [n_in] + [len(node.bias) for node in built]
    for k, node in enumerate(built):
        for j, weight in zip(node.sources, node.weights, strict=True):
            if not (0 <= j <= k and weight.shape == (len(node.bias), sizes[j])):
                raise ValueError(f"node {k + 1}: source {j} does not fit a weight of shape {weight.shape}")
    return Dag(n_in, tuple(built[:-1]), built[-1])


def minimum_of_max(
    net: Dag, box: tuple[np.ndarray, np.ndarray], A: ArrayLike, c: ArrayLike, B: ArrayLike | None = None,
    method: str = "milp",
) -> Minimum:  # fmt: skip
    """Exact minimum over the box of max_i (A y + B x - c)_i, its proved lower bound and a minimiser.

    `method`: `milp`, or `enumeration` of activation patterns (at most 12 ambiguous ReLUs). A pure input row is a row
    with A_i = 0; it takes part in the maximum like the others.
    """
    rows = _rows(A, c, B)
    if method == "milp":
        return milp_minimum(net, _box(box), rows)
    if method == "enumeration":
        return enumerated_minimum(net, _box(box), rows)
    raise ValueError(f"unknown method {method}")


def minimum(net: Dag, box: tuple[np.ndarray, np.ndarray], c: ArrayLike, d: float = 0.0, method: str = "milp") -> float:
    """Exact minimum over the box of c . y + d."""
    return minimum_of_max(net, box, np.atleast_2d(c), np.array([-d]), method=method).value


def planet_lp_of_max(
    net: Dag,
    box: tuple[np.ndarray, np.ndarray],
    bounds: Bounds,
    A: ArrayLike,
    c: ArrayLike,
    B: ArrayLike | None = None,
) -> float:
    """Optimum of min max_i (A y + B x - c)_i over the Planet relaxation; inf if the relaxation is empty.

    `bounds`: (l_hat, u_hat) of every group, used as given. After each ReLU l <= x <= u holds too, and x_hat <= 0 where
    u_hat <= 0: bounds cut by a split act as constraints. By LP duality this is also the best choice of row weights.
    """
    return planet_minimum(net, _box(box), _rows(A, c, B), bounds)


def planet_lp(net: Dag, box: tuple[np.ndarray, np.ndarray], bounds: Bounds, c: ArrayLike, d: float = 0.0) -> float:
    """Optimum of c . y + d over the Planet relaxation with the given intermediate bounds."""
    return planet_lp_of_max(net, box, bounds, np.atleast_2d(c), np.array([-d]))


def interval(net: Dag, box: tuple[np.ndarray, np.ndarray]) -> Bounds:
    """(l_hat, u_hat) of every group by interval arithmetic."""
    return interval_bounds(net, _box(box))


def crown(net: Dag, box: tuple[np.ndarray, np.ndarray]) -> Bounds:
    """(l_hat, u_hat) of every group, best of interval arithmetic and CROWN."""
    return crown_bounds(net, _box(box))


def tightened(net: Dag, box: tuple[np.ndarray, np.ndarray]) -> Bounds:
    """(l_hat, u_hat) of every group by Planet LPs, group by group."""
    return tightened_bounds(net, _box(box))


def _box(box: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(box[0], dtype=float), np.asarray(box[1], dtype=float)


def _rows(A: ArrayLike, c: ArrayLike, B: ArrayLike | None) -> Rows:
    return Rows(
        np.asarray(A, dtype=float), np.asarray(c, dtype=float), None if B is None else np.asarray(B, dtype=float)
    )


# ---------------------------------------------------------------- random instances


def random_chain(rng: np.random.Generator, sizes: Sequence[int]) -> Dag:
    """Feed-forward with the given widths (input first, output last), normal weights of unit gain."""
    pairs = itertools.pairwise(sizes)
    return chain([(rng.normal(size=(m, k)) / np.sqrt(k) * 1.5, 0.5 * rng.normal(size=m)) for k, m in pairs])


def random_dag(rng: np.random.Generator, n_in: int, widths: Sequence[int], n_out: int) -> Dag:
    """Every node takes its predecessor and, with even odds, each earlier source too: skip connections of all kinds."""
    sizes = [n_in, *widths]
    nodes: list[Node] = []
    for k, width in enumerate([*widths, n_out]):
        sources = [j for j in range(k + 1) if j == k or rng.random() < 0.5]
        weights = [rng.normal(size=(width, sizes[j])) / np.sqrt(sizes[j]) for j in sources]
        nodes.append((sources, weights, 0.5 * rng.normal(size=width)))
    return dag(n_in, nodes)


def random_box(rng: np.random.Generator, n: int, radius: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """A box around a random point, widths up to 2 * radius."""
    centre, width = rng.normal(size=n), radius * rng.uniform(0.2, 1.0, size=n)
    return centre - width, centre + width
