"""Tiles: neurons with what they depend on have the values that they have in the whole network."""

from __future__ import annotations

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.network.tiles import Tile, located, tiled

FAMILIES = {**networks.FAMILIES, "mixed": networks.mixed}


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=10)
def test_a_tile_has_the_values_of_its_neurons(family: str, seed: int) -> None:
    net = FAMILIES[family](seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, net.n_in, generator=generator, dtype=torch.float64)
    for k, x_hat in enumerate(net.preactivations(x), start=1):
        rows = torch.nonzero(torch.rand(x_hat.shape[1], generator=generator) < 0.4).flatten()
        if not len(rows):
            continue
        tile = Tile.of(net, k, rows)
        torch.testing.assert_close(tile.net.forward(x[:, tile.inputs]), x_hat[:, rows], rtol=1e-12, atol=1e-12)
        inner = tile.net.preactivations(x[:, tile.inputs])[:-1]
        for j, entries, found in zip(tile.groups, tile.entries, inner, strict=True):
            torch.testing.assert_close(found, net.preactivations(x)[j - 1][:, entries], rtol=1e-12, atol=1e-12)


def test_a_tile_leaves_out_what_its_neurons_do_not_see() -> None:
    net = networks.conv(0)
    tile = Tile.of(net, 2, torch.tensor([0]))
    assert len(tile.entries[0]) < net.groups[0].size
    assert len(tile.inputs) < net.n_in


@pytest.mark.parametrize("side", [1, 2, 3])
def test_tiles_hold_every_row_once_and_lie_in_squares(side: int) -> None:
    net = networks.conv(0)
    places = located(net.groups[0])
    assert places is not None
    rows = torch.arange(1, net.groups[0].size, 2)
    found = tiled(places, rows, side)
    assert torch.equal(torch.cat(found).sort().values, rows)
    for tile in found:
        assert torch.equal(tile, tile.sort().values)
        assert all(len((along[tile] // side).unique()) == 1 for along in places)


def test_dense_layers_and_products_have_no_places() -> None:
    assert located(networks.dense(0).groups[0]) is None
    assert located(networks.conv(0).output) is None
