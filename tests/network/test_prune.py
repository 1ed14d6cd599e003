"""Pruning leaves the function as it is, and nothing that the output does not read."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch

from verifier.network.merge import pruned
from verifier.network.network import Network
from verifier.operators import Dense, Select


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_only_unread_groups_go(family: str):
    net = networks.FAMILIES[family](3)
    found = pruned(net)
    assert (found is net) == (family != "unread")
    x = torch.randn(50, net.n_in, dtype=torch.float64)
    assert torch.equal(found.forward(x), net.forward(x))
    assert all(found.last_use[1:])


@pytest.mark.parametrize("zero", ["dense", "select"])
def test_a_term_of_zeros_reads_nothing(zero: str):
    net = networks.dense(0, (3, 4, 5, 2))
    nothing = {
        "dense": Dense(torch.zeros(5, 4, dtype=torch.float64)),
        "select": Select(torch.full((5,), -1), 4),
    }[zero]
    first, second = net.groups
    cut = Network(net.input_shape, (first, replace(second, terms=((1, nothing),))), net.output)
    found = pruned(cut)
    assert [group.name for group in found.groups] == [second.name]
    x = torch.randn(50, 3, dtype=torch.float64)
    assert torch.equal(found.forward(x), cut.forward(x))
