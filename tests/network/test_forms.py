"""Maps as exact entries and back: nothing is lost, and convolutions are recognised only where they are exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from verifier.network.entries import Entries, convolutions, entries_of, map_of
from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


WEIGHT = torch.tensor([[1.0, 0.0, -2.0], [0.0, 0.5, 0.0]]).double()
CONVS: dict[str, Conv] = {
    "one axis": Conv(normal(3, 2, 3), (2, 7), (2,), ((1, 1),), (1,)),
    "two axes": Conv(normal(3, 2, 3, 2), (2, 5, 4), (1, 1), ((1, 1), (0, 0)), (1, 1)),
    "lopsided": Conv(normal(2, 1, 3, 3), (1, 6, 6), (2, 2), ((0, 1), (2, 1)), (1, 1)),
    "dilated": Conv(normal(2, 2, 2, 2), (2, 6, 5), (1, 2), ((0, 0), (0, 0)), (3, 2)),
    "three axes": Conv(normal(2, 1, 2, 2, 2), (1, 3, 4, 3), (1, 2, 1), ((0, 0), (1, 1), (0, 0)), (1, 1, 1)),
    "a single tap": Conv(normal(3, 4, 1, 1), (4, 2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)),
}
MAPS: dict[str, LinearMap] = {
    "dense": Dense(WEIGHT),
    "sparse": Sparse.of(WEIGHT),
    "select": Select(torch.tensor([2, -1, 0]), 4),
    "diagonal": Diagonal(torch.tensor([2.0, 0.0, -1.0]).double()),
    "product": Chain((Diagonal(torch.tensor([2.0, 1.0, -1.0]).double()), Sparse.of(WEIGHT), Dense(WEIGHT.T))),
    **CONVS,
}


def known(linear: LinearMap) -> Entries:
    found = entries_of(linear)
    assert found is not None
    return found


def matrix_of(linear: LinearMap) -> torch.Tensor:
    return linear.forward(torch.eye(linear.n_in, dtype=torch.float64)).T


@pytest.mark.parametrize("name", MAPS)
def test_entries_are_those_of_the_matrix(name: str) -> None:
    linear = MAPS[name]
    found = known(linear)
    torch.testing.assert_close(found.dense(), matrix_of(linear), rtol=0, atol=0)
    assert bool((found.values != 0).all())
    order = found.rows * linear.n_in + found.columns
    assert bool((order[1:] > order[:-1]).all())
    torch.testing.assert_close(matrix_of(map_of(found)), matrix_of(linear), rtol=0, atol=0)


def test_rounded_or_hidden_weights_have_no_entries() -> None:
    conv = CONVS["one axis"]
    grouped = Conv(normal(2, 1, 2), (2, 3), (1,), ((0, 0),), (1,), groups=2)
    rounded = replace(conv, roundings=1)
    for linear in (Dense(WEIGHT, roundings=1), Dense(WEIGHT, repeats=2), grouped, rounded, Chain((grouped,) * 1)):
        assert entries_of(linear) is None


@pytest.mark.parametrize("name", CONVS)
def test_convolutions_are_recognised_among_templates(name: str) -> None:
    """Also with some of its channels only, on either side."""
    conv, wrong = CONVS[name], Conv(normal(1, 1, 5), (1, 5), (1,), ((0, 0),), (1,))
    few = replace(conv, weight=conv.weight[:2, :1].contiguous(), in_shape=(1, *conv.in_shape[1:]))
    for wanted in (conv, few):
        found = map_of(known(wanted), [wrong, conv])
        assert isinstance(found, Conv)
        assert (found.in_shape, found.out_shape) == (wanted.in_shape, wanted.out_shape)
        assert torch.equal(found.weight, wanted.weight)


@pytest.mark.parametrize("place", [0, -1])
def test_one_entry_that_differs_makes_it_a_plain_matrix(place: int) -> None:
    conv = CONVS["two axes"]
    entries = known(conv)
    values = entries.values.clone()
    values[place] += 1.0
    assert not isinstance(map_of(replace(entries, values=values), [conv]), Conv)


def test_templates_are_found_inside_of_products() -> None:
    conv = CONVS["one axis"]
    assert convolutions([Chain((conv, Dense(normal(2, conv.n_out)))), Dense(WEIGHT), conv]) == [conv, conv]
