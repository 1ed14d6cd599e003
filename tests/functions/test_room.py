"""Lines leave the room that errors of a library may take: some units in the last place, of values and of slopes.

Libraries are better than that on most machines, so that no comparison of values would notice if it were not left.
"""

from __future__ import annotations

import math

import pytest
import torch
from functions.references import ALL, CURVES, mpf, tensor
from functions.test_curve import SIDES, ends, excess, level, slopes, violations

from verifier.functions import curve
from verifier.functions.base import ULPS, slack, underflow
from verifier.functions.curve import Curve, Piece
from verifier.functions.periodic import Wave
from verifier.functions.powers import Power, PowerOptions

UNIT = 2.0**-52
CONVEX = {"exp": 1.0, "softplus": 1.0, "power 2": 1.0, "power -1": 1.0, "log": -1.0, "power 0.5": -1.0}
"""Functions of one piece, and the side on which their lines are tangents."""


def crowded(name: str, count: int = 20) -> int:
    """Lines that come nearer to f than the error of its value may be."""
    reference, function = CURVES[name], CURVES[name].function
    low, high = ends(reference, count, seed=9)
    found, units = 0, 3 if isinstance(function, Wave) else 7  # the extremes of waves are exact
    for side in SIDES:
        for a in slopes(function, low, high, side):
            line = function.line(a, low, high, side)
            for i, touch in enumerate(line.touch.tolist()):
                if not level(function, low[i], high[i]):
                    above = excess(reference, line, i, side, [touch])[0]
                    found += above < units * UNIT * abs(float(reference.exact(mpf(touch))))
    return found


def crowded_tangents(name: str, count: int = 40) -> int:
    """Tangents that fall by less than the error of their slope, on the way to the nearer end."""
    reference, function, side = CURVES[name], CURVES[name].function, CONVEX[name]
    low, high = ends(reference, count, seed=10)
    wide = (high - low > 0.1) & (high - low < 100)
    low, high = low[wide], high[wide]
    a = function.slope(low / 2 + high / 2)
    line, found = function.line(a, low, high, side), 0
    for i, touch in enumerate(line.touch.tolist()):
        value, slope = (abs(float(part(mpf(touch)))) for part in (reference.exact, reference.slope))
        distance = min(touch - float(low[i]), float(high[i]) - touch)
        least = 10 * value + 2 * slope * abs(touch) + 9 * slope * distance
        found += excess(reference, line, i, side, [touch])[0] < UNIT * least
    return found


@pytest.mark.parametrize("name", CURVES)
def test_lines_leave_room_for_errors_of_values(name: str) -> None:
    assert crowded(name) == 0


@pytest.mark.parametrize("name", CONVEX)
def test_tangents_leave_room_for_errors_of_slopes(name: str) -> None:
    assert crowded_tangents(name) == 0


def careless(name: str) -> int:
    """Lines on the wrong side of f, if tangents are taken at points that somebody chose without thinking."""
    reference = CURVES[name]

    class Careless(type(reference.function)):  # type: ignore[misc]
        def stationary(self, a: torch.Tensor, piece: Piece) -> torch.Tensor:
            share = torch.rand(a.shape, generator=torch.Generator().manual_seed(1), dtype=a.dtype)
            found: torch.Tensor = super().stationary(a, piece) * (0.8 + 0.4 * share) + (share - 0.5)
            return found

    return violations(reference, Careless(*vars(reference.function).values()), 12)


@pytest.mark.parametrize("name", [name for name in CURVES if name != "log"])
def test_tangents_need_not_touch_at_the_best_point(name: str) -> None:
    assert careless(name) == 0


def nothing(*sizes: torch.Tensor, ulps: int = ULPS) -> torch.Tensor:
    return 0.0 * sizes[0]


