"""The cone of some outputs: the same values, bit by bit where nothing is summed anew, and nobody who is not needed."""

from __future__ import annotations

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.functions import PRODUCT
from verifier.network.cone import cone, cut, needed
from verifier.network.network import Affine, Network
from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse, Sum, Transposed

SEEDS = st.integers(0, 2**16)


def weights(shape: tuple[int, ...], generator: torch.Generator, share: float = 0.5) -> torch.Tensor:
    """Short numbers, many of them zero: sums of their products are exact."""
    some = torch.randint(-8, 9, shape, generator=generator).double() / 8
    return some * (torch.rand(shape, generator=generator) < share)


def maps(seed: int) -> dict[str, LinearMap]:
    """One of each kind."""
    generator = torch.Generator().manual_seed(seed)
    conv = Conv(weights((3, 2, 3, 2), generator), (2, 6, 5), (2, 1), ((1, 0), (0, 1)), (1, 2))
    wide = Conv(weights((2, 2, 3), generator), (2, 9), (1,), ((5, 4),), (1,))
    grouped = Conv(weights((4, 1, 2, 2), generator), (2, 4, 4), (1, 1), ((0, 0), (0, 0)), (1, 1), groups=2)
    first, second = Dense(weights((7, 4), generator)), Dense(weights((5, 7), generator))
    return {
        "dense": second,
        "blocks": Dense(weights((3, 4), generator), repeats=3),
        "sparse": Sparse.of(weights((9, 8), generator, 0.2)),
        "select": Select(torch.randint(-1, 6, (9,), generator=generator), 6),
        "diagonal": Diagonal(weights((8,), generator)),
        "conv": conv,
        "padding": wide,
        "grouped": grouped,
        "transposed": Transposed(conv),
        "chain": Chain((first, Diagonal(weights((7,), generator)), second)),
        "moved": Chain((conv, Select(torch.randperm(conv.n_out, generator=generator)[:11], conv.n_out))),
        "sum": Sum((Dense(weights((7, 4), generator, 0.2)), first)),
    }


@pytest.mark.parametrize("kind", list(maps(0)))
@given(SEEDS)
@settings(max_examples=25)
def test_some_rows_of_a_map_over_what_they_need(kind: str, seed: int) -> None:
    linear, generator = maps(seed)[kind], torch.Generator().manual_seed(seed)
    rows = torch.rand(linear.n_out, generator=generator) < 0.3
    columns = needed(linear, rows)
    unit = torch.eye(linear.n_in, dtype=torch.float64)
    matrix = linear.forward(unit).T[rows]
    assert bool(columns[(matrix != 0).any(dim=0)].all()), "an entry that is read is not needed"
    if not isinstance(linear, Chain | Sum):
        assert torch.equal(columns, (matrix != 0).any(dim=0)), "an entry that nobody reads is needed"
    more = columns | (torch.rand(linear.n_in, generator=generator) < 0.2)
    if bool(rows.any()) and bool(more.any()):
        small = cut(linear, rows, more)
        assert (small.n_in, small.n_out) == (int(more.sum()), int(rows.sum()))
        assert torch.equal(small.forward(unit[more][:, more]).T, matrix[:, more])
        assert torch.equal(small.transpose(torch.eye(small.n_out, dtype=torch.float64)), matrix[:, more])
        assert small.depth <= linear.depth + linear.n_in


@pytest.mark.parametrize("family", list(networks.FAMILIES))
@given(SEEDS)
@settings(max_examples=15)
def test_the_outputs_are_those_of_the_whole_network(family: str, seed: int) -> None:
    net, generator = networks.FAMILIES[family](seed % 97), torch.Generator().manual_seed(seed)
    x = torch.randn(9, net.n_in, generator=generator, dtype=torch.float64)
    for outputs in ([0], [net.n_out - 1], list(range(net.n_out))):
        small = cone(net, outputs)
        assert small.n_out == len(outputs)
        assert small.neurons <= net.neurons
        torch.testing.assert_close(small.forward(x), net.forward(x)[:, outputs], rtol=1e-12, atol=1e-12)


def layer(terms: dict[int, LinearMap], function: object = None) -> Affine:
    size = next(iter(terms.values())).n_out
    zero = torch.zeros(size, dtype=torch.float64)
    made = Affine("layer", (size,), tuple(terms.items()), zero + 0.5, zero)
    return made if function is None else Affine("layer", (size,), made.terms, made.bias, zero, PRODUCT)


def test_groups_and_neurons_that_are_not_needed_are_gone() -> None:
    """Two towers and a product of both; the first output reads one tower, the second the product."""
    one = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    towers = [layer({0: Dense(one)}), layer({0: Dense(-one)})]
    both = {1: Select(torch.tensor([0, 1, -1, -1]), 3), 2: Select(torch.tensor([-1, -1, 1, 2]), 3)}
    output = {1: Dense(torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]).double())}
    output[3] = Dense(torch.tensor([[0.0, 0.0], [0.0, 3.0]]).double())  # type: ignore[assignment]
    net = Network((2,), (*towers, layer(both, PRODUCT)), layer(output))  # type: ignore[arg-type]
    x = torch.tensor([[0.25, -0.5], [1.0, 2.0]], dtype=torch.float64)
    first, second = cone(net, [0]), cone(net, [1])
    assert [group.neurons for group in first.groups] == [1]
    assert [group.neurons for group in second.groups] == [1, 1, 1]
    assert second.groups[-1].function is PRODUCT
    for i, small in enumerate((first, second)):
        assert torch.equal(small.forward(x), net.forward(x)[:, [i]])
    assert [group.neurons for group in cone(net, [0, 1]).groups] == [2, 1, 1]


def test_an_output_that_reads_nothing_is_its_bias() -> None:
    output = layer({1: Dense(torch.tensor([[0.0, 0.0], [1.0, 0.0]]).double())})
    net = Network((2,), (layer({0: Dense(torch.eye(2).double())}),), output)
    small = cone(net, [0])
    assert not small.groups
    assert small.forward(torch.ones(3, 2).double()).tolist() == [[0.5]] * 3


def test_a_convolution_is_cut_to_the_rectangle_that_is_needed() -> None:
    kernel = torch.ones(1, 1, 3, 3).double()
    first = Conv(kernel, (1, 32, 32), (1, 1), ((1, 1), (1, 1)), (1, 1))
    net = Network((1, 32, 32), (layer({0: first}),), layer({1: first}))
    small = cone(net, [33])  # the second row and column
    assert small.neurons == 9
    inner = small.groups[0].terms[0][1]
    assert isinstance(inner, Chain)
    assert any(isinstance(part, Conv) and part.in_shape == (1, 4, 4) for part in inner.maps)
    x = torch.rand(5, 1024, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(small.forward(x), net.forward(x)[:, [33]], rtol=1e-14, atol=1e-14)
