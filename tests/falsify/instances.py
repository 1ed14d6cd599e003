"""Small instances whose answers are known, and exact judges that share no code with the falsifier."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.clock import Clock
from verifier.falsify.base import Falsifier
from verifier.falsify.target import Target
from verifier.network.network import Affine, Network
from verifier.operators import Dense
from verifier.property.problem import Problem, canonicalise
from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows
from verifier.result.counterexample import Counterexample, Runnable

Row = tuple[dict[int, object], dict[int, object], object]
"""Coefficients of y, coefficients of x, bound; anything that Fraction reads."""


class Float32Model:
    """The network evaluated in float32: stands for the original file.  `shift` makes it disagree with the network."""

    def __init__(self, network: Network, shift: float = 0.0) -> None:
        self.network = network.to(dtype=torch.float32)
        self.shift = shift
        self.asked = 0

    def run(self, x: NDArray[np.float32]) -> NDArray[np.floating]:
        assert x.dtype == np.float32
        self.asked += x.size // self.network.n_in
        return self.network.forward(torch.from_numpy(x)).numpy() + np.float32(self.shift)


def row(y: dict[int, object], bound: object, x: dict[int, object] | None = None, strict: bool = False) -> ExactRow:
    """sum of y and x terms <= bound."""

    def terms(given: dict[int, object]) -> tuple[tuple[int, Fraction], ...]:
        return tuple((i, Fraction(value)) for i, value in sorted(given.items()))  # type: ignore[arg-type]

    return ExactRow(terms(y), terms(x or {}), Fraction(bound), strict)  # type: ignore[arg-type]


def boxes(lower: Sequence[Sequence[object]], upper: Sequence[Sequence[object]]) -> Boxes:
    """Boxes [N, n_x] of decimals, given as strings or numbers."""

    def enclosed(bounds: Sequence[Sequence[object]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        exact = [[Fraction(value) for value in line] for line in bounds]  # type: ignore[arg-type]
        near = np.array([[float(value) for value in line] for line in exact])
        side = np.array([[(float(v) > v) - (float(v) < v) for v in line] for line in exact])
        below, above = np.nextafter(near, -np.inf), np.nextafter(near, np.inf)
        return np.where(side > 0, below, near), np.where(side < 0, above, near)

    return Boxes.enclosed(enclosed(lower), enclosed(upper))


def problem(network: Network, box: Boxes, clauses: Sequence[tuple[int, Sequence[ExactRow]]]) -> Problem:
    """An instance; each clause is the number of its box and its rows."""
    n_x, n_y = network.n_in, network.n_out
    made = [Clause(b, RoundedRows.of(rows, n_x, n_y, (box.lower[b], box.upper[b]))) for b, rows in clauses]
    return canonicalise(network, Property(n_x, n_y, box, tuple(made)))


def target(instance: Problem, shift: float = 0.0) -> Target:
    return Target.of(instance, Float32Model(instance.network, shift))


def search(falsifier: Falsifier, instance: Problem, model: Runnable, until: Clock) -> Counterexample | None:
    """What an attack finds, be it confirmed by the model's own run alone."""
    aim = Target.of(instance, model)
    return falsifier.attack(aim, until) or aim.reserve.found()


def layer(name: str, source: int, weight: Sequence[Sequence[float]], bias: Sequence[float]) -> Affine:
    b = torch.tensor(bias, dtype=torch.float64)
    term = Dense(torch.tensor(weight, dtype=torch.float64))
    return Affine(name, (len(bias),), ((source, term),), b, torch.zeros_like(b))


def identity(n: int) -> Network:
    """y = x, without any ReLU."""
    return Network((n,), (), layer("out", 0, torch.eye(n).tolist(), [0.0] * n))


def tent(n: int = 2) -> Network:
    """y_i = |x_i| - relu(2 x_i - 1), for x in [0, 1] the distance to the nearer end."""
    eye = torch.eye(n)
    inner = torch.cat([eye, -eye, 2 * eye]).tolist()
    hidden = layer("hidden", 0, inner, [0.0] * (2 * n) + [-1.0] * n)
    return Network((n,), (hidden,), layer("out", 1, torch.cat([eye, eye, -eye], dim=1).tolist(), [0.0] * n))


def check(instance: Problem, found: Counterexample, lower: Sequence[object], upper: Sequence[object]) -> None:
    """Judges a witness anew: inside the decimal box, and all rows of its clause hold, in rationals."""
    x = [Fraction(value) for value in found.x.tolist()]
    assert found.x.dtype == np.float32
    assert all(Fraction(lo) <= v <= Fraction(hi) for lo, v, hi in zip(lower, x, upper, strict=True))  # type: ignore[arg-type]
    y = [Fraction(float(value)) for value in found.y]
    again = instance.network.to(dtype=torch.float32).forward(torch.from_numpy(found.x)).numpy()
    np.testing.assert_allclose(again, found.y, rtol=1e-5, atol=1e-5)  # the order of sums may be another one
    for exact in instance.property.clauses[found.clause].rows.exact:
        value = sum((a * y[j] for j, a in exact.y), Fraction(0)) + sum((b * x[i] for i, b in exact.x), Fraction(0))
        assert value < exact.bound if exact.strict else value <= exact.bound
