"""Whole runs at the ends of the floats: right answers or none, and never a traceback."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from extremes import KNOWN, Extreme
from torch import nn

import verifier
from verifier.config import load_config
from verifier.result.result import Result
from verifier.result.verdict import Reason, Verdict

SETTINGS = {
    "attack": [],
    "boxes": ["falsify.enabled=false", "search.splitting=inputs", "search.max_domains=200"],
    "signs": ["falsify.enabled=false", "search.splitting=relus", "search.max_domains=200"],
}


def module(extreme: Extreme) -> nn.Module:
    """The same network as a float64 module."""
    parts: list[nn.Module] = []
    for weights, biases in extreme.layers:
        linear = nn.Linear(len(weights[0]), len(weights)).double()
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(weights, dtype=torch.float64))
            linear.bias.copy_(torch.tensor(biases, dtype=torch.float64))
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def answer(extreme: Extreme, sign: float, bound: float, setting: str, timeout: float = 20.0) -> Result:
    config, unsafe = load_config("auto", SETTINGS[setting]), [([[sign]], [bound])]
    box = {"lower": [float(extreme.low)], "upper": [float(extreme.high)]}
    return verifier.verify(module(extreme), **box, unsafe=unsafe, config=config, threads=1, timeout=timeout)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", sorted(set(KNOWN) - {"overflow and back"}))
def test_instances_outside_of_the_range(name: str, setting: str) -> None:
    """The largest output exceeds half of itself, though no bound in floats may see it."""
    most = KNOWN[name].ends()[1]
    bound = -float(most / 2) if most < Fraction(10**300) else -1e300
    result = answer(KNOWN[name], -1.0, bound, setting, timeout=4.0)
    assert result.verdict is not Verdict.UNSAT
    if setting == "attack" and name in {"chord", "underflow"}:  # a run in float64 sees it too
        assert result.verdict is Verdict.SAT


def test_what_is_outside_of_the_range_is_said() -> None:
    """The property holds by far, but the numbers are too large to say so."""
    result = answer(KNOWN["chord"], -1.0, -100.0, "signs")
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.NUMERICS)
    assert result.message is not None
    assert "too large for a proof" in result.message


def test_bounds_of_layers_outside_of_the_range_are_infinite() -> None:
    for low, high in verifier.bounds(module(KNOWN["chord"]), lower=[-1.0], upper=[1.0]):
        assert bool((low == -torch.inf).all())
        assert bool((high == torch.inf).all())


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1.0, 1e30])
def test_scaled_networks_are_still_decided(scale: float) -> None:
    """|x| - 1/4 times the scale, from weights of that size: proved just below its minimum, not just above it."""
    extreme = Extreme((([[scale], [-scale]], [0.0, 0.0]), ([[1.0, 1.0]], [-scale / 4])), -1.0, 1.0)
    assert answer(extreme, 1.0, -0.26 * scale, "boxes").verdict is Verdict.UNSAT
    for setting in ("boxes", "signs"):
        assert answer(extreme, 1.0, -0.24 * scale, setting).verdict is not Verdict.UNSAT
