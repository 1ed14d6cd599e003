"""Sweeps with cuts that several tests share: random instances, points, children, and sums that nearly cancel."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import torch

from verifier.bounding import HIDDEN
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.solvers.face_dual import ConjunctionDual
from verifier.bounding.solvers.propagated import PropagatedDual
from verifier.network.network import Affine, Network
from verifier.operators import Dense

SHORT = Ascent(12, Steps(0.1, 0.02))


def instance(family: str, seed: int, count: int = 1, rows: int = 1, method: str = "best") -> tuple[Sweep, Objective]:
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 1.0, count)
    region = HIDDEN.build(method).region(net, lower, upper, Until())
    kinks = Sweep.prepare(net, region, len(net.layers)).kinks
    region = replace(region, kinks=tuple(k.index for k in kinks))
    return Sweep.prepare(net, region, len(net.layers)), random_rows(net, seed, rows)


def random_rows(net: Network, seed: int, count: int) -> Objective:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, count, net.n_out, generator=generator, dtype=torch.float64)
    inputs = 0.1 * torch.randn(1, count, net.n_in, generator=generator, dtype=torch.float64)
    return Objective(len(net.layers), weights, inputs, torch.ones(1, count, dtype=torch.float64))


def random_point(dual: PropagatedDual | ConjunctionDual, seed: int) -> torch.Tensor:
    """A feasible point in the interior, shares of several cuts included."""
    generator = torch.Generator().manual_seed(seed)
    point = 0.1 + 0.8 * torch.rand(dual.start().shape, generator=generator, dtype=torch.float64)
    dual.project(point)
    return 0.9 * point


def rises(
    dual: PropagatedDual | ConjunctionDual, point: torch.Tensor, direction: torch.Tensor, h: float = 1e-7
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a step along a direction adds to the bounds: by the supergradient, and by finite differences."""
    gradient = dual.supergradient(point, dual.evaluate(point))
    ahead, behind = (dual.evaluate(point + s * h * direction).lower for s in (1, -1))
    return (gradient * direction).sum(-1), (ahead - behind) / (2 * h)


def anywhere(point: torch.Tensor, seed: int) -> torch.Tensor:
    """A random direction."""
    return torch.randn(point.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def child_of(sweep: Sweep, sign: int) -> tuple[Sweep, int, int]:
    """Split the first neuron that is ambiguous, in a group that other groups read."""
    region = sweep.region
    k = next(k for k in range(1, region.known + 1) if bool(region.ambiguous(k).any()))
    neuron = int(torch.nonzero(region.ambiguous(k)[0])[0])
    low, high = [t.clone() for t in region.l_hat], [t.clone() for t in region.u_hat]
    splits = [torch.zeros_like(t, dtype=torch.int8) for t in low]
    splits[k - 1][:, neuron] = sign
    (low if sign > 0 else high)[k - 1][:, neuron] = 0.0
    child = replace(region, l_hat=tuple(low), u_hat=tuple(high), splits=tuple(splits))
    return Sweep.prepare(sweep.net, child, sweep.layer), k, neuron


def cancelling(seed: int) -> tuple[Network, torch.Tensor, torch.Tensor, Fraction]:
    """Neurons whose huge terms cancel, all largest at the same corner, and the exact minimum of minus their sum.

    At that corner every upper face is exact, whatever the shares: only rounding can make a bound exceed the minimum.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    signs = torch.where(uniform(6) < 0.5, -1.0, 1.0).double()
    weight = signs * uniform(4, 6) * 10 ** (9 * uniform(1, 6))
    centre, width = uniform(6) - 0.5, 1e-6 * uniform(6)
    lower, upper = (centre - width).unsqueeze(0), (centre + width).unsqueeze(0)
    bias = -(weight @ centre) + 0.2 * (weight.abs() @ width) * (2 * uniform(4) - 1)
    last = -0.5 - uniform(1, 4)
    net = Network(
        (6,),
        (Affine("hidden", (4,), ((0, Dense(weight)),), bias, torch.zeros_like(bias)),),
        Affine("out", (1,), ((1, Dense(last)),), torch.zeros(1).double(), torch.zeros(1).double()),
    )
    corner = [Fraction(v) for v in torch.where(signs > 0, upper, lower)[0].tolist()]
    heights = [
        sum((Fraction(w) * x for w, x in zip(row, corner, strict=True)), Fraction(b))
        for row, b in zip(weight.tolist(), bias.tolist(), strict=True)
    ]
    assert min(heights) > 0
    exact = sum((Fraction(c) * h for c, h in zip(last[0].tolist(), heights, strict=True)), Fraction(0))
    return net, lower, upper, exact
