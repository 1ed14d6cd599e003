"""Functions of constants: what becomes of them is known up to an error that includes all of theirs."""

from __future__ import annotations

import mpmath
import pytest
import torch
from functions.references import ALL, mpf, tensor

from verifier.functions import PRODUCT
from verifier.network.lowering.expression import Expression, constant
from verifier.network.lowering.tracing import Lowering, Reading

NUMBERS = (0.3, 0.5, 1.0, 1.75, 2.5, 40.0)


def lowering() -> Lowering:
    return Lowering(Reading(torch.float64, torch.float64), lambda *_: None)


def around(found: Expression, i: int) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The ends of an entry, exactly."""
    centre, error = mpf(float(found.bias[i])), mpf(float(found.error[i]))
    return centre - error, centre + error


@pytest.mark.parametrize("name", ALL)
def test_values_of_exact_constants_are_known_up_to_rounding(name: str) -> None:
    reference = ALL[name]
    found = lowering().apply(reference.function, constant(tensor(*NUMBERS)))
    for i, t in enumerate(NUMBERS):
        low, high = around(found, i)
        value = reference.exact(mpf(t))
        assert low <= value <= high
        assert high - low <= 1e-13 * (1 + abs(value))


@pytest.mark.parametrize("name", ALL)
def test_errors_of_constants_go_through(name: str) -> None:
    """The true constant may be anywhere between; where the function jumps, the value may be any of both."""
    reference = ALL[name]
    error = tensor(0.0, 1e-9, 1e-3, 0.25, 0.5, 1.0)
    found = lowering().apply(reference.function, constant(tensor(*NUMBERS), error))
    for i, (t, e) in enumerate(zip(NUMBERS, error.tolist(), strict=True)):
        low, high = around(found, i)
        if not mpmath.isfinite(high):
            continue  # no value within the error is known to exist
        for share in (-1.0, -0.7, 0.0, 0.3, 1.0):
            assert low <= reference.exact(mpf(t) + mpf(share) * mpf(e)) <= high


def test_products_of_constants() -> None:
    left, right = constant(tensor(3.0, -2.0), tensor(0.5, 0.0)), constant(tensor(0.1, 7.0), tensor(0.0, 1e-3))
    found = lowering().apply(PRODUCT, left, right)
    for i, (p, q) in enumerate((((2.5, 3.5), (0.1, 0.1)), ((-2.0, -2.0), (6.999, 7.001)))):
        low, high = around(found, i)
        assert all(low <= mpf(s) * mpf(t) + mpf(1e-15) and mpf(s) * mpf(t) <= high + mpf(1e-15) for s in p for t in q)
        assert high - low < 0.2
