"""Merging keeps the function, exactly, and leaves as few neurons as the function needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from verifier.bounding.relaxation.zonotope import propagate
from verifier.network.lowering.run import lower
from verifier.network.merge import merged, pruned
from verifier.network.models.onnx import load_onnx
from verifier.network.network import Affine, Network
from verifier.operators import Conv, Dense, LinearMap, Select

SEEDS = st.integers(0, 2**16)


def layer(terms: dict[int, LinearMap | list[list[float]]], bias: list[float] | None = None) -> Affine:
    maps = {j: Dense(torch.tensor(w).double()) if isinstance(w, list) else w for j, w in terms.items()}
    size = next(iter(maps.values())).n_out
    offset = torch.zeros(size).double() if bias is None else torch.tensor(bias).double()
    return Affine("layer", (size,), tuple(maps.items()), offset, torch.zeros_like(offset))


def grid(n: int, count: int = 200) -> torch.Tensor:
    """Points with short coordinates: networks with short weights are evaluated without rounding."""
    return torch.randint(-64, 65, (count, n), generator=torch.Generator().manual_seed(0)).double() / 16


def short(seed: int, widths: tuple[int, ...]) -> Network:
    """A chain with few different weights, so that many neurons repeat or mirror others."""
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> torch.Tensor:
        return torch.randint(-1, 2, shape, generator=generator).double() / 2

    layers = []
    for k in range(len(widths) - 1):
        terms: dict[int, LinearMap | list[list[float]]] = {k: Dense(some(widths[k + 1], widths[k]))}
        if k > 1:
            terms[k - 2] = Dense(some(widths[k + 1], widths[k - 2]))
        layers.append(layer(terms, some(widths[k + 1]).tolist()))
    return Network((widths[0],), tuple(layers[:-1]), layers[-1])


@given(SEEDS, st.sampled_from([(1, 6, 2), (2, 8, 8, 8, 2), (2, 12, 3, 12, 1), (1, 3, 3, 3, 3, 3)]))
@settings(max_examples=60)
def test_the_function_stays_the_same(seed: int, widths: tuple[int, ...]) -> None:
    """Weights are so short that both networks are evaluated without rounding."""
    net = short(seed, widths)
    new = merged(net)
    x = grid(widths[0])
    assert torch.equal(new.forward(x), net.forward(x))
    assert all(not bool(part.bias_error.any()) for part in new.layers)
    assert merged(new).relus <= new.relus <= net.relus


@given(SEEDS)
@settings(max_examples=30)
def test_no_two_neurons_of_a_merged_group_say_the_same(seed: int) -> None:
    new = merged(short(seed, (2, 12, 12, 2)))
    values = new.preactivations(torch.randn(50, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    first = values[0].T  # the second group may hold neurons that agree for other reasons
    if new.groups and all(source == 0 for source, _ in new.groups[0].terms):
        for i in range(len(first)):
            for j in range(i):
                assert not torch.equal(first[i], first[j])
                assert not torch.equal(first[i], -first[j])


def test_nothing_to_merge_is_the_same_object() -> None:
    for family in networks.FAMILIES.values():
        net = family(0)
        assert merged(net) is net


def minimum() -> Network:
    """min(x_0, x_1) by four neurons."""
    pairs = layer({0: [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]})
    return Network((2,), (pairs,), layer({1: [[0.5, -0.5, -0.5, -0.5]]}))


def test_a_minimum_takes_one_neuron() -> None:
    new = merged(minimum())
    assert new.relus == 1
    x = grid(2)
    assert torch.equal(new.forward(x)[:, 0], x.amin(dim=1))
    group, output = new.groups[0], dict(new.output.terms)
    assert group.terms[0][1].forward(torch.eye(2).double()).T.tolist() == [[1.0, -1.0]]
    assert output[0].forward(torch.eye(2).double()).T.tolist() == [[1.0, 0.0]]
    assert output[1].forward(torch.eye(1).double()).tolist() == [[-1.0]]


def test_bounds_of_a_merged_minimum_are_those_of_one_triangle() -> None:
    """Over [-1, 1]^2 the zonotope of x_0 - max(x_0 - x_1, 0) reaches down to -2; that of four neurons to -5/2."""
    lower, upper = -torch.ones(1, 2).double(), torch.ones(1, 2).double()
    for net, least in ((merged(minimum()), -2.0), (minimum(), -2.5)):
        found = propagate(net, lower, upper).output.ends()[0]
        torch.testing.assert_close(found, torch.tensor([[least]]).double(), rtol=0, atol=1e-9)


def test_a_value_that_is_handed_through_takes_no_neuron() -> None:
    """x = max(x, 0) - max(-x, 0): two groups of it vanish, and the third keeps its kink."""
    twice = layer({0: [[1.0], [-1.0]]}, [0.25, -0.25])
    again = layer({1: [[1.0, -1.0], [-1.0, 1.0]]}, [-0.5, 0.5])
    last = layer({2: [[2.0, -2.0]]}, [1.0])
    net = Network((1,), (twice, again, last), layer({3: [[1.0]]}))
    new = merged(net)
    assert [group.size for group in new.groups] == [1]
    assert torch.equal(new.forward(grid(1)), net.forward(grid(1)))


def test_constant_neurons_become_biases() -> None:
    net = Network((1,), (layer({0: [[0.0], [0.0], [1.0]]}, [2.0, -2.0, 0.0]),), layer({1: [[1.0, 5.0, 1.0]]}, [0.5]))
    new = merged(net)
    assert new.relus == 1
    assert new.output.bias.tolist() == [2.5]


def test_an_output_that_is_constant_still_reads_something() -> None:
    net = Network((2,), (layer({0: [[0.0, 0.0]]}, [3.0]),), layer({1: [[2.0]]}))
    new = merged(net)
    assert new.groups == ()
    assert torch.equal(new.forward(grid(2)), torch.full((200, 1), 6.0).double())


def test_a_group_of_constants_may_be_read_by_rounded_weights() -> None:
    rounded = Dense(torch.tensor([[3.0, -5.0]]).double(), roundings=1)
    for bias, value in (([1.0, -1.0], 3.5), ([-1.0, -1.0], 0.5)):
        constants = layer({0: [[0.0], [0.0]]}, bias)
        new = merged(Network((1,), (constants,), layer({1: rounded}, [0.5])))
        assert new.groups == ()
        assert torch.equal(new.forward(grid(1)), torch.full((200, 1), value).double())
        assert float(new.output.bias_error) <= 1e-13


def test_other_biases_are_other_neurons() -> None:
    rows = [[1.0], [1.0], [-1.0]]
    net = Network((1,), (layer({0: rows}, [0.0, 1.0, 1.0]),), layer({1: [[1.0, 1.0, 1.0]]}))
    assert merged(net) is net


def test_biases_that_are_not_known_exactly_are_left_alone() -> None:
    net = minimum()
    group = net.groups[0]
    doubtful = Affine(group.name, group.shape, group.terms, group.bias, torch.full_like(group.bias, 1e-15))
    net = Network((2,), (doubtful,), net.output)
    assert merged(net) is net


@given(SEEDS)
@settings(max_examples=20)
def test_readers_with_long_weights_keep_a_product(seed: int) -> None:
    """Sums of their weights would be rounded; then the maps stay factors, and the function is the same up to rounding.

    The readers are a dense layer and a convolution; both also read a group that is not merged.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rows = normal(3, 2)
    pairs = layer({0: Dense(torch.cat([rows, -rows, rows[:1], torch.zeros(1, 2).double()]))}, [0.0] * 7 + [1.5])
    plain = networks.affine("plain", {0: Dense(normal(8, 2))}, generator)
    wide = networks.affine("wide", {1: Dense(normal(5, 8)), 2: Dense(normal(5, 8))}, generator)
    conv = Conv(normal(2, 1, 3), (1, 8), (1,), ((1, 0),), (1,))
    taps = networks.affine("taps", {1: conv, 2: Dense(normal(conv.n_out, 8))}, generator)
    last = networks.affine("out", {3: Dense(normal(2, 5)), 4: Dense(normal(2, conv.n_out))}, generator)
    net = Network((2,), (pairs, plain, wide, taps), last)
    new = merged(net)
    assert new.groups[0].size == 3
    assert [group.size for group in new.groups[1:]] == [8, 5, conv.n_out]
    x = normal(50, 2)
    torch.testing.assert_close(new.forward(x), net.forward(x), rtol=1e-12, atol=1e-12)
    assert bool((new.groups[2].bias - net.groups[2].bias).abs().max() > 0)  # the constant neuron has moved there
    assert bool((new.groups[2].bias_error > 0).all())


