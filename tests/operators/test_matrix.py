"""Sparse matrices: the same map as their dense twin, with fewer roundings, and never turned dense on the way."""

from __future__ import annotations

from fractions import Fraction

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder, Objective, Until
from verifier.bounding.cuts.masks import Form
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import PlanetLP
from verifier.bounding.relaxation.zonotope import propagate
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.network.lowering.run import lower
from verifier.network.network import Affine, Network
from verifier.operators import Chain, Dense, Diagonal, LinearMap, Select, Sparse, compose, gamma, stored
from verifier.operators.matrix import LEAST_ENTRIES, stored_rows
from verifier.operators.signed import absolute, parts, signed, within_reach

SEEDS = st.integers(0, 2**16)


def holes(rows: int, columns: int, seed: int, share: float = 0.3) -> torch.Tensor:
    """A random matrix that is mostly zero."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return weight * (torch.rand(rows, columns, generator=generator) < share)


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def matrix_of(linear: LinearMap) -> torch.Tensor:
    return linear.forward(torch.eye(linear.n_in, dtype=torch.float64)).T


# -- the map --------------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 6), st.integers(1, 6), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=40)
def test_all_directions_are_those_of_the_dense_twin(seed: int, rows: int, columns: int, share: float) -> None:
    weight = holes(rows, columns, seed, share)
    sparse, dense = Sparse.of(weight), Dense(weight)
    assert (sparse.n_in, sparse.n_out, sparse.parameters) == (columns, rows, int(weight.count_nonzero()))
    torch.testing.assert_close(sparse.dense(), weight, rtol=0, atol=0)
    for batch in [(), (0,), (1,), (2, 3)]:
        x, y = vectors(*batch, columns, seed=seed), vectors(*batch, rows, seed=seed + 1)
        torch.testing.assert_close(sparse.forward(x), dense.forward(x))
        torch.testing.assert_close(sparse.transpose(y), dense.transpose(y))
        torch.testing.assert_close(sparse.magnitude(x.abs()), dense.magnitude(x.abs()))


def test_vectors_may_lie_side_by_side_in_memory() -> None:
    weight = holes(5, 4, 1)
    x = vectors(4, 3, 2).permute(2, 1, 0)
    torch.testing.assert_close(Sparse.of(weight).forward(x), x @ weight.T)


@given(SEEDS, st.sampled_from([1e-8, 1.0, 1e8]), st.booleans())
@settings(max_examples=25)
def test_rounding_stays_below_gamma_of_the_longest_sum(seed: int, scale: float, turned: bool) -> None:
    """Heavy cancellation in a row, or a column, of 40 entries out of 400, against rational arithmetic."""
    weight = torch.zeros(400, dtype=torch.float64)
    places = torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:40].sort().values
    weight[places] = scale * vectors(40, seed=seed)
    linear = Sparse.of(weight.unsqueeze(1 if turned else 0))
    assert linear.depth == 41
    x = vectors(400, seed=seed + 1)
    x[places[20:]] = -x[places[:20]] * weight[places[:20]] / weight[places[20:]]
    found = linear.transpose(x) if turned else linear.forward(x)
    exact = sum(Fraction(w) * Fraction(v) for w, v in zip(weight.tolist(), x.tolist(), strict=True))
    size = Fraction(float((weight.abs() * x.abs()).sum()))
    assert abs(Fraction(found.item()) - exact) <= Fraction(gamma(linear.depth)) * size


def test_depth_counts_the_entries_of_rows_and_columns() -> None:
    assert Sparse.of(torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]).double()).depth == 3
    assert Sparse.of(torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 4.0]]).double()).depth == 4
    assert Sparse.of(torch.eye(3, dtype=torch.float64), roundings=2).depth == 4


def test_entries_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="outside of a matrix"):
        Sparse(torch.tensor([2]), torch.tensor([0]), torch.ones(1, dtype=torch.float64), (2, 1))


@given(SEEDS, st.lists(st.integers(-1, 5), min_size=1, max_size=9))
@settings(max_examples=30)
def test_rows_are_taken_in_any_order(seed: int, index: list[int]) -> None:
    weight, wanted = holes(6, 7, seed), torch.tensor(index)
    expected = weight[wanted.clamp(min=0)] * (wanted >= 0).unsqueeze(1)
    torch.testing.assert_close(Sparse.of(weight).taken(wanted).dense(), expected, rtol=0, atol=0)


# -- neighbours -----------------------------------------------------------------------------------------------


@given(SEEDS)
@settings(max_examples=20)
def test_selections_and_scales_leave_it_sparse(seed: int) -> None:
    weight = holes(6, 6, seed)
    sparse = Sparse.of(weight)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    padded = Select(torch.where(order < 4, order, -1), 6)
    scale = Diagonal(vectors(6, seed=seed), roundings=1)
    for outer, inner, more in ((padded, sparse, 0), (sparse, padded, 0), (scale, sparse, 2), (sparse, scale, 2)):
        found = compose(outer, inner)
        assert isinstance(found, Sparse)
        assert found.roundings == more
        assert bool(((found.rows * found.n_in + found.columns).diff() > 0).all())
        torch.testing.assert_close(matrix_of(found), matrix_of(outer) @ matrix_of(inner))


def test_a_selection_that_repeats_entries_stays_a_factor() -> None:
    sparse, twice = Sparse.of(holes(3, 4, 0)), Select(torch.tensor([0, 0, 1, -1]), 2)
    found = compose(sparse, twice)
    assert isinstance(found, Chain)
    torch.testing.assert_close(matrix_of(found), matrix_of(sparse) @ matrix_of(twice))


@given(SEEDS)
@settings(max_examples=20)
def test_parts_by_sign(seed: int) -> None:
    weight = holes(4, 5, seed)
    sparse = Sparse.of(weight)
    assert within_reach(sparse)
    found, both, size = parts(sparse), signed(sparse), absolute(sparse)
    assert found is not None
    assert isinstance(both, Sparse)
    assert isinstance(size, Sparse)
    torch.testing.assert_close(matrix_of(found[0]), weight.clamp(min=0), rtol=0, atol=0)
    torch.testing.assert_close(matrix_of(found[1]), weight.clamp(max=0), rtol=0, atol=0)
    torch.testing.assert_close(matrix_of(both), torch.cat([weight.clamp(min=0), weight.clamp(max=0)], dim=1))
    torch.testing.assert_close(size.dense(), weight.abs(), rtol=0, atol=0)


def test_stored_rows_are_not_computed() -> None:
    weight, index = holes(4, 5, 3), torch.tensor([2, 0])
    for linear in (Sparse.of(weight), Dense(weight)):
        found = stored_rows(linear, index)
        assert found is not None
        assert torch.equal(found, weight[index])
    assert stored_rows(Dense(weight, repeats=2), index) is None


# -- who gets it ----------------------------------------------------------------------------------------------


def test_large_matrices_with_few_entries_are_stored_sparse() -> None:
    side = int(LEAST_ENTRIES**0.5) + 1
    assert isinstance(stored(torch.eye(side, dtype=torch.float64)), Sparse)
    assert isinstance(stored(torch.eye(side, dtype=torch.float64), repeats=2), Dense)
    assert isinstance(stored(torch.eye(side // 2, dtype=torch.float64)), Dense)
    assert isinstance(stored(holes(side, side, 0, share=0.2)), Dense)


def test_lowering_picks_it() -> None:
    module = nn.Sequential(nn.Linear(100, 120), nn.ReLU(), nn.Linear(120, 100))
    with torch.no_grad():
        for layer in (module[0], module[2]):
            layer.weight.mul_(torch.rand(layer.weight.shape, generator=torch.Generator().manual_seed(0)) < 0.02)
    net = lower(module.eval(), (1, 100), {})
    terms = [term for layer in net.layers for _, term in layer.terms]
    assert all(isinstance(term, Sparse) for term in terms)
    assert terms[0].describe().startswith("sparse 100->120 (")
    x = vectors(3, 100)
    torch.testing.assert_close(net.forward(x).float(), module(x.float()), rtol=1e-4, atol=1e-5)


def twins(seed: int) -> tuple[Network, Network]:
    """The same network with sparse and with dense layers."""
    generator = torch.Generator().manual_seed(seed)
    widths = (3, 12, 10, 8, 2)
    layers = []
    for k in range(4):
        weight = holes(widths[k + 1], widths[k], seed + k, share=0.4)
        layers.append(networks.affine(f"layer{k}", {k: Dense(weight)}, generator))

    def thinned(layer: Affine) -> Affine:
        terms = [(j, Sparse.of(term.weight)) for j, term in layer.terms if isinstance(term, Dense)]
        return Affine(layer.name, layer.shape, tuple(terms), layer.bias, layer.bias_error)

    thin = [thinned(layer) for layer in layers]
    return Network((3,), tuple(thin[:-1]), thin[-1]), Network((3,), tuple(layers[:-1]), layers[-1])


SHORT = Ascent(8, Steps(1e-2, 1e-3))
BOUNDERS: dict[str, Bounder] = {
    "alpha_crown": AlphaCrown(SHORT),
    "cuts of rows": ActiveSet(SHORT, SHORT, Additions(every=3, count=1), masks=Form.ROWS),
    "shared cuts": ActiveSet(SHORT, SHORT, Additions(every=3, count=1), masks=Form.SHARED),
    "lp": PlanetLP(),
}


@pytest.mark.parametrize("method", BOUNDERS)
@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_those_of_the_dense_twin(method: str, seed: int) -> None:
    sparse, dense = twins(seed)
    lower, upper = networks.box(dense, seed, 1.0, 2)
    found = []
    for net in (sparse, dense):
        region = RootBounds().region(net, lower, upper, Until())
        rows = Objective(4, torch.eye(2, dtype=torch.float64).unsqueeze(0))
        bound = BOUNDERS[method].bound(net, region, rows, Until())
        found.append((*region.l_hat, *region.u_hat, bound.lower))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@given(SEEDS)
@settings(max_examples=10)
def test_zonotopes_are_those_of_the_dense_twin_with_smaller_errors(seed: int) -> None:
    sparse, dense = twins(seed)
    lower, upper = networks.box(dense, seed, 1.0, 4)
    single = torch.float32
    few, many = (propagate(net.to(dtype=single), lower, upper) for net in (sparse, dense))
    for k in range(3):
        torch.testing.assert_close(few.l_hat[k], many.l_hat[k], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(few.u_hat[k], many.u_hat[k], rtol=1e-4, atol=1e-4)
    assert bool((few.output.error <= 1.001 * many.output.error).all())
    assert bool((few.output.error < many.output.error).any())
