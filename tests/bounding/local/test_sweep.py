"""Sweeps stay below exact minima where float32 errs by more than every other slack, and as much as its model allows.

Networks here are such that CROWN's bound is the minimum itself, which is known in rational arithmetic: neurons pass, or
each has an input of its own.  So nothing but the terms for rounding is left between a bound and a wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from bounding.local.exact import (
    ULP,
    bounded,
    cancelling,
    cancelling_images,
    entries,
    image,
    known,
    layer,
    network,
    rational,
)

from verifier.bounding.core.base import Region
from verifier.bounding.local import sweep as sweeping
from verifier.bounding.local.passes import Passes
from verifier.bounding.local.reference import Reference
from verifier.bounding.local.sweep import LocalSweep
from verifier.bounding.solvers.crown import Slope
from verifier.network.network import Network
from verifier.operators import Dense, LinearMap, Select, gamma
from verifier.operators.matrix import Sparse

BOTH = (torch.float32, torch.float64)
MANY = 4096
"""Roundings, in float32 still within its model."""


@dataclass(frozen=True, eq=False)
class Worst(Dense):
    """A matrix that errs as far as its depth allows: transposes are too small, values too large or (-1) too small."""

    towards: int = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.towards * gamma(self.depth) * self.magnitude(x.abs())

    def transpose(self, y: torch.Tensor) -> torch.Tensor:
        found = y.double() @ self.weight.double()
        lost = self.depth * float(ULP[y.dtype]) * (y.double().abs() @ self.weight.double().abs())
        return (found.sign() * (found.abs() - lost).clamp(min=0)).to(y.dtype)


def worst(weight: float, towards: int = 1) -> Worst:
    """A single number, made by many operations."""
    return Worst(column(weight), roundings=MANY, towards=towards)


def column(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def swept(net: Network, region: Region, dtype: torch.dtype, k: int | None = None) -> LocalSweep:
    """From all neurons of a layer, by default the last one."""
    reference = Reference.of(net, region, k or len(net.layers))
    return LocalSweep.of(Passes(net.to(dtype=dtype)), region, reference, Slope.ADAPTIVE)


def lower(sweep: LocalSweep, sign: int, neuron: int = 0) -> Fraction:
    found = sweep.lower(torch.tensor([neuron]), torch.tensor([float(sign)], dtype=torch.float64))
    return Fraction(found.item())


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("sign", [1, -1])
def test_every_layer_pays_for_the_roundings_of_its_pass(dtype: torch.dtype, sign: int) -> None:
    """Three layers of which each loses all that it may: what one does not pay, the others do not cover."""
    net = network(1, *(layer(worst(1.0), k) for k in range(3)))
    region = known(net, column(2.0), column(4.0), (2.0, 4.0), (2.0, 4.0))
    least, found = min(2 * sign, 4 * sign), lower(swept(net, region, dtype), sign)
    assert found <= least
    assert found >= least - 64 * MANY * ULP[dtype]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("low", [-1.0, -3.0])
def test_ambiguous_neurons_pay_for_the_pass_before_them(dtype: torch.dtype, low: float) -> None:
    """-relu(x) is least at the upper end, where the chord is exact."""
    net = network(1, layer(worst(1.0)), layer(Select.identity(1), 1))
    region = known(net, column(low), column(1.0), (low, 1.0))
    found = lower(swept(net, region, dtype), -1)
    assert found <= -1
    assert found >= -1 - 4 * MANY * ULP[dtype]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("towards", [1, -1])
def test_every_layer_pays_for_the_error_of_its_value(dtype: torch.dtype, towards: int) -> None:
    """At a point, so that next to nothing departs from the reference."""
    net = network(1, *(layer(worst(1.0, towards), k) for k in range(3)))
    near = (1e6 - 1e-5, 1e6 + 1e-5)
    found = lower(swept(net, known(net, column(1e6), column(1e6), near, near), dtype), towards)
    assert found <= towards * 10**6
    assert found >= towards * 10**6 - Fraction(1, 10**5)


def largest_first(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sums as floats make them one by one, from the largest term on: small ones get lost."""
    products = (rows * weights).numpy()
    order = np.argsort(-abs(products), axis=1, kind="stable")
    return torch.from_numpy(np.add.accumulate(np.take_along_axis(products, order, axis=1), axis=1)[:, -1].copy())