MISTAKES = {
    "no errors at all": (curve, "slack", nothing),
    "no errors of values": (Curve, "value_error", lambda self, t, value: 0.0 * value),
    "no errors of slopes": (Curve, "slope_error", lambda self, t, slope: 0.0 * slope),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(*MISTAKES[name])
    assert crowded("exp") + crowded_tangents("exp") > 0


def test_slack_counts_units_of_all_sizes() -> None:
    assert float(slack(tensor(-3.0), tensor(1.0), ulps=2)) == 4.0 * 2 * UNIT + 2.0**-1022
    assert float(slack(tensor(0.0))) == 2.0**-1022
    assert float(slack(tensor(1.0))) == 8 * UNIT + 2.0**-1022
    assert float(underflow(tensor(-4.0))) == 32 * 2.0**-1022


def test_rounded_exponents_of_derivatives_are_paid_for() -> None:
    """0.3 - 1 is no float64: the derivative of t^0.3 counts as wrong by the logarithm of t times that."""
    one = tensor(1.0)
    exact, rounded = (Power(PowerOptions(p)).slope_error(one, one) for p in (0.5, 0.3))
    assert float(exact) == 8 * UNIT + 2.0**-1022
    assert float(rounded) > 1024 * UNIT


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("name", CONVEX)
def test_tangents_leave_room_on_both_sides(name: str, share: float) -> None:
    """Near one end it is the way to the other one that counts."""
    reference, function, side = CURVES[name], CURVES[name].function, CONVEX[name]
    low, high = tensor(0.25, 0.5, 0.125), tensor(4.0, 3.5, 5.0)
    line = function.line(function.slope(low + share * (high - low)), low, high, side)
    for i, touch in enumerate(line.touch.tolist()):
        value, slope = (abs(float(part(mpf(touch)))) for part in (reference.exact, reference.slope))
        distance = max(touch - float(low[i]), float(high[i]) - touch)
        least = 10 * value + 2 * slope * touch + 5 * slope * distance
        assert excess(reference, line, i, side, [touch])[0] >= UNIT * least


@pytest.mark.parametrize("name", ["silu", "mish", "gelu tanh"])
def test_what_underflows_in_a_gate_is_multiplied(name: str) -> None:
    function = ALL[name].function
    assert isinstance(function, Curve)
    for error in (function.value_error, function.slope_error):
        assert float(error(tensor(-900.0), tensor(0.0))) >= 900 * 2.0**-1022


@pytest.mark.parametrize("name", ["gelu", "gelu tanh", "erf", "celu"])
def test_magnified_errors_grow_in_the_tails(name: str) -> None:
    """What is rounded before a steep function: its relative error is larger far away than near 0."""
    function = ALL[name].function
    assert isinstance(function, Curve)
    t = tensor(-0.5, -6.0)
    value, slope = function.value(t), function.slope(t)
    shares = [function.value_error(t, value) / value.abs(), function.slope_error(t, slope) / slope.abs()]
    assert any(float(share[1]) > 5 * float(share[0]) for share in shares)


def test_waves_have_pieces_where_multiples_of_pi_are_known() -> None:
    for name in ("sin", "cos"):
        function = ALL[name].function
        assert isinstance(function, Wave)
        low = tensor(0.0, 0.0, 2.0**20 - 1, 2.0**20 - 1, -(2.0**20) - 1)
        high = tensor(6.28, 6.29, 2.0**20, 2.0**20 + 1, -(2.0**20))
        assert function.wide(low, high).tolist() == [False, True, False, True, True]
        start = torch.linspace(0.0, 6.2, 63, dtype=torch.float64)
        covered = torch.stack([torch.as_tensor(piece.high) for piece in function.pieces(start, start + 6.28)])
        assert bool((covered.amax(dim=0) >= start + 6.28).all())


def test_waves_pay_for_inflections_that_are_no_floats() -> None:
    for name in ("sin", "cos"):
        function = ALL[name].function
        assert isinstance(function, Curve)
        for error in (function.value_error, function.slope_error):
            assert float(error(tensor(0.0), tensor(0.0))) >= 2.0**-60
        low = tensor(math.pi / 2 - 1e-9)
        line = function.line(tensor(0.0), low, low + 2e-9, -1.0)
        if name == "sin":
            assert float(line.offset) > 1.0
