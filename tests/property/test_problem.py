from __future__ import annotations

from fractions import Fraction

import networks
import numpy as np
import pytest
import torch
from property.oracles import declared

from verifier.errors import InputError
from verifier.network.magnitudes import radii
from verifier.property.problem import canonicalise
from verifier.property.vnnlib import parse

BOX = "(assert (or (and (<= 0 X_0 0.3) (<= 0 X_1 1)) (and (<= -1 X_0 0) (<= 0 X_1 1))))(assert (<= -1 X_2 2))"


def test_clauses_are_grouped_by_box() -> None:
    net = networks.dense(0)  # 3 inputs, 2 outputs
    prop = parse(declared(3, 2) + BOX + "(assert (or (<= Y_0 Y_1) (<= (+ Y_0 X_2) 0.1)))")
    problem = canonicalise(net, prop)
    assert problem.clauses_of == ((0, 1), (2, 3))
    assert problem.lower.dtype == torch.float64
    np.testing.assert_array_equal(problem.lower.numpy(), prop.boxes.lower)
    np.testing.assert_array_equal(problem.upper.numpy(), prop.boxes.upper)
    assert problem.rows[0].A.tolist() == [[1, -1]]
    assert problem.rows[0].B is None
    assert problem.rows[1].B is not None
    assert problem.rows[1].B.tolist() == [[0, 0, 1]]
    assert [rows.c.tolist() for rows in problem.rows] == [clause.rows.c.tolist() for clause in prop.clauses]


def test_an_empty_property_has_no_boxes() -> None:
    prop = parse(declared(3, 2) + "(assert (and (<= 1 X_0 0) (<= 0 X_1 1) (<= 0 X_2 1)))")
    problem = canonicalise(networks.dense(0), prop)
    assert (problem.lower.shape, problem.rows, problem.clauses_of) == ((0, 3), (), ())


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((4, 2), "the network has 3 inputs, but the property declares 4"),
        ((3, 1), "the network has 2 outputs, but the property declares 1"),
    ],
)
def test_counts_must_fit(counts: tuple[int, int], message: str) -> None:
    box = "".join(f"(assert (<= 0 X_{i} 1))" for i in range(counts[0]))
    with pytest.raises(InputError) as caught:
        canonicalise(networks.dense(0), parse(declared(*counts) + box))
    assert str(caught.value) == message


@pytest.mark.parametrize("make", [networks.dense, networks.conv, networks.residual])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_output_radius_bounds_the_outputs(make: object, seed: int) -> None:
    net = make(seed)  # type: ignore[operator]
    lower, upper = networks.box(net, seed, radius=2.0)
    radius = radii(net, torch.maximum(lower.abs(), upper.abs())[0])[-1]
    y = net.forward(networks.points(lower, upper, 200, seed))
    assert (y.abs() <= radius).all()


def test_rounded_coefficients_lose_no_unsafe_point() -> None:
    """At a point where the exact row is an equality, the tensors' row must still hold."""
    net = networks.dense(3)
    lower, upper = torch.zeros(1, 3, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)
    for x in networks.points(lower, upper, 20, 0).reshape(-1, 3):
        y = [Fraction(v) for v in net.forward(x).tolist()]
        coefficients = [Fraction("0.12345678901234567"), Fraction("-3.3333333333333333")]
        bound = coefficients[0] * y[0] + coefficients[1] * y[1]
        text = "(assert (<= (+ (* 0.12345678901234567 Y_0) (* -3.3333333333333333 Y_1)) 0))"
        box = "".join(f"(assert (<= 0 X_{i} 1))" for i in range(3))
        problem = canonicalise(net, parse(declared(3, 2) + box + text))
        assert problem.property.clauses[0].rows.A_error is not None
        row = problem.rows[0]
        loose = sum(Fraction(a) * v for a, v in zip(row.A[0].tolist(), y, strict=True)) - Fraction(float(row.c[0]))
        assert loose <= bound
        assert float(row.c[0]) < 1e-12
