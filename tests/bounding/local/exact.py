"""Layers in rational arithmetic, and networks on which float32 errs by more than anything else: for local sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.core.base import Region, Until
from verifier.bounding.hidden import RootBounds
from verifier.network.network import Affine, Network
from verifier.operators import Conv, Dense, LinearMap

Rationals = NDArray[Any]
"""An array of Fractions."""

ULP = {torch.float32: Fraction(1, 2**24), torch.float64: Fraction(1, 2**53)}
"""The relative error of one operation."""


def rational(values: torch.Tensor) -> Rationals:
    """The numbers that floats are."""
    found = np.array([Fraction(v) for v in values.flatten().tolist()], dtype=object)
    return found.reshape(tuple(values.shape))


def image(layer: Affine, x: Sequence[Rationals], absolute: bool = False) -> Rationals:
    """sum_j W_j x[j], or sum_j |W_j| x[j]; without the bias."""
    total = np.array([Fraction(0)] * layer.size, dtype=object)
    for source, term in layer.terms:
        matrix = entries(term)
        total = total + (abs(matrix) if absolute else matrix) @ x[source]
    return total


def entries(term: LinearMap) -> Rationals:
    """The matrix of a map.  Require: it makes no sums of two entries."""
    return rational(term.transpose(torch.eye(term.n_out, dtype=torch.float64)))


def layer(
    terms: LinearMap | dict[int, LinearMap], source: int = 0, bias: float | torch.Tensor = 0.0, error: float = 0.0
) -> Affine:
    """A layer of one map, or of several by source."""
    found = {source: terms} if isinstance(terms, LinearMap) else terms
    size = next(iter(found.values())).n_out
    biases = torch.zeros(size, dtype=torch.float64) + bias
    return Affine(f"layer{source}", (size,), tuple(found.items()), biases, torch.full_like(biases, error))


def network(n_in: int, *layers: Affine) -> Network:
    """The given layers; the last one is the output."""
    return Network((n_in,), layers[:-1], layers[-1])


def paired(rows: int, columns: int, scale: float, generator: torch.Generator) -> torch.Tensor:
    """Weights in float32 of which each is nearly cancelled by its neighbour: up to a part of 2^-20."""
    half = scale * torch.randn(rows, columns // 2, generator=generator, dtype=torch.float64).float().double()
    other = (-half * (1 + 2.0**-20 * torch.rand(half.shape, generator=generator, dtype=torch.float64))).float()
    return torch.stack([half, other.double()], dim=2).flatten(1)


def cancelling(seed: int, width: int = 40, error: float = 0.0) -> Network:
    """Dense layers with weights of 1e4 that cancel in pairs, as large inputs make them matter."""
    generator = torch.Generator().manual_seed(seed)
    weights = [paired(width, width, 1e4, generator) for _ in range(2)]
    biases = torch.randn(3, width, generator=generator, dtype=torch.float64) * 1e3
    last = Dense(paired(4, width, 1e4, generator))
    layers = [layer(Dense(w), k, biases[k], error) for k, w in enumerate(weights)]
    return network(width, *layers, layer(last, 2, biases[2][:4], error))


def cancelling_images(seed: int) -> Network:
    """Two convolutions whose channels come in pairs that are almost the same, and cancel behind ReLUs that all pass."""
    generator = torch.Generator().manual_seed(seed)
    first = paired(2 * 9, 8, 1.0, generator).T.abs().reshape(8, 2, 3, 3)
    second = paired(3 * 9, 8, 1e4, generator).reshape(3, 3, 3, 8).movedim(-1, 1)
    padding = ((1, 1), (1, 1))
    conv = Conv(first.contiguous(), (2, 4, 4), (1, 1), padding, (1, 1))
    again = Conv(second.contiguous(), conv.out_shape, (1, 1), padding, (1, 1))
    last = Dense(torch.ones(1, again.n_out, dtype=torch.float64))
    found = network(conv.n_in, layer(conv, 0, 1000.0), layer(again, 1), layer(last, 2))
    return replace(found, input_shape=(2, 4, 4))


def bounded(net: Network, centre: float, radius: float, seed: int = 0) -> Region:
    """A box around values of either sign and about that size, with bounds of all groups."""
    generator = torch.Generator().manual_seed(seed)
    middle = centre * (1 + torch.rand(1, net.n_in, generator=generator, dtype=torch.float64))
    middle[:, ::3] *= -1
    return RootBounds().region(net, middle - radius, middle + radius, Until())


def known(net: Network, lower: torch.Tensor, upper: torch.Tensor, *ends: tuple[float, float]) -> Region:
    """A box, with the same bounds for all neurons of each group."""
    groups = net.groups[: len(ends)]
    pairs = [lower.new_tensor(pair).expand(group.size, 2).T for group, pair in zip(groups, ends, strict=True)]
    low, high = (tuple(pair[end : end + 1] for pair in pairs) for end in (0, 1))
    return Region(lower, upper, low, high, tuple(group.function for group in groups))
