"""Random small networks of every shape the verifier knows, built from operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from verifier.functions import PRODUCT, RELU, Function
from verifier.functions.sigmoids import Sigmoid, Tanh
from verifier.network.network import Affine, Network
from verifier.operators import Conv, Dense, LinearMap, Select


def affine(name: str, terms: dict[int, LinearMap], generator: torch.Generator) -> Affine:
    """A layer with a random bias and no folding error."""
    size = next(iter(terms.values())).n_out
    bias = 0.3 * torch.randn(size, generator=generator, dtype=torch.float64)
    return Affine(name, (size,), tuple(terms.items()), bias, torch.zeros_like(bias))


def matrix(rows: int, columns: int, generator: torch.Generator) -> Dense:
    weight = torch.randn(rows, columns, generator=generator, dtype=torch.float64) / columns**0.5
    return Dense(weight)


def dense(seed: int, widths: tuple[int, ...] = (3, 6, 5, 2)) -> Network:
    """A fully connected chain."""
    generator = torch.Generator().manual_seed(seed)
    layers = [
        affine(f"dense{k}", {k: matrix(widths[k + 1], widths[k], generator)}, generator) for k in range(len(widths) - 1)
    ]
    return Network((widths[0],), tuple(layers[:-1]), layers[-1])


def conv(seed: int) -> Network:
    """Two convolutions and a dense output."""
    generator = torch.Generator().manual_seed(seed)

    def kernel(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / 3

    first = Conv(kernel(2, 1, 3, 3), (1, 4, 4), (1, 1), ((1, 1), (1, 1)), (1, 1))
    second = Conv(kernel(2, 2, 3, 3), first.out_shape, (2, 2), ((1, 0), (0, 1)), (1, 1))
    layers = [
        affine("conv1", {0: first}, generator),
        affine("conv2", {1: second}, generator),
        affine("out", {2: matrix(2, second.n_out, generator)}, generator),
    ]
    return Network((1, 4, 4), tuple(layers[:-1]), layers[-1])


def residual(seed: int) -> Network:
    """Skip connections over one and over two groups, and an output that also reads the input."""
    generator = torch.Generator().manual_seed(seed)
    layers = [
        affine("first", {0: matrix(5, 3, generator)}, generator),
        affine("second", {1: matrix(5, 5, generator), 0: matrix(5, 3, generator)}, generator),
        affine("third", {2: matrix(5, 5, generator), 1: Select.identity(5)}, generator),
        affine(
            "out",
            {3: matrix(2, 5, generator), 1: matrix(2, 5, generator), 0: matrix(2, 3, generator)},
            generator,
        ),
    ]
    return Network((3,), tuple(layers[:-1]), layers[-1])


def unread(seed: int) -> Network:
    """Two groups, one after the other, that the output does not read."""
    generator = torch.Generator().manual_seed(seed)
    layers = [
        affine("first", {0: matrix(5, 3, generator)}, generator),
        affine("second", {1: matrix(4, 5, generator)}, generator),
        affine("third", {2: matrix(4, 4, generator), 1: matrix(4, 5, generator)}, generator),
        affine("out", {1: matrix(2, 5, generator), 0: matrix(2, 3, generator)}, generator),
    ]
    return Network((3,), tuple(layers[:-1]), layers[-1])


ANYTHING: tuple[Function, ...] = (RELU, Sigmoid(), Tanh(), PRODUCT)
"""Functions that groups may have, whatever their bounds are."""


def mixed(seed: int, widths: tuple[int, ...] = (2, 4, 4, 4, 2), kinds: Sequence[Function] = ANYTHING) -> Network:
    """Groups of random functions; each reads the group before it and the one before that."""
    generator = torch.Generator().manual_seed(seed)
    groups, last = [], len(widths) - 2
    for k in range(last + 1):
        function = kinds[int(torch.randint(len(kinds), (), generator=generator))] if k < last else RELU
        terms = {j: matrix(function.arity * widths[k + 1], widths[j], generator) for j in {k, max(0, k - 1)}}
        groups.append(replace(affine(f"mixed{k}", dict(terms), generator), function=function))
    return Network((widths[0],), tuple(groups[:-1]), groups[-1])


FAMILIES = {"dense": dense, "conv": conv, "residual": residual, "unread": unread}


def box(net: Network, seed: int, radius: float = 0.5, count: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Random boxes [D, n0] of about the given radius."""
    generator = torch.Generator().manual_seed(seed + 1)
    centre = torch.randn(count, net.n_in, generator=generator, dtype=torch.float64)
    spread = radius * torch.rand(count, net.n_in, generator=generator, dtype=torch.float64)
    return centre - spread, centre + spread


def points(lower: torch.Tensor, upper: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """Random points [count, D, n0] of the boxes, half of them corners."""
    generator = torch.Generator().manual_seed(seed + 2)
    t = torch.rand(count, *lower.shape, generator=generator, dtype=torch.float64)
    t[: count // 2] = t[: count // 2].round()
    return lower + t * (upper - lower)


def paper_example() -> tuple[Network, torch.Tensor, torch.Tensor]:
    """The example of [SCB] sec:preact-example, with its box."""

    def layer(name: str, source: int, weight: list[list[float]], bias: list[float]) -> Affine:
        b = torch.tensor(bias, dtype=torch.float64)
        term = Dense(torch.tensor(weight, dtype=torch.float64))
        return Affine(name, (len(bias),), ((source, term),), b, torch.zeros_like(b))

    net = Network(
        (2,),
        (layer("first", 0, [[1, -1], [1, -1]], [-1, 1]), layer("second", 1, [[-1, 2], [-2, 1]], [-2, 0])),
        layer("out", 2, [[2, -1]], [0]),
    )
    ones = torch.ones(1, 2, dtype=torch.float64)
    return net, -ones, ones


def difference_module() -> nn.Module:
    """y = (|x_0 - x_1|, x_0) over two inputs."""
    first, last = nn.Linear(2, 3), nn.Linear(3, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 0.0]]))
        first.bias.copy_(torch.tensor([0.0, 0.0, 4.0]))
        last.weight.copy_(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
        last.bias.copy_(torch.tensor([0.0, -4.0]))
    return nn.Sequential(first, nn.ReLU(), last)