def test_mirrored_channels_of_a_convolution() -> None:
    """A convolution that is handed through mirrored channels, and put together again by a kernel of one tap."""
    kernel = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    inner = Conv(kernel, (1, 5, 5), (2, 2), ((1, 1), (1, 1)), (1, 1))
    both = replace(inner, weight=torch.cat([kernel, -kernel]))
    join = torch.tensor([[1.0, 0, -1, 0], [0, 1.0, 0, -1]]).double().reshape(2, 4, 1, 1)
    last = Conv(join, both.out_shape, (1, 1), ((0, 0), (0, 0)), (1, 1))
    bias = torch.tensor([0.5, -0.25, -0.5, 0.25]).double().repeat_interleave(9)
    net = Network((1, 5, 5), (layer({0: both}, bias.tolist()), layer({1: last})), layer({2: [[1.0] * 18]}))
    new = merged(net)
    assert [group.size for group in new.groups] == [18]
    found = new.groups[0].terms[0][1]
    assert isinstance(found, Conv)
    assert torch.equal(found.weight, kernel)
    assert torch.equal(new.groups[0].bias, bias[:18])
    x = torch.randn(20, 25, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(new.forward(x), net.forward(x), rtol=1e-12, atol=1e-12)


def test_unread_neurons_disappear_where_others_are_merged() -> None:
    unread = layer({0: [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]})
    net = Network((2,), (unread,), layer({1: [[1.0, 0.0, 1.0]]}))
    new = merged(net)
    assert new.relus == 1
    assert torch.equal(new.forward(grid(2))[:, 0], grid(2)[:, 0].abs())


def test_so_do_those_that_only_unread_neurons_read() -> None:
    """x_0 goes through a pair, x_1 through a neuron that only an unread one of the next group reads."""
    first = layer({0: [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]})
    second = layer({1: [[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]]}, [0.0, -1.0])
    new = merged(Network((2,), (first, second), layer({2: [[1.0, 0.0], [1.0, 0.0]]})))
    assert [group.size for group in new.groups] == [1]


def test_selections_are_compared_too() -> None:
    net = Network((2,), (layer({0: Select(torch.tensor([0, 1, 0, -1]), 2)}),), layer({1: [[1.0, 2.0, 4.0, 8.0]]}))
    new = merged(net)
    assert new.relus == 2
    assert torch.equal(new.forward(grid(2)), net.forward(grid(2)))


def test_folded_biases_stay_exact() -> None:
    """A bias that passes through weights which choose and compare is not rounded, and is known to be so."""
    first, compare = nn.Linear(2, 3), nn.Linear(3, 4, bias=False)
    with torch.no_grad():
        compare.weight.copy_(torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0, 1, -1], [1.0, -1, 0]]))
    module = nn.Sequential(first, compare, nn.ReLU(), nn.Linear(4, 1)).eval()
    net = lower(module, (1, 2), {})
    assert not bool(net.groups[0].bias_error.any())
    assert merged(net).relus == 2


@pytest.mark.parametrize(("name", "neurons"), [("8_m=1_instance_0_0", 31), ("16_m=1_instance_1_0", 116)])
def test_lattices_of_minima_and_maxima(benchmarks: Path, name: str, neurons: int) -> None:
    net = load_onnx(benchmarks / "tllverifybench" / "onnx" / f"tllBench_n=2_N=M={name}.onnx.gz").network()
    new = merged(net)
    assert new.relus == neurons
    x = 4 * torch.rand(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 2
    torch.testing.assert_close(new.forward(x), net.forward(x), rtol=0, atol=1e-12)


# -- groups that nothing reads -------------------------------------------------------------------------------


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
