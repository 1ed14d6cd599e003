"""Lines below and above every function, against arithmetic of sixty digits.

The laws: a line is valid whatever its slope; it touches; the bound of a smaller interval is no worse; no slope is
better in the middle than the one that is called so.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator

import pytest
import torch
from functions.references import ALL, CURVES, STEPS, Reference, mpf, tensor

from verifier.functions import curve
from verifier.functions.base import Line, Scalar
from verifier.functions.gaussian import Gelu
from verifier.functions.periodic import Sin, Wave
from verifier.functions.sigmoids import Sigmoid
from verifier.functions.steps import Step

SIDES = (1.0, -1.0)
NEAR = 1e-9
SEARCHED = (Scalar.fan, Step.fan, Wave.fan)


def ends(reference: Reference, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = zip(*reference.intervals(count, seed), strict=True)
    return tensor(*low), tensor(*high)


def slopes(function: Scalar, low: torch.Tensor, high: torch.Tensor, side: float) -> Iterator[torch.Tensor]:
    """Good ones, level ones, and others."""
    least, middle, most = function.fan(low, high, side)
    share = torch.rand(len(low), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    yield from (middle, least + share * (most - least), torch.zeros_like(low), 4 * share - 2, 1e6 * (share - 0.5))


def level(function: Scalar, low: torch.Tensor, high: torch.Tensor) -> bool:
    """Whether only the reach of a wave is used."""
    return isinstance(function, Wave) and bool(function.wide(low, high))


def excess(reference: Reference, line: Line, i: int, side: float, points: list[float]) -> tuple[float, float]:
    """The least of what side f is above side times the line, and the size of the terms there."""
    a, h = mpf(float(line.slope[i])), mpf(float(line.offset[i]))
    worst, scale = mpf(math.inf), mpf(1)
    for t in points:
        f = reference.exact(mpf(t))
        above = side * (f - a * mpf(t) - h)
        if above < worst:
            worst, scale = above, 1 + abs(f) + abs(a * mpf(t))
    return float(worst), float(scale)


def violations(reference: Reference, function: Scalar, count: int, seed: int = 0) -> int:
    """Points at which a line is on the wrong side of f, of those that are tried."""
    low, high = ends(reference, count, seed)
    found = 0
    for side in SIDES:
        for a in slopes(function, low, high, side):
            line = function.line(a, low, high, side)
            assert bool(torch.isfinite(line.offset).all())
            for i, (left, right) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
                points = [*reference.points(left, right, 3, seed=i), float(line.touch[i])]
                found += excess(reference, line, i, side, points)[0] < 0
    return found


@pytest.mark.parametrize("name", ALL)
def test_lines_are_valid(name: str) -> None:
    assert violations(ALL[name], ALL[name].function, 25) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_many_lines_are_valid(name: str) -> None:
    assert violations(ALL[name], ALL[name].function, 1500, seed=1) == 0


@pytest.mark.parametrize("name", ALL)
def test_lines_are_valid_at_many_points(name: str) -> None:
    """In float64, up to its rounding."""
    function = ALL[name].function
    low, high = ends(ALL[name], 40, seed=2)
    t = low + (high - low) * torch.linspace(0, 1, 10_001, dtype=torch.float64).unsqueeze(1)
    t = torch.minimum(torch.maximum(t, low), high)
    value = function.value(t)
    for side in SIDES:
        for a in slopes(function, low, high, side):
            above = side * (value - a * t - function.line(a, low, high, side).offset)
            assert bool((above >= -1e-12 * (value.abs() + (a * t).abs())).all())


@pytest.mark.parametrize("name", ALL)
def test_lines_touch(name: str) -> None:
    """At the point that they name, or beside it where f jumps; wide intervals of waves have level lines only."""
    reference, function = ALL[name], ALL[name].function
    low, high = ends(reference, 25, seed=3)
    for side in SIDES:
        for a in slopes(function, low, high, side):
            line = function.line(a, low, high, side)
            for i, touch in enumerate(line.touch.tolist()):
                if level(function, low[i], high[i]):
                    continue
                beside = [math.nextafter(touch, end) for end in (float(low[i]), float(high[i]))]
                above, scale = excess(reference, line, i, side, [touch, *beside])
                width = abs(float(a[i])) * float(high[i] - low[i])
                assert above <= NEAR * (scale + width)


@pytest.mark.parametrize("name", ALL)
def test_smaller_intervals_have_better_lines(name: str) -> None:
    function = ALL[name].function
    low, high = ends(ALL[name], 200, seed=4)
    inner = low + (high - low) * 0.3, high - (high - low) * 0.2
    inner = torch.minimum(torch.maximum(inner[0], low), high), torch.minimum(torch.maximum(inner[1], low), high)
    inner = inner[0], torch.maximum(*inner)
    for side in SIDES:
        for a in slopes(function, low, high, side):
            wide, narrow = function.line(a, low, high, side), function.line(a, *inner, side)
            size = 1 + (a * low).abs() + (a * high).abs() + wide.offset.abs()
            assert bool((side * (narrow.offset - wide.offset) >= -1e-12 * size).all())


@pytest.mark.parametrize("name", ALL)
def test_no_slope_is_better_in_the_middle(name: str) -> None:
    """Where it is known in closed form, nearly none; where it is searched, hardly."""
    function = ALL[name].function
    near = 1e-2 if type(function).fan in SEARCHED or name in {"power 3", "power 5"} else 1e-6
    low, high = ends(ALL[name], 200, seed=5)
    usual = high - low < 100
    low, high = low[usual], high[usual]
    m = (low + high) / 2
    for side in SIDES:
        least, middle, most = function.fan(low, high, side)
        assert bool((least <= most).all())
        best = side * (function.line(middle, low, high, side).offset + middle * m)
        size = 1e-6 * (1 + best.abs() + (middle * m).abs()) / near + (most - least) * (high - low)
        for share in torch.linspace(0, 1, 41, dtype=torch.float64):
            a = least + share * (most - least)
            value = side * (function.line(a, low, high, side).offset + a * m)
            assert bool((value <= best + near * size).all())


@pytest.mark.parametrize("name", ALL)
def test_sides_may_differ_from_entry_to_entry(name: str) -> None:
    function = ALL[name].function
    low, high = ends(ALL[name], 60, seed=6)
    side = torch.where(torch.arange(60) % 2 == 0, 1.0, -1.0).double()
    a = function.fan(low, high, 1.0)[1]
    mixed = function.line(a, low, high, side)
    for one in SIDES:
        apart = function.line(a, low, high, one)
        assert torch.equal(mixed.offset[side == one], apart.offset[side == one])
        assert torch.equal(mixed.touch[side == one], apart.touch[side == one])


@pytest.mark.parametrize("name", CURVES)
def test_float32_finds_nearly_the_same_lines(name: str) -> None:
    function = CURVES[name].function
    chance = random.Random(0)
    points = sorted(abs(chance.gauss(0, 1)) + 0.1 for _ in range(80))
    low, high = tensor(*points[:40]), tensor(*points[40:])
    if CURVES[name].low < 0:
        low = -low
    for side in SIDES:
        a = function.fan(low, high, side)[1]
        exact = function.line(a, low, high, side).offset
        single = function.line(a.float(), low.float(), high.float(), side).offset.double()
        assert torch.allclose(single, exact, rtol=1e-4, atol=1e-5)


# -- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_images_enclose_and_are_tight(name: str) -> None:
    reference, function = ALL[name], ALL[name].function
    low, high = ends(reference, 60, seed=7)
    below, above = function.image(low, high)
    for i, (left, right) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        values = [reference.exact(mpf(t)) for t in reference.points(left, right, 100 if right > left else 0, seed=i)]
        assert mpf(float(below[i])) <= min(values)
        assert max(values) <= mpf(float(above[i]))
        if right - left <= 0.5 and not level(function, low[i], high[i]):
            rest = float(max(values) - min(values) + abs(max(values)) * mpf(1e-11)) + 1e-11
            assert float(above[i] - below[i]) <= 1.3 * rest


UNDEFINED = [
    ("log", 0.0, 1.0),
    ("log", -1.0, 1.0),
    ("power 0.5", -1e-300, 1.0),
    ("power 1.5", -1.0, 1.0),
    ("power -1", 0.0, 1.0),
    ("power -1", -1.0, 0.0),
    ("power -1", -1.0, 1.0),
    ("power -2", -1.0, 1.0),
    ("power -0.5", 0.0, 1.0),
    ("exp", math.nan, 1.0),
    ("sigmoid", math.nan, 0.0),
    ("sin", 0.0, math.nan),
    ("floor", math.nan, 1.0),
]


@pytest.mark.parametrize(("name", "low", "high"), UNDEFINED)
def test_where_a_function_is_not_defined_nothing_is_known(name: str, low: float, high: float) -> None:
    function = ALL[name].function
    below, above = function.image(tensor(low), tensor(high))
    assert (float(below), float(above)) == (-math.inf, math.inf)
    for side in SIDES:
        for a in (*function.fan(tensor(low), tensor(high), side), tensor(0.7)):
            assert bool(torch.isfinite(a).all())
            assert not bool((side * function.line(a, tensor(low), tensor(high), side).offset > -math.inf).any())


@pytest.mark.parametrize("name", ["power -1", "power -2", "power -3"])
def test_reciprocals_of_negative_numbers_mirror_those_of_positive_ones(name: str) -> None:
    function = ALL[name].function
    low, high = ends(ALL[name], 60, seed=8)
    sign = 1.0 if name == "power -2" else -1.0
    for side in SIDES:
        a = function.fan(low, high, side)[1]
        there = function.line(a, low, high, side)
        here = function.line(-sign * a, -high, -low, sign * side)
        assert torch.allclose(here.offset, sign * there.offset, rtol=1e-14, atol=0)
        assert torch.allclose(function.fan(-high, -low, sign * side)[1], -sign * a, rtol=1e-12, atol=0)


def test_what_is_too_large_is_unbounded() -> None:
    below, above = ALL["exp"].function.image(tensor(-1.0, 0.0, 700.0), tensor(44.0, 45.0, 800.0))
    assert above[0] < 2.0**64
    assert math.isinf(above[1])
    assert math.isinf(above[2])
    assert bool((below[:2] > 0).all())
    assert float(below[2]) == 2.0**64
    a = tensor(1.0)
    assert float(ALL["exp"].function.line(a, tensor(-1.0), tensor(800.0), 1.0).offset) == pytest.approx(1.0)


def test_what_is_no_number_on_one_piece_is_none_on_all() -> None:
    """t sigmoid(t) is no number at minus infinity, whatever the pieces on its right say."""
    for name in ("silu", "gelu", "mish", "hard swish"):
        for side in SIDES:
            for a in (0.0, 0.5):
                line = ALL[name].function.line(tensor(a), tensor(-math.inf), tensor(5.0), side)
                assert not bool(torch.isfinite(line.offset).any())


def test_waves_far_away_are_between_their_extremes() -> None:
    for name in ("sin", "cos"):
        for low, high in ((-math.inf, math.inf), (1e300, 2e300), (1e9, 1e9 + 1), (0.0, 7.0)):
            below, above = ALL[name].function.image(tensor(low), tensor(high))
            assert (float(below), float(above)) == (-1.0, 1.0)


# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CURVES)
def test_pulls_are_derivatives(name: str) -> None:
    low, _ = ends(CURVES[name], 200, seed=9)
    low = low[(low.abs() < 30) & (low.abs() > 1e-3)].requires_grad_()
    function = CURVES[name].function
    (expected,) = torch.autograd.grad(function.value(low).sum(), low)
    kinks = torch.isin(low.detach(), tensor(-3.0, 3.0)) if name == "hard swish" else torch.zeros_like(low, dtype=bool)
    found = function.pull(low.detach(), torch.full_like(low, 2.0))
    assert torch.allclose(found[~kinks], 2 * expected[~kinks], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", STEPS)
def test_pulls_of_steps_point_upwards(name: str) -> None:
    t = torch.linspace(-3, 3, 61, dtype=torch.float64)
    found = STEPS[name].function.pull(t, torch.ones_like(t))
    assert bool((found > 0).all())
    assert bool((found <= 1).all())


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_pulls_of_signs_do_not_depend_on_the_unit(unit: float) -> None:
    """Sums of some thousand pixels are of any size: who is near its jump is told by the rest of the group."""
    t = torch.tensor([[0.1, -0.5, 2.0, -1.4], [40.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    sign = STEPS["sign"].function
    found = sign.pull(unit * t, torch.ones_like(t))
    torch.testing.assert_close(found, sign.pull(t, torch.ones_like(t)))
    assert found[0].argsort(descending=True).tolist() == [0, 1, 3, 2]
    assert found[1, 2] == 1


def test_pulls_of_signs_are_numbers_at_the_ends_of_the_floats() -> None:
    sign = STEPS["sign"].function
    for t in (torch.zeros(3), torch.tensor([torch.inf, 0.0, 1.0]), torch.full((3,), 3e38)):
        assert bool(torch.isfinite(sign.pull(t, torch.ones(3))).all())


@pytest.mark.parametrize("name", ["power 0.5", "power -1", "log"])
def test_pulls_are_numbers_where_there_is_no_slope(name: str) -> None:
    assert bool(torch.isfinite(CURVES[name].function.pull(tensor(0.0), tensor(1.0))).all())


# -- the tests themselves --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WithoutErrors(Sigmoid):
    """Its values count as exact."""

    def value_error(self, t: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(value)


@dataclasses.dataclass(frozen=True)
class Misplaced(Gelu):
    """One digit of an inflection point."""

    inflections = (-Gelu.inflections[1], 1.5142135623730951)


@dataclasses.dataclass(frozen=True)
class Upside(Sin):
    """Convex and concave exchanged."""

    start = (0.0, True)


def test_wrong_curves_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert violations(CURVES["sin"], Upside(), 40) > 0
    assert violations(CURVES["gelu"], Misplaced(), 100) > 0
    monkeypatch.setattr(curve, "slack", lambda *sizes, ulps=0: torch.zeros_like(sizes[0]))
    assert violations(CURVES["sigmoid"], WithoutErrors(), 40) > 0
