"""Rows that end in products: planes are below them, exact for quadratic forms, and chosen where nobody checks them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networks
import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st
from search.boxes.deciding import decide

from verifier import verify
from verifier.bounding.relaxation.zonotope import propagate
from verifier.bounding.rows import Conjunction
from verifier.functions import PRODUCT
from verifier.functions.periodic import Sin
from verifier.functions.relu import RELU
from verifier.network.network import Affine, Network
from verifier.operators import Dense
from verifier.proofs.boxes import CARE
from verifier.result.verdict import Verdict
from verifier.search.boxes import bounds
from verifier.search.boxes.curved import CurvedRows, last_products
from verifier.search.boxes.space import InputOptions

SEEDS = st.integers(0, 10_000)


def layer(name: str, terms: dict[int, list[list[float]]], bias: list[float]) -> Affine:
    b = torch.tensor(bias, dtype=torch.float64)
    maps = tuple((source, Dense(torch.tensor(weight, dtype=torch.float64))) for source, weight in terms.items())
    return Affine(name, (len(bias),), maps, b, torch.zeros_like(b))


def squares() -> Network:
    """y = (2 u^2 - 2 u v + 3 v^2, u - v), with the products u (2 u - v) and v (3 v - u)."""
    products = layer("products", {0: [[1, 0], [0, 1], [2, -1], [-1, 3]]}, [0.0] * 4)
    output = layer("out", {1: [[1, 1], [0, 0]], 0: [[0, 0], [1, -1]]}, [0.0, 0.0])
    return Network((2,), (replace(products, function=PRODUCT),), output)


def curved(net: Network, box: tuple[torch.Tensor, torch.Tensor], rows: Conjunction, dtype: torch.dtype) -> CurvedRows:
    last = last_products(net)
    found = propagate(net.to(dtype=dtype), *box, without=last)
    return CurvedRows(net, last, found, box, rows, torch.arange(len(rows.c)))


def both_signs(boxes: int, inputs: int, c: torch.Tensor, seed: int) -> Conjunction:
    """The rows y - c, c - y and one that takes inputs."""
    generator = torch.Generator().manual_seed(seed)
    A = torch.zeros(5, 2, dtype=torch.float64)
    A[:2], A[2:4] = torch.eye(2), -torch.eye(2)
    A[4] = torch.randn(2, generator=generator, dtype=torch.float64)
    B = torch.zeros(5, inputs, dtype=torch.float64)
    B[4] = torch.randn(inputs, generator=generator, dtype=torch.float64)
    present = torch.ones(boxes, 5, dtype=torch.bool)
    return Conjunction(A.expand(boxes, -1, -1), B.expand(boxes, -1, -1), c.expand(boxes, -1), present)


def test_products_that_groups_read_are_not_the_last() -> None:
    net = squares()
    assert last_products(net) == {1}
    after = replace(layer("after", {1: [[1, 1]]}, [0.0]), function=RELU)
    output = layer("out", {1: [[1, 1]], 2: [[1]]}, [0.0])
    assert last_products(Network((2,), (*net.groups, after), output)) == frozenset()
    assert last_products(networks.dense(0)) == frozenset()


@settings(max_examples=20)
@given(SEEDS, st.sampled_from([torch.float32, torch.float64]), st.sampled_from([0.0, 0.02, 0.3, 1.5]))
def test_planes_are_below_all_rows(seed: int, dtype: torch.dtype, radius: float) -> None:
    net = networks.mixed(seed, kinds=(RELU, Sin(), PRODUCT))
    net = Network(net.input_shape, (*net.groups[:-1], _as_products(net, seed)), net.output)
    assert last_products(net)
    box = networks.box(net, seed, radius, 3)
    rows = both_signs(3, 2, torch.linspace(-1, 1, 5, dtype=torch.float64), seed)
    found = curved(net, box, rows, dtype).planes()
    x = networks.points(*box, 2000, seed)
    values = rows.values(net.forward(x).transpose(0, 1), x.transpose(0, 1)).transpose(0, 1)  # points, boxes, rows
    values = torch.cat([(values * found.weights).sum(dim=-1, keepdim=True), values], dim=-1)
    room = 1e-12 * (1 + values.abs())
    assert bool((found.plane.lower <= values + room).all())
    assert bool(((x.unsqueeze(-2) * found.plane.slope).sum(dim=-1) + found.plane.offset <= values + room).all())
    assert bool((found.weights >= 0).all())
    torch.testing.assert_close(found.weights.sum(dim=1), torch.ones(3, dtype=torch.float64))


def _as_products(net: Network, seed: int) -> Affine:
    """The last group, with products."""
    last, generator = net.groups[-1], torch.Generator().manual_seed(seed)
    sizes = {source: term.n_in for source, term in last.terms}
    terms = {j: networks.matrix(2 * last.neurons, size, generator) for j, size in sizes.items()}
    return replace(networks.affine("last", dict(terms), generator), function=PRODUCT)


def test_quadratic_forms_are_bounded_exactly() -> None:
    """Convex, concave, and linear: all of them have their minima known."""
    net = squares()
    box = torch.tensor([[1.0, -2.0]], dtype=torch.float64), torch.tensor([[3.0, 1.0]], dtype=torch.float64)
    rows = both_signs(1, 2, torch.zeros(5, dtype=torch.float64), 0)
    lower = curved(net, box, rows, torch.float64).planes().plane.lower[0, 1:5]
    # 2 u^2 - 2 u v + 3 v^2 is least at u = 1, v = 1 / 3, and largest at u = 3, v = -2.
    torch.testing.assert_close(lower, torch.tensor([5 / 3, 0.0, -42.0, -5.0], dtype=torch.float64), atol=1e-6, rtol=0)


def test_level_sets_help() -> None:
    """2 u^2 - 2 u v + 3 v^2 <= 0.8 and u >= 1 exclude each other; on the whole box only together."""
    net = squares()
    box = torch.tensor([[-1.5, -1.5]], dtype=torch.float64), torch.tensor([[1.5, 1.5]], dtype=torch.float64)
    A = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    B = torch.tensor([[[0.0, 0.0], [-1.0, 0.0]]], dtype=torch.float64)
    present = torch.ones(1, 2, dtype=torch.bool)
    rows = Conjunction(A, B, torch.tensor([[0.8, -1.0]], dtype=torch.float64), present)
    lower = curved(net, box, rows, torch.float64).planes().plane.lower[0]
    assert float(lower[1:].max()) < 0 < float(lower[0])


@pytest.mark.parametrize("most", [64, 0])
@pytest.mark.parametrize(("threshold", "holds"), [(1.66, True), (1.68, False)])
def test_verdicts_do_not_depend_on_the_way(
    most: int, threshold: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too many symbols, rows are swept as before."""
    monkeypatch.setattr(bounds, "MOST_SYMBOLS", most)
    problem = instances.problem(
        squares(), instances.boxes([[1.0, -2.0]], [[3.0, 1.0]]), [(0, [instances.row({0: 1}, threshold)])]
    )
    found = decide(problem)
    assert found.reason is None
    assert (found.witness is None) == holds


def test_who_wants_a_proof_gets_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no form for quadratic functions in proofs."""

    def refuse(self: CurvedRows) -> None:
        raise AssertionError

    monkeypatch.setattr(CurvedRows, "planes", refuse)
    box = instances.boxes([[1.0, -2.0]], [[3.0, 1.0]])
    problem = instances.problem(squares(), box, [(0, [instances.row({0: 1}, 1.5)])])
    assert decide(problem, InputOptions(care=CARE)).reason is None
    with pytest.raises(AssertionError):
        decide(problem)


@pytest.mark.slow
@pytest.mark.parametrize("prop", ["quadrotor2d_state_5", "quadrotor2d_state_13", "quadrotor2d_output_6"])
def test_lyapunov_functions_of_quadrotors(prop: str, benchmarks: Path) -> None:
    folder = benchmarks / "lsnc"
    network = folder / "onnx" / f"{prop.rpartition('_')[0]}.onnx"
    found = verify(network, folder / "vnnlib" / f"{prop}.vnnlib", timeout=300, threads=1)
    assert found.verdict is Verdict.UNSAT
    assert found.statistics.domains < 3000