def test_sums_pay_for_their_roundings_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """One term, and thousands of less than half a unit of it; few of them meet in any layer."""
    monkeypatch.setattr(sweeping, "_sums", largest_first)
    size, parts = MANY, 64
    weight = torch.zeros(parts, size, dtype=torch.float64)
    weight[torch.arange(size) // (size // parts), torch.arange(size)] = 0.99 * 2.0**-24
    weight[0, 0] = 1.0
    weight = weight.float().double()
    total = Dense(torch.ones(1, parts, dtype=torch.float64))
    net = network(size, layer(Select.identity(size)), layer(Sparse.of(weight), 1), layer(total, 2))
    box, sums = torch.ones(1, size, dtype=torch.float64), 1.001 * weight.sum(dim=1).unsqueeze(0)
    functions = tuple(group.function for group in net.groups)
    region = Region(-box, box, (-box, torch.zeros_like(sums)), (box, sums), functions)
    found = lower(swept(net, region, torch.float32), -1)
    least = -sum(rational(weight[weight != 0]))
    assert found <= least
    assert found >= least - 3 * MANY * ULP[torch.float32]


def test_a_source_that_many_layers_read_pays_for_each() -> None:
    """The layers before the last add so little to its coefficient that all of it is lost; the rest cancels."""
    count, little = 120, Dense(column(2.0**-24))
    same = Select.identity(1)
    terms: list[dict[int, LinearMap]] = [{0: same}, {1: little}]
    terms += [{k - 1: same, 1: little} for k in range(3, count)]
    terms += [{count - 1: same, 1: same, 0: Dense(column(-1.0))}]
    net = network(1, *map(layer, terms))
    hidden = [(k * 2.0**-23, k * 2.0**-22) for k in range(1, count - 1)]
    region = known(net, column(2.0), column(4.0), (2.0, 4.0), *hidden)
    least, found = Fraction(count - 2, 2**23), lower(swept(net, region, torch.float32), 1)
    assert found <= least
    assert found >= least - 4 * count * ULP[torch.float32]


@pytest.mark.parametrize("sign", [1, -1])
def test_coefficients_that_underflow_are_paid_for(sign: int) -> None:
    small = Dense(column(2.0**-80))
    net = network(1, layer(small), layer(small, 1))
    region = known(net, column(1.0), column(3.0), (2.0**-80, 3 * 2.0**-80))
    found = lower(swept(net, region, torch.float32), sign)
    assert found <= min(sign, 3 * sign) * Fraction(1, 2**160)
    assert found >= -Fraction(1, 2**37)


@pytest.mark.parametrize("dtype", BOTH)
def test_underflow_costs_2_to_the_minus_40_for_each_unit_of_departure(dtype: torch.dtype) -> None:
    net = cancelling_images(1)
    region = bounded(net, 10.0, 0.7)  # which float32 would round down
    reference, sweep = Reference.of(net, region, 3), swept(net, region, dtype)
    departures = sum(rational(torch.cat([*reference.reach, *reference.spread])))
    assert Fraction(sweep.lost) >= (Fraction(1, 2**40) * departures if dtype is torch.float32 else 0)
    assert (rational(sweep.radius) >= rational(reference.reach[0])).all()


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("seed", range(2))
def test_points_far_from_zero_lie_between_their_bounds(dtype: torch.dtype, seed: int) -> None:
    net = cancelling(seed)
    region = bounded(net, 1e6, 0.0, seed)
    x, sweep = [rational(region.lower[0])], swept(net, region, dtype)
    for group in net.layers:
        x_hat = image(group, x) + rational(group.bias)
        x.append(np.maximum(x_hat, Fraction(0)))
    for neuron, value in enumerate(x_hat):
        assert lower(sweep, 1, neuron) <= value <= -lower(sweep, -1, neuron)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("seed", range(2))
def test_channels_that_cancel_leave_no_bound_above_the_minimum(dtype: torch.dtype, seed: int) -> None:
    """All neurons pass, so that the layer is affine over the box."""
    net = cancelling_images(seed)
    region, (first, second) = bounded(net, 10.0, 0.3, seed), net.groups
    assert bool((region.l_hat[0] > 0).all())
    sweep, rows = swept(net, region, dtype, 2), entries(second.terms[0][1]) @ entries(first.terms[0][1])
    low, high = rational(region.lower[0]), rational(region.upper[0])
    constant = entries(second.terms[0][1]) @ rational(first.bias) + rational(second.bias)
    for neuron, row in enumerate(rows):
        for sign in (1, -1):
            least = sign * constant[neuron] + sum(np.where(sign * row > 0, sign * row * low, sign * row * high))
            assert lower(sweep, sign, neuron) <= least
