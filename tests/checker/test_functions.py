"""Functions of neurons in the checker: whatever r and mu are, what it takes is below every value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from checker.kits import Mistake, mistaken

from verifier.checker.functions import BY_NAME, EXPONENTS, PRODUCT, Curve, Power

CURVES = [*BY_NAME.values(), *(Power(exponent) for exponent in EXPONENTS)]
EXACT = {
    "Sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
    "Tanh": mpmath.tanh,
    "Exp": mpmath.exp,
    "Log": mpmath.log,
    "Softplus": lambda t: mpmath.log1p(mpmath.exp(t)),
    "Sin": mpmath.sin,
    "Cos": mpmath.cos,
}
DERIVATIVES = {
    "Sigmoid": lambda t: 1 / (2 + mpmath.exp(-t) + mpmath.exp(t)),
    "Tanh": lambda t: 1 / mpmath.cosh(t) ** 2,
    "Exp": mpmath.exp,
    "Log": lambda t: 1 / t,
    "Softplus": lambda t: 1 / (1 + mpmath.exp(-t)),
    "Sin": mpmath.cos,
    "Cos": lambda t: -mpmath.sin(t),
}


def label(function: Curve) -> str:
    return f"{function.name}{getattr(function, 'exponent', '')}"


def bounds(function: Any, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of many widths on which the function is defined, some of them points."""
    centre, width = rng.normal(size=n) * 3, 10.0 ** rng.uniform(-9, 1.2, n) * (rng.random(n) > 0.1)
    low, high = centre - width * rng.random(n), centre + width * rng.random(n)
    if function.name == "Pow" and not function.whole:
        low, high = np.abs(low), np.abs(low) + width
        low = np.where(rng.random(n) < 0.1, 0.0, low) if function.exponent > 0 else low
    elif function.name == "Log":
        low, high = np.abs(low) + 1e-6, np.abs(low) + 1e-6 + width
    elif function.name == "Pow" and function.exponent < 0:
        low, high = np.abs(low) + 1e-3, np.abs(low) + 1e-3 + width
        turned = rng.random(n) < 0.5
        low, high = np.where(turned, -high, low), np.where(turned, -low, high)
    return low[None], high[None]


def exact_value(function: Curve, t: float) -> mpmath.mpf:
    if isinstance(function, Power):
        return mpmath.mpf(t) ** mpmath.mpf(function.exponent)
    return EXACT[function.name](mpmath.mpf(t))


def exact_slope(function: Curve, t: float) -> mpmath.mpf:
    if isinstance(function, Power):
        return function.exponent * mpmath.mpf(t) ** mpmath.mpf(function.exponent - 1)
    return DERIVATIVES[function.name](mpmath.mpf(t))


@pytest.mark.parametrize("function", CURVES, ids=label)
def test_values_and_derivatives_err_by_less_than_is_counted(function: Curve) -> None:
    rng = np.random.default_rng(0)
    low, high = bounds(function, rng, 300)
    with mpmath.workprec(200):
        for t in np.concatenate([low, high], axis=1)[0]:
            if t == 0 and getattr(function, "exponent", 1.0) < 1:
                continue
            for found, exact in ((function.value, exact_value), (function.slope, exact_slope)):
                wanted = exact(function, float(t))
                error = abs(mpmath.mpf(float(found(np.array([[t]]))[0, 0])) - wanted)
                assert error <= 2.0**-49 * abs(wanted) + function.strip / 4 + 2.0**-1020


def holds(function: Any) -> bool:
    """Whether bounds are below all that was sampled, whatever r and mu; and nearly all of them are finite."""
    rng, n = np.random.default_rng(1), 400
    low, high = bounds(function, rng, n)
    r = rng.normal(size=(8, n)) * 10.0 ** rng.uniform(-3, 3, (8, n)) * (rng.random((8, n)) > 0.1)
    _, middle, _ = function.fan((low, high), r)
    mu = r * middle * rng.choice([0.0, 0.9, 1.0, 1.0, 1.0, 1.1, -1.0, 3.0], (8, n)) + rng.choice([0.0, 1.0], (8, n))
    least, image = function.least(r, mu, (low, high)), function.image(low, high)
    found = bool(np.isfinite(least).mean() > 0.95)
    for share in np.concatenate([[0.0, 1.0], rng.random(30)]):
        t = np.minimum(np.maximum(low + share * (high - low), low), high)
        x = function.value(t)
        slack = 2.0**-49 * (np.abs(r * x) + np.abs(mu * t))
        found &= bool((least <= r * x - mu * t + slack).all() and ((image[0] <= x) & (x <= image[1])).all())
    return found


def touching_anywhere(function: Any) -> Any:
    """The same with tangents at points that somebody chose without thinking."""

    class Careless(type(function)):  # type: ignore[misc]
        def stationary(self, a: np.ndarray, piece: Any) -> np.ndarray:
            found: np.ndarray = (
                function.stationary(a, piece) * np.random.default_rng(0).uniform(0.9, 1.1, a.shape) + 1e-3
            )
            return found

    return Careless(*vars(function).values())


@pytest.mark.parametrize("function", CURVES, ids=label)
def test_tangents_need_not_touch_at_the_best_point(function: Curve) -> None:
    with np.errstate(all="ignore"):
        assert holds(touching_anywhere(function))


