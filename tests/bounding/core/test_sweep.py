"""One walk for all: by faces, multipliers or prices, at full width or by index, the value is the same, and valid."""

from __future__ import annotations

from dataclasses import replace

import networks
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Choice, Sweep, Trace
from verifier.bounding.cuts.masks import CutMasks
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.saddle import Saddle
from verifier.network.network import Network

SEEDS = st.integers(0, 10_000)
FAMILY = st.sampled_from(sorted(networks.FAMILIES))


def instance(family: str, seed: int, mixed: bool = True) -> tuple[Network, Region, Objective]:
    net = networks.FAMILIES[family](seed)
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    region = RootBounds().region(net, *networks.box(net, seed, 0.6, 3), Until())
    inputs = normal(3, 2, net.n_in) if mixed else None
    return net, region, Objective(len(net.layers), normal(3, 2, net.n_out), inputs, normal(3, 2))


def swept(sweep: Sweep, objective: Objective, slopes: list[torch.Tensor]) -> Trace:
    """With the given lower slopes of all neurons."""
    pairs = zip(sweep.kinks, slopes, strict=True)
    return sweep.backward(objective, [Choice(kinks.faces(kinks.gather(slope))) for kinks, slope in pairs])


def random_slopes(net: Network, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(3, 1, group.size, generator=generator, dtype=torch.float64) for group in net.groups]


@settings(max_examples=40)
@given(FAMILY, SEEDS, st.booleans())
def test_planes_lie_below_the_objectives(family: str, seed: int, mixed: bool) -> None:
    """At sampled points of the regions, rounding errors paid; the least value is that of a corner."""
    net, region, objective = instance(family, seed, mixed)
    plane = swept(Sweep.prepare(net, region, objective.layer), objective, random_slopes(net, seed)).plane
    x = networks.points(region.lower, region.upper, 50, seed).transpose(0, 1)  # D points n0
    value = net.forward(x) @ objective.coefficients.transpose(1, 2)
    if objective.inputs is not None:
        value = value + x @ objective.inputs.transpose(1, 2)
    assert objective.constant is not None
    value = value + objective.constant.unsqueeze(1)
    below = x @ plane.slope.transpose(1, 2) + plane.offset.unsqueeze(1)
    assert bool((below <= value + 1e-9).all())
    assert bool((plane.lower.unsqueeze(1) <= value).all())
    corner = torch.where(plane.slope >= 0, region.lower.unsqueeze(1), region.upper.unsqueeze(1))
    torch.testing.assert_close(plane.x0, corner)
    torch.testing.assert_close(plane.lower, (plane.slope * corner).sum(dim=-1) + plane.offset)


@settings(max_examples=40)
@given(FAMILY, SEEDS)
def test_a_sweep_over_all_neurons_is_the_sweep_over_kinks(family: str, seed: int) -> None:
    """Backward and forward; the coefficients at kinks are those of all neurons there."""
    net, region, objective = instance(family, seed)
    sweep = Sweep.prepare(net, region, objective.layer)
    wide = Sweep.prepare(net, region.full_width(), objective.layer)
    slopes = random_slopes(net, seed)
    one, other = swept(sweep, objective, slopes), swept(wide, objective, slopes)
    torch.testing.assert_close(one.lower, other.lower, rtol=0, atol=1e-10)
    torch.testing.assert_close(one.plane.slope, other.plane.slope, rtol=0, atol=1e-10)
    torch.testing.assert_close(one.plane.offset, other.plane.offset, rtol=0, atol=1e-10)
    choices = [
        [Choice(kinks.faces(kinks.gather(slope))) for kinks, slope in zip(each.kinks, slopes, strict=True)]
        for each in (sweep, wide)
    ]
    route, wide_route = sweep.forward(one, choices[0]), wide.forward(other, choices[1])
    for k, kinks in enumerate(sweep.kinks):
        at, everywhere = one.coefficients[k], other.coefficients[k]
        assert (at is None) == (everywhere is None)
        if at is not None and everywhere is not None:
            torch.testing.assert_close(at, kinks.gather(everywhere), rtol=0, atol=1e-10)
            torch.testing.assert_close(route.x_hat[k], kinks.gather(wide_route.x_hat[k]), rtol=0, atol=1e-9)


@settings(max_examples=30)
@given(FAMILY, SEEDS)
def test_faces_multipliers_and_prices_give_one_value(family: str, seed: int) -> None:
    """The multipliers that belong to faces, and the prices that belong to multipliers, are worth what these are."""
    net, region, objective = instance(family, seed)
    sweep = Sweep.prepare(net, region, objective.layer)
    choices = [Choice(kinks.adaptive()) for kinks in sweep.kinks]
    trace, dual = sweep.backward(objective, choices), Lagrangian(sweep, objective)
    point = dual.from_trace(trace, [c.slope for c in choices], [c.split for c in choices])
    torch.testing.assert_close(dual.evaluate(point).lower, trace.lower, rtol=0, atol=1e-9)
    saddle = Saddle.of(dual, point, (None,) * len(sweep.kinks))
    torch.testing.assert_close(
        saddle.answer(saddle.start(dual, point, CutMasks())).lower, trace.lower, rtol=0, atol=1e-9
    )


@settings(max_examples=20)
@given(FAMILY, SEEDS)
def test_the_error_of_an_objective_is_subtracted(family: str, seed: int) -> None:
    net, region, objective = instance(family, seed)
    sweep, slopes = Sweep.prepare(net, region, objective.layer), random_slopes(net, seed)
    spoilt = replace(objective, error=torch.full((3, 2), 0.25, dtype=torch.float64))
    plain, paid = swept(sweep, objective, slopes).plane, swept(sweep, spoilt, slopes).plane
    assert bool((paid.lower <= plain.lower - 0.25).all())
    torch.testing.assert_close(paid.lower, plain.lower - 0.25, rtol=0, atol=1e-9)
    torch.testing.assert_close(paid.offset, plain.offset - 0.25, rtol=0, atol=1e-9)
