"""Sums of products by shared symbols: nowhere above what they bound, and exact for convex ones at their centre."""

from __future__ import annotations

from fractions import Fraction

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region
from verifier.bounding.core.sweep import Choice, Remainder, Sweep
from verifier.bounding.relaxation.form import AffineForm
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


def test_the_error_covers_what_rounding_adds() -> None:
    """P1 Q1 - P2 Q2 times the square of one symbol: the exact difference may be less than the one that is found."""
    generator = torch.Generator().manual_seed(0)
    p, q = torch.randn(2, 60, 1, 2, generator=generator, dtype=torch.float64)
    least, error = least_form(torch.tensor([1.0, -1.0], dtype=torch.float64).expand(60, 1, 2), factors(p, q))
    above = 0
    for d in range(60):
        (s, t), (u, v) = ([Fraction(number) for number in part[d, 0].tolist()] for part in (p, q))
        exact = min(s * u - t * v, Fraction(0))
        assert Fraction(float(least[d])) - Fraction(float(error[d])) <= exact
        above += Fraction(float(least[d])) > exact
    assert above > 5  # without the error it would not hold


def eliminated(form: AffineForm, lam: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """mu and the constant of lam . (p q) >= mu . (p, q) + constant, for one box and one row."""
    factors = Factors.of(form, torch.tensor([0]))
    ends = [end.unsqueeze(1) for end in form.ends()]
    zero = torch.zeros(1, 1, dtype=torch.float64)
    rest = Remainder([None], zero.clone(), zero.clone(), zero.clone())
    mu, _, _ = JointProducts(*ends, factors).relax(lam, Choice(zero), rest, True)
    return mu[0, 0], (rest.value - rest.error)[0, 0]


@settings(max_examples=30)
@given(SEEDS)
def test_what_is_beside_the_symbols_is_paid_for(seed: int) -> None:
    """Factors may be off by their errors, each in its own direction."""
    generator, n = torch.Generator().manual_seed(seed), 3
    centre, error = torch.randn(2, 1, 2 * n, generator=generator, dtype=torch.float64)
    spread = torch.randn(4, 1, 2 * n, generator=generator, dtype=torch.float64)
    form = AffineForm(centre, spread, spread.abs().sum(dim=0), error.abs())
    lam = torch.randn(1, 1, n, generator=generator, dtype=torch.float64)
    mu, constant = eliminated(form, lam)
    eps = (2 * torch.rand(4000, 4, generator=generator, dtype=torch.float64) - 1) * 1.5
    off = (2 * torch.rand(4000, 2 * n, generator=generator, dtype=torch.float64) - 1).sign() * error[0].abs()
    t = centre[0] + eps.clamp(-1, 1) @ spread[:, 0] + off
    value = (lam[0, 0] * t[:, :n] * t[:, n:]).sum(dim=1)
    assert bool((value >= t @ mu + constant - 1e-12).all())


def test_errors_of_factors_add_up_to_what_they_can_cost() -> None:
    """p = 2 e + d, q = 3 e + d' with |e| <= 1, |d| <= 1/2, |d'| <= 1/4: the rest is d q + d' (p - d)."""
    one = torch.tensor([[2.0, 3.0]], dtype=torch.float64)
    form = AffineForm(torch.zeros_like(one), one.unsqueeze(0), one, torch.tensor([[0.5, 0.25]], dtype=torch.float64))
    mu, constant = eliminated(form, torch.ones(1, 1, 1, dtype=torch.float64))
    assert mu.tolist() == [0.0, 0.0]
    assert float(constant) == pytest.approx(-(0.5 * 3.25 + 0.25 * 2.0), rel=1e-12)


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
