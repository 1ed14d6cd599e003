"""Rows that are alike: they must be the same rows of the matrix, up to the sign that is claimed."""

from __future__ import annotations

import pytest
import torch

from verifier.operators import Chain, Dense, Diagonal, LinearMap, Select, Sum
from verifier.operators.alike import alike


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def minus(n: int) -> Diagonal:
    return Diagonal(-torch.ones(n, dtype=torch.float64))


def matrix(terms: list[LinearMap]) -> torch.Tensor:
    return torch.cat([term.forward(torch.eye(term.n_in, dtype=torch.float64)).T for term in terms], dim=1)


SOME = Select(torch.tensor([2, -1, 0, 2, 0, 1]), 3)
OTHERS = Select(torch.tensor([-1, 1, -1, -1, 2, 0]), 3)
INNER = Dense(normal(3, 5))
TERMS: dict[str, list[LinearMap]] = {
    "repeated": [Chain((INNER, SOME))],
    "of the input": [SOME],
    "differences": [Chain((INNER, Sum((SOME, Chain((Select(torch.tensor([0, 2, 2, 0, 2, 1]), 3), minus(6)))))))],
    "two sources": [Chain((INNER, SOME)), Chain((Dense(normal(3, 4)), OTHERS))],
    "a sum of different maps": [Sum((Chain((INNER, SOME)), Chain((Dense(normal(3, 5) + 1), OTHERS))))],
    "nothing but zeros": [Select.nothing(4, 3)],
}


@pytest.mark.parametrize("name", TERMS)
def test_rows_that_are_alike_are_the_same_up_to_their_sign(name: str) -> None:
    terms = TERMS[name]
    n = terms[0].n_out
    found = alike(terms, torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64))
    rows = matrix(terms)
    assert found is not None
    assert not bool(found.alone.all())
    assert bool((found.first <= torch.arange(n)).all())
    sign = torch.where(found.mirrored, -1.0, 1.0).double()
    assert torch.equal(rows, sign[:, None] * rows[found.first])


def test_mirrored_differences_are_found() -> None:
    there, here = torch.tensor([0, 1, 0, 2]), torch.tensor([1, 0, 2, 1])
    difference = Sum((Select(there, 3), Chain((Select(here, 3), minus(4)))))
    zero = torch.zeros(4, dtype=torch.float64)
    found = alike([Chain((INNER, difference))], zero, zero)
    assert found is not None
    assert found.first.tolist() == [0, 0, 2, 3]
    assert found.mirrored.tolist() == [False, True, False, False]


def test_constants_count_with_the_sign_of_their_rows() -> None:
    both = Sum((Select(torch.tensor([0, -1, 0]), 2), Chain((Select(torch.tensor([-1, 0, -1]), 2), minus(3)))))
    bias, zero = torch.tensor([1.0, -1.0, 2.0]).double(), torch.zeros(3).double()
    found = alike([both], bias, zero)
    assert found is not None
    assert found.first.tolist() == [0, 0, 2]
    assert alike([both], bias.abs(), zero + torch.tensor([0.0, 0.0, 1e-9])) is None


def test_products_that_are_rounded_to_the_same_number_differ() -> None:
    near = 1 + 2.0**-52
    first = Diagonal(torch.tensor([near, 1 + 2.0**-51], dtype=torch.float64))
    second = Diagonal(torch.tensor([near, 1.0], dtype=torch.float64))
    one = Select(torch.tensor([0, 0]), 1)
    zero = torch.zeros(2, dtype=torch.float64)
    rows = matrix([Chain((one, first, second))])
    assert rows[0] == rows[1]  # though near^2 is no float
    assert alike([Chain((one, first, second))], zero, zero) is None


def test_rows_of_a_matrix_are_not_looked_into() -> None:
    same = torch.ones(3, 3, dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    assert alike([Dense(same)], zero, zero) is None
    assert alike([Chain((Dense(same), Dense(same)))], zero, zero) is None


def test_bounds_are_shared_with_the_other_sign_where_rows_are_mirrored() -> None:
    there, here = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 1])
    difference = Sum((Select(there, 3), Chain((Select(here, 3), minus(3)))))
    zero = torch.zeros(3, dtype=torch.float64)
    found = alike([difference], zero, zero)
    assert found is not None
    low, high = found.shared(torch.tensor([[-1.0, -9.0, -9.0]]), torch.tensor([[3.0, 0.5, 9.0]]))
    assert low.tolist() == [[-1.0, -3.0, -1.0]]
    assert high.tolist() == [[3.0, 0.5, 3.0]]


@pytest.mark.parametrize(
    ("linear", "expected"),
    [
        (INNER, True),
        (Chain((Diagonal(normal(5)), INNER, SOME)), True),
        (Chain((Select(torch.tensor([1, 0, 2, 4, 3]), 5), INNER)), True),
        (Chain((Select(torch.tensor([1, 0, 2, 0, 3]), 5), INNER)), False),
        (Chain((INNER, Dense(normal(4, 3)))), False),
        (Sum((SOME, OTHERS)), False),
    ],
)
def test_tight_maps_have_exact_magnitudes(linear: LinearMap, expected: bool) -> None:
    rows = matrix([linear])
    radius = torch.rand(linear.n_in, dtype=torch.float64)
    assert linear.tight is expected
    if expected:
        torch.testing.assert_close(linear.magnitude(radius), rows.abs() @ radius, rtol=1e-14, atol=0)
    assert bool((linear.magnitude(radius) >= rows.abs() @ radius - 1e-12).all())
