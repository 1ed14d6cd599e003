"""Sums of products by shared symbols: nowhere above what they bound, and exact for convex ones at their centre."""

from __future__ import annotations

import networks
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region
from verifier.bounding.core.sweep import Choice, Sweep
from verifier.bounding.relaxation.joint import Factors, JointProducts, least_form
from verifier.bounding.relaxation.zonotope import propagate
from verifier.functions import PRODUCT

SEEDS = st.integers(0, 10_000)


def factors(p: torch.Tensor, q: torch.Tensor) -> Factors:
    """Spreads [D, g, n] around zero, without errors."""
    size = p.abs().sum(dim=1) * q.abs().sum(dim=1)
    zero = torch.zeros_like(size)
    return Factors(zero, zero, p, q, size, zero)


@settings(max_examples=40)
@given(SEEDS)
def test_forms_are_bounded_from_below(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p, q = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    lam = torch.randn(3, 2, 5, generator=generator, dtype=torch.float64)
    least, error = least_form(lam, factors(p, q))
    eps = 2 * torch.rand(3000, 4, generator=generator, dtype=torch.float64) - 1
    eps[::2] = eps[::2].sign()
    values = torch.einsum("dsi,bdi,bdi->bds", lam, *(torch.einsum("bg,dgi->bdi", eps, x) for x in (p, q)))
    assert bool((least - error <= values.amin(dim=0)).all())
    assert bool((error <= 1e-9 * (1 + least.abs())).all())


@settings(max_examples=20)
@given(SEEDS)
def test_convex_forms_are_never_negative(seed: int) -> None:
    """eps . M^T M eps, whose entries beside the diagonal may be large."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64)
    least, _ = least_form(torch.ones(2, 1, 5, dtype=torch.float64), factors(p, p))
    torch.testing.assert_close(least, torch.zeros_like(least), rtol=0, atol=1e-9)


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([torch.float32, torch.float64]), st.sampled_from([0.0, 0.02, 0.3, 1.5]))
def test_planes_of_joint_products_are_below_the_network(seed: int, dtype: torch.dtype, radius: float) -> None:
    net = networks.mixed(seed, kinds=(*networks.ANYTHING, PRODUCT, PRODUCT))
    lower, upper = networks.box(net, seed, radius, 3)
    found = propagate(net.to(dtype=dtype), lower, upper)
    region = Region(lower, upper, found.l_hat, found.u_hat, tuple(group.function for group in net.groups))
    region = region.to(torch.float64).full_width()
    sweep = Sweep.prepare(net, region, len(net.layers))
    choices = [Choice(neurons.adaptive()) for neurons in sweep.neurons]
    neurons = [
        own if form is None else JointProducts(own.l_hat, own.u_hat, Factors.of(form, torch.arange(3)))
        for own, form in zip(sweep.neurons, found.factors, strict=True)
    ]
    joint = Sweep(net, region, sweep.layer, tuple(neurons), sweep.slacks)
    eye = torch.eye(2, dtype=torch.float64)
    plane = joint.backward(Objective(sweep.layer, torch.cat([eye, -eye]).unsqueeze(0)), choices).plane
    x = networks.points(lower, upper, 2000, seed)
    y = net.forward(x)
    values = torch.cat([y, -y], dim=-1)
    room = 1e-13 * (1 + values.abs())
    assert bool((plane.lower <= values + room).all())
    assert bool(((x.unsqueeze(-2) * plane.slope).sum(dim=-1) + plane.offset <= values + room).all())