@pytest.mark.parametrize("function", CURVES, ids=label)
def test_no_value_is_below_the_least_one_whatever_the_multipliers(function: Curve) -> None:
    with np.errstate(all="ignore"):
        assert holds(function)


def crowded(function: Curve) -> int:
    """Points at which less than fifteen of the sixteen units of a value are subtracted."""
    rng = np.random.default_rng(4)
    low, _ = bounds(function, rng, 60)
    one, found = np.ones((1, 1)), 0
    with np.errstate(all="ignore"), mpmath.workprec(200):
        for t in low[0][np.abs(low[0]) > 1e-3]:
            point, value = np.array([[t]]), exact_value(function, float(t))
            for sign in (1.0, -1.0):
                least = function.least(sign * one, 0 * one, (point, point))[0, 0]
                if least != sign * function.reach[0 if sign > 0 else 1]:
                    found += bool(sign * value - mpmath.mpf(float(least)) < 15 * 2.0**-52 * abs(value))
    return found


@pytest.mark.parametrize("function", CURVES, ids=label)
def test_errors_of_values_are_subtracted(function: Curve, monkeypatch: pytest.MonkeyPatch) -> None:
    assert crowded(function) == 0
    monkeypatch.setattr("verifier.checker.functions.ERROR", 0.0)
    assert crowded(function) > 0


MISTAKES = {
    "tangents where it is concave": ("(r >= 0) == piece[2], bent, ends", "(r >= 0) != piece[2], bent, ends"),
    "a tangent is level": (
        "bent = self._at(r, mu, p) - self._loss(r, mu, p, (left, right))",
        "bent = self._at(r, mu, p)",
    ),
    "one end": ("ends = np.minimum(self._at(r, mu, left), self._at(r, mu, right))", "ends = self._at(r, mu, left)"),
    "one side of a tangent": ("np.maximum((rise + error) * (p - ends[0]), (", "np.maximum(0.0, ("),
    "a part is left out": ("yield 0.0, np.inf, False", "yield 0.5, np.inf, False"),
    "a wave bends elsewhere": ("start = (math.pi / 2, True)", "start = (0.0, True)"),
    "half of the values": ("reach = (-1.0, 1.0)\n    strip", "reach = (0.0, 1.0)\n    strip"),
    "the slope of a sigmoid": ("return _sigmoid(t) * _sigmoid(-t)", "return 0.5 * _sigmoid(t) * _sigmoid(-t)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(tmp_path: Path, name: str) -> None:
    with mistaken(tmp_path, Mistake("functions.py", *MISTAKES[name])) as kit, np.errstate(all="ignore"):
        made = kit.functions
        curves = [*made.BY_NAME.values(), *(made.Power(exponent) for exponent in EXPONENTS)]
        assert not all(holds(curve) and holds(touching_anywhere(curve)) for curve in curves)


@pytest.mark.parametrize("function", CURVES, ids=label)
def test_the_least_value_is_nearly_taken(function: Curve) -> None:
    rng, n = np.random.default_rng(2), 200
    low, high = bounds(function, rng, n)
    narrow = high - low < 6
    low, high = low[:, narrow[0]], high[:, narrow[0]]
    r = rng.choice([-1.0, 1.0], low.shape)
    grid = np.linspace(0.0, 1.0, 4001)[:, None]
    with np.errstate(all="ignore"):
        _, middle, _ = function.fan((low, high), r)
        mu = r * middle
        t = low + grid * (high - low)
        value = np.where(np.isfinite(function.value(t)), r * function.value(t) - mu * t, np.inf)
        size = (
            1 + np.abs(function.value(high)) + np.abs(function.value(low)) + np.abs(mu) * (np.abs(low) + np.abs(high))
        )
        gap = value.min(axis=0) - function.least(r, mu, (low, high))
    assert (gap <= 1e-5 * size)[np.isfinite(size)].all()


def test_products_are_least_at_corners() -> None:
    rng, n = np.random.default_rng(3), 500
    low = rng.normal(size=(1, 2 * n))
    high = low + 10.0 ** rng.uniform(-6, 1, (1, 2 * n))
    r, mu = rng.normal(size=(5, n)), rng.normal(size=(5, 2 * n))
    least, image = PRODUCT.least(r, mu, (low, high)), PRODUCT.image(low, high)
    best = np.full((5, n), np.inf)
    for share in [(0, 0), (0, 1), (1, 0), (1, 1), *rng.random((40, 2))]:
        t = low + np.repeat(share, n) * (high - low)
        s, t = np.split(t, 2, axis=1)
        found = r * s * t - mu[:, :n] * s - mu[:, n:] * t
        assert (least <= found + 1e-14 * (np.abs(r * s * t) + 1)).all()
        assert ((image[0] <= s * t) & (s * t <= image[1])).all()
        best = np.minimum(best, found)
    assert (best - least <= 1e-12 * (1 + np.abs(best))).all()


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [(Power(-1.0), -1.0, 1.0), (Power(-2.0), 0.0, 1.0), (Power(0.5), -1e-9, 1.0), (Power(-0.5), 0.0, 1.0)],
)
def test_nothing_is_known_where_a_function_is_not_defined(function: Curve, low: float, high: float) -> None:
    one, ends = np.ones((1, 1)), (np.full((1, 1), low), np.full((1, 1), high))
    with np.errstate(all="ignore"):
        assert function.least(one, 0 * one, ends) == -np.inf
        assert [float(end[0, 0]) for end in function.image(*ends)] == [-np.inf, np.inf]
