"""How large the numbers of a network become, and whether the error model of docs/numerics.md holds for it.

Products and sums of float64 err by at most u |result| + 2^-1022, as long as nothing overflows.  What the second term
adds is magnified by the weights that follow.  So the model asks that no number larger than `LARGEST` arises when the
input, or what a layer reads, or what a factor of a product of maps reads, is as large as it can be and at least 1: then
weights magnify no error by more than that, and what underflows stays far below all that matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from verifier.functions.base import BEYOND
from verifier.network.network import Affine, Network
from verifier.operators import Chain, LinearMap, Sum, gamma
from verifier.operators.base import FLOOR
from verifier.shapes import Float64, Tensor

LARGEST = 2.0**400
"""Beyond this nothing is proved: 1e120, where float64 ends at 1e308 and float32 at 1e38."""


def radii(network: Network, radius: Float64[Tensor, " n0"], least: float = 0.0) -> list[Float64[Tensor, " n"]]:
    """Upper bounds of |x_hat| of every layer, last the output, for |x| <= radius, rounding included.

    Crude.  With `least`, no source counts as smaller than that.
    """
    sources, sizes = [radius.clamp(min=least)], []
    for layer in network.layers:
        total = layer.bias.abs() + layer.bias_error
        for source, term in layer.terms:
            total = total + term.magnitude(sources[source])
        sizes.append((total * (1.0 + 4.0 * gamma(layer.depth)) + FLOOR).clamp(min=least))
        sources.append(_activation(layer, sizes[-1], least))
    return sizes


def _activation(layer: Affine, size: Float64[Tensor, " n"], least: float) -> Float64[Tensor, " m"]:
    """How large a group's activations can be; beyond `BEYOND` no bound takes part in anything."""
    if layer.function.is_relu:
        return size
    low, high = layer.function.image(-size, size)
    return torch.maximum(-low, high).nan_to_num(torch.inf).clamp(least, BEYOND)


def beyond(network: Network, radius: Float64[Tensor, " n0"]) -> str | None:
    """The name of the first layer at which the error model does not hold for |x| <= radius; None if it holds."""
    if not bool((radius <= LARGEST).all()):
        return "input"
    sources = [radius.clamp(min=1.0)]
    for layer, size in zip(network.layers, radii(network, radius, least=1.0), strict=True):
        seen = [size, *(part for source, term in layer.terms for part in _on_the_way(term, sources[source]))]
        sources.append(_activation(layer, size, least=1.0))
        if not all(bool((part <= LARGEST).all()) for part in seen):
            return layer.name
    return None


def spoiled(network: Network) -> Network:
    """The same with biases of which nothing is known: no bound of it proves anything."""

    def unknown(error: Tensor) -> Tensor:
        return torch.full_like(error, torch.inf)

    groups = tuple(replace(group, bias_error=unknown(group.bias_error)) for group in network.groups)
    output = replace(network.output, bias_error=unknown(network.output.bias_error))
    return replace(network, groups=groups, output=output)


def _on_the_way(linear: LinearMap, r: Float64[Tensor, " n"]) -> Iterator[Float64[Tensor, " m"]]:
    """Sizes of all that a map computes, no input of a factor counting as smaller than 1."""
    if isinstance(linear, Chain):
        for factor in linear.maps:
            yield from _on_the_way(factor, r)
            r = factor.magnitude(r).clamp(min=1.0)
    elif isinstance(linear, Sum):
        for part in linear.maps:
            yield from _on_the_way(part, r)
    else:
        yield linear.magnitude(r)
