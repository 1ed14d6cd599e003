"""Groups that the output does not read, which would only be bounded and split for nothing."""

from __future__ import annotations

from dataclasses import replace

import torch

from verifier.network.network import Affine, Network
from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse


def pruned(net: Network) -> Network:
    """The same function without terms that are zero, and without groups that nothing reads then."""
    layers = [_without_zeros(layer, net.n_in) for layer in net.layers]
    read = {source for source, _ in layers[-1].terms}
    for k in range(len(net.groups), 0, -1):
        if k in read:
            read.update(source for source, _ in layers[k - 1].terms)
    kept = [k for k in range(1, len(net.groups) + 1) if k in read]
    if len(kept) == len(net.groups) and all(new is old for new, old in zip(layers, net.layers, strict=True)):
        return net
    place = {0: 0, **{k: i for i, k in enumerate(kept, start=1)}}
    groups = tuple(_renumbered(layers[k - 1], place) for k in kept)
    return replace(net, groups=groups, output=_renumbered(layers[-1], place))


def _renumbered(layer: Affine, place: dict[int, int]) -> Affine:
    return replace(layer, terms=tuple((place[source], term) for source, term in layer.terms))


def _without_zeros(layer: Affine, n_in: int) -> Affine:
    """A layer of which nothing is left reads the input with weight zero: every layer reads something."""
    kept = tuple((source, term) for source, term in layer.terms if not _is_zero(term))
    if len(kept) == len(layer.terms):
        return layer
    return replace(layer, terms=kept or ((0, Select(torch.full((layer.size,), -1), n_in)),))


def _is_zero(linear: LinearMap) -> bool:
    if isinstance(linear, Chain):
        return any(_is_zero(factor) for factor in linear.maps)
    if isinstance(linear, Select):
        return not bool((linear.index >= 0).any())
    weights: torch.Tensor | None = None
    if isinstance(linear, Dense | Conv):
        weights = linear.weight
    elif isinstance(linear, Diagonal):
        weights = linear.scale
    elif isinstance(linear, Sparse):
        weights = linear.values
    return weights is not None and not bool(weights.any())
