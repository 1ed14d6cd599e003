"""Values and slopes of the library, against arithmetic of sixty digits: they err by less than is subtracted.

Vectorised code differs from the code for single numbers, so arrays of several lengths and layouts are tried.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import mpmath
import pytest
import torch
from functions.references import CURVES, Reference, mpf, tensor

from verifier.functions.bumps import Bump
from verifier.functions.curve import Curve

Evaluate = Callable[[torch.Tensor], torch.Tensor]

SUBNORMAL = (5e-324, 1e-310, 2.2250738585072014e-308)
NEAR = 64
NASTY = (1.0, 0.5, 0.0625, 0.46875, 0.84375, 1.25, 2.857, 6.0, 20.0, 36.7, 39.0, 88.7, 708.3, 744.4, 1e8, 1e-8, 1e-155)


def points(reference: Reference, count: int) -> list[float]:
    """Random ones of all sizes, and those at which the branches of libraries meet."""
    chance = random.Random(3)
    found = [reference.point(chance) for _ in range(count)]
    found += [chance.choice([-1, 1]) * 2.0 ** chance.uniform(-40, 10) for _ in range(count)]
    for t in (*NASTY, *SUBNORMAL, *reference.special):
        for sign in (-1, 1):
            found += [sign * t, math.nextafter(sign * t, 0), math.nextafter(sign * t, sign * math.inf)]
    return [t for t in found if reference.low <= t <= reference.high and (t != 0 or reference.low < 0)]


def evaluations(evaluate: Evaluate, t: torch.Tensor) -> Iterator[torch.Tensor]:
    """The same numbers in arrays of many lengths, and with gaps."""
    yield evaluate(t)
    yield from (torch.cat([evaluate(part.clone()) for part in t.split(size)]) for size in (1, 3, 4, 7, 8, 17))
    yield evaluate(torch.stack([t, t.flip(0)], dim=1)[:, 0])


def shares(reference: Reference, evaluate: Evaluate, exact: Callable, allowed: Callable, count: int = 60) -> float:
    """The largest error, as a share of the error that is allowed."""
    numbers = points(reference, count)
    t = tensor(*numbers)
    margin = allowed(t, evaluate(t))
    expected = [exact(mpf(number)) for number in numbers]
    worst = 0.0
    for found in evaluations(evaluate, t):
        for value, truth, most in zip(found.tolist(), expected, margin.tolist(), strict=True):
            if math.isfinite(value) and math.isfinite(most):
                worst = max(worst, float(abs(mpf(value) - truth) / mpf(most)))
            else:
                assert abs(truth) > 2.0**63 or not math.isfinite(most)  # only what overflows is no number
    return worst


@pytest.mark.parametrize("name", CURVES)
def test_values_err_by_less_than_half_of_what_is_subtracted(name: str) -> None:
    reference, function = CURVES[name], CURVES[name].function
    assert isinstance(function, Curve)
    assert 0 < shares(reference, function.value, reference.exact, function.value_error) < 0.5


@pytest.mark.parametrize("name", CURVES)
def test_slopes_err_by_less_than_half_of_what_is_subtracted(name: str) -> None:
    reference, function = CURVES[name], CURVES[name].function
    assert isinstance(function, Curve)
    assert shares(reference, function.slope, reference.slope, function.slope_error) < 0.5


def test_an_error_is_noticed() -> None:
    reference, function = CURVES["gelu"], CURVES["gelu"].function
    assert isinstance(function, Curve)

    def careless(t: torch.Tensor) -> torch.Tensor:
        return t * (1 + torch.erf(t / math.sqrt(2))) / 2

    assert shares(reference, careless, reference.exact, function.value_error) > 1


# -- inflection points -----------------------------------------------------------------------------------------------


def bend(name: str) -> Callable:
    """A function with the sign of f'', in interval arithmetic; it has no other zeros."""
    iv = mpmath.iv
    iv.prec = 150

    def gelu(t):
        return 2 - t * t

    def silu(t):
        return 2 - t * (1 - iv.exp(-t)) / (1 + iv.exp(-t))

    def gelu_tanh(t):
        """f'' = s (1 - s) (2 z' + t z'' + t z'^2 (1 - 2 s)), with s the sigmoid of z."""
        rate = 2 * iv.sqrt(2 / iv.pi)
        z = rate * (t + iv.mpf("0.044715") * t**3)
        first, second = rate * (1 + 3 * iv.mpf("0.044715") * t**2), rate * 6 * iv.mpf("0.044715") * t
        return 2 * first + t * second + t * first**2 * (iv.exp(-z) - 1) / (iv.exp(-z) + 1)

    def mish(t):
        """h = n / (n + 2) with n = w (w + 2), w = exp(t): f'' = 2 h' + t h'', times (n + 2)^3 / (4 w)."""
        w = iv.exp(t)
        n = w * (w + 2)
        return 2 * (1 + w) * (n + 2) + t * ((1 + 2 * w) * (n + 2) - 4 * w * (1 + w) ** 2)

    return {"gelu": gelu, "silu": silu, "gelu tanh": gelu_tanh, "mish": mish}[name]


def has_sign(function: Callable, low: float, high: float, sign: int) -> bool:
    """Whether a function has one sign on an interval, by parts that are small enough."""
    waiting = [(low, high)]
    while waiting:
        left, right = waiting.pop()
        value = function(mpmath.iv.mpf([left, right]))
        if (sign * value).a > 0:
            continue
        middle = (left + right) / 2
        if not left < middle < right or (sign * function(mpmath.iv.mpf(middle))).b < 0:
            return False
        waiting += [(left, middle), (middle, right)]
    return True


@pytest.mark.parametrize("name", ["gelu", "silu", "gelu tanh", "mish"])
def test_bumps_bend_at_their_inflection_points_only(name: str) -> None:
    """Proved by intervals up to some floats around each, as far as derivatives change."""
    function, curved = CURVES[name].function, bend(name)
    assert isinstance(function, Bump)
    first, second = function.inflections

    def moved(t: float, steps: int) -> float:
        for _ in range(abs(steps)):
            t = math.nextafter(t, math.copysign(math.inf, steps))
        return t

    assert has_sign(curved, moved(first, NEAR), moved(second, -NEAR), 1)
    assert has_sign(curved, moved(second, NEAR), second + 30, -1)
    assert has_sign(curved, first - 30, moved(first, -NEAR), -1)
    for steps in (-2, 2):
        assert has_sign(curved, moved(first, steps), moved(first, steps), steps // 2)
        assert has_sign(curved, moved(second, steps), moved(second, steps), -steps // 2)


@pytest.mark.parametrize("name", ["gelu", "silu", "gelu tanh", "mish"])
def test_errors_of_slopes_exceed_what_an_inexact_inflection_point_costs(name: str) -> None:
    function = CURVES[name].function
    assert isinstance(function, Bump)
    for t in function.inflections:
        ulp = math.ulp(t)
        bound = 2 * abs(float(mpmath.diff(CURVES[name].exact, t, 3)))
        assert float(function.slope_error(tensor(t), function.slope(tensor(t)))) > 4 * bound * ulp**2
        assert float(function.value_error(tensor(t), function.value(tensor(t)))) > 4 * bound * ulp**3
