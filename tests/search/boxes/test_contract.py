"""Contraction keeps every point at which all rows hold, with the values of its neurons; logic propagates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from falsify import instances
from networks import affine, conv, dense, matrix, mixed
from networks import box as box_of
from search.boxes.deciding import decide

import verifier
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.rows import Conjunction
from verifier.network.network import Affine, Network
from verifier.operators import Dense
from verifier.property.problem import Problem
from verifier.search.boxes import contract
from verifier.search.boxes.bounds import Care
from verifier.search.boxes.contract import Contracted, Contraction
from verifier.search.boxes.space import InputOptions, contraction_of
from verifier.search.problem import ProblemSearch, Splitting

Formula = Sequence[Sequence[int]]
"""Clauses of literals: i + 1 is variable i, -(i + 1) its negation."""


def network(formula: Formula, n: int) -> Network:
    """y_0 = 1 - (clauses that fail, added up) and y_1 = sum of min(x, 1 - x), on [0, 1]^n."""
    weight, bias = torch.zeros(len(formula), n), torch.ones(len(formula))
    for i, clause in enumerate(formula):
        for literal in clause:
            weight[i, abs(literal) - 1] -= 1.0 if literal > 0 else -1.0
            bias[i] -= 0.0 if literal > 0 else 1.0
    eye = torch.eye(n)
    first, constant = torch.cat([weight, eye, 2.0 * eye]), torch.cat([bias, torch.zeros(n), -torch.ones(n)])
    last = torch.zeros(2, len(first))
    last[0, : len(formula)] = -1.0
    last[1, len(formula) :] = torch.cat([torch.ones(n), -torch.ones(n)])
    layers = [
        Affine(name, (len(own),), ((k, Dense(own.double())),), given.double(), torch.zeros(len(own)).double())
        for k, (name, own, given) in enumerate([("first", first, constant), ("last", last, torch.tensor([1.0, 0.0]))])
    ]
    return Network((n,), (layers[0],), layers[1])


def problem(formula: Formula, n: int) -> Problem:
    """Unsafe: y_0 >= 1 and y_1 <= 0, which is where the formula holds."""
    rows = [instances.row({0: -1}, -1), instances.row({1: 1}, 0)]
    return instances.problem(network(formula, n), instances.boxes([[0] * n], [[1] * n]), [(0, rows)])


def holds(formula: Formula, point: Sequence[int]) -> bool:
    return all(any(point[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in formula)


def random_formula(seed: int, n: int, clauses: int) -> Formula:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(clauses):
        some = torch.randperm(n, generator=generator)[: 1 + int(torch.randint(3, (1,), generator=generator))]
        signs = torch.randint(2, (len(some),), generator=generator)
        found.append([int(i + 1) if sign else -int(i + 1) for i, sign in zip(some, signs, strict=True)])
    return found


def contracted(instance: Problem, low: list[float], high: list[float]) -> Contracted:
    """Of one box, with bounds of hidden neurons by intervals and CROWN."""
    net, sides = instance.network, (torch.tensor([low]).double(), torch.tensor([high]).double())
    region = RootBounds().region(net, *sides, Until())
    found = Contraction.of(net)
    assert found is not None
    hidden = list(zip(region.l_hat, region.u_hat, strict=True))
    return found.contracted(Conjunction.of(instance, [[0]]), sides, hidden)


def test_units_propagate() -> None:
    """a, (not a or b), (not b or c) and c or d: a cut is not needed to know a = b = c = 1; of d nothing is known."""
    left = contracted(problem([[1], [-1, 2], [-2, 3], [3, 4]], 4), [0.0] * 4, [1.0] * 4)
    assert not left.empty
    torch.testing.assert_close(left.low, torch.tensor([[1.0, 1.0, 1.0, 0.0]]).double(), atol=1e-9, rtol=0)
    assert left.high.tolist() == [[1.0] * 4]
    assert bool((left.u_hat[0][:, :4] <= 1e-9).all())  # clauses do not fail


def test_a_contradiction_leaves_nothing() -> None:
    formula = [[1, 2], [-1, 2], [1, -2], [-1, -2]]
    assert not contracted(problem(formula, 2), [0.0, 0.0], [1.0, 1.0]).empty  # nothing follows without a cut
    for low, high in (([0.0, 0.0], [0.25, 1.0]), ([0.75, 0.0], [1.0, 1.0])):
        assert bool(contracted(problem(formula, 2), low, high).empty)


def test_inputs_near_their_limits_are_pressed() -> None:
    """The input of two short clauses more than that of one, and what no clause names not at all."""
    press = contracted(problem([[1, 2], [1, 3], [1, 2, 3]], 4), [0.0] * 4, [1.0] * 4).press[0].tolist()
    assert press[0] > press[1] == press[2] > press[3] == 0.0


def joined(seed: int) -> Network:
    """Layers that read several sources, the input among them."""
    generator = torch.Generator().manual_seed(seed)
    layers = [
        affine("first", {0: matrix(5, 3, generator)}, generator),
        affine("second", {1: matrix(4, 5, generator), 0: matrix(4, 3, generator)}, generator),
        affine("out", {2: matrix(2, 4, generator), 1: matrix(2, 5, generator), 0: matrix(2, 3, generator)}, generator),
    ]
    return Network((3,), tuple(layers[:-1]), layers[-1])


@pytest.mark.parametrize("make", [dense, joined])
@pytest.mark.parametrize("seed", range(12))
def test_no_point_is_lost_at_which_all_rows_hold(make: object, seed: int) -> None:
    """Rows pass through the value at a point, so that it lies on the edge; weights of all sizes."""
    assert callable(make)
    net: Network = make(seed)
    generator = torch.Generator().manual_seed(seed)
    low, high = box_of(net, seed, radius=1.0)
    x = low + (high - low) * torch.rand(4000, net.n_in, generator=generator).double()
    values, y = _values(net, x)
    sizes = 10.0 ** torch.randint(-6, 7, (2, 1), generator=generator)
    A = torch.randn(2, net.n_out, generator=generator).double() * sizes
    B = torch.randn(2, net.n_in, generator=generator).double() * (seed % 2)
    reached = y @ A.T + x @ B.T
    edge = reached.sum(dim=1).argmin()
    c = reached[edge] + 1e-9 * (1.0 + reached[edge].abs())
    rows = Conjunction(A[None], B[None] if seed % 2 else None, c[None], torch.ones(1, 2, dtype=torch.bool))
    region = RootBounds().region(net, low, high, Until())
    found = Contraction.of(net)
    assert found is not None
    left = found.contracted(rows, (low, high), list(zip(region.l_hat, region.u_hat, strict=True)))
    allowed = (reached <= c).all(dim=1)
    assert bool(allowed[edge])
    assert not left.empty
    sides = [(left.low, left.high, x), *zip(left.l_hat, left.u_hat, values, strict=True)]
    for least, most, value in sides:
        assert bool((least <= value[allowed] + 1e-12).all())
        assert bool((value[allowed] <= most + 1e-12).all())
    assert bool((left.low >= low).all())
    assert bool((left.high <= high).all())


@pytest.mark.parametrize("seed", range(60))
def test_the_least_corner_stays_however_sums_round(seed: int) -> None:
    """y = w.x + b with weights of many sizes, and y <= its exact minimum: one corner is left, and it is not lost."""
    generator = torch.Generator().manual_seed(seed)
    n = 3 + seed % 40
    weight = torch.randn(1, n, generator=generator).double() * 10.0 ** torch.randint(-8, 9, (n,), generator=generator)
    low = torch.randn(1, n, generator=generator).double() * 100.0
    high = low + torch.rand(1, n, generator=generator).double()
    bias = -(weight * low).sum(dim=1)
    net = Network((n,), (), Affine("out", (1,), ((0, Dense(weight)),), bias, torch.zeros_like(bias)))
    corner = torch.where(weight > 0, low, high)
    least = Fraction(float(bias)) + sum(
        Fraction(w) * Fraction(v) for w, v in zip(weight[0].tolist(), corner[0].tolist(), strict=True)
    )
    c = float(least) if Fraction(float(least)) >= least else math.nextafter(float(least), math.inf)
    rows = Conjunction(
        torch.ones(1, 1, 1).double(), None, torch.tensor([[c]], dtype=torch.float64), torch.ones(1, 1) > 0
    )
    found = Contraction.of(net)
    assert found is not None
    left = found.contracted(rows, (low, high), [])
    assert not left.empty
    assert bool(((left.low <= corner) & (corner <= left.high)).all())


def _values(net: Network, x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    sources, t = [x], []
    for group in net.groups:
        t.append(group.forward(sources))
        sources.append(t[-1].clamp(min=0.0))
    return t, net.output.forward(sources)


def test_something_is_contracted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On random rows that hold nearly nowhere the box gets smaller, and steps in parts say the same."""
    net = dense(3)
    low, high = box_of(net, 3, radius=1.0)
    region = RootBounds().region(net, low, high, Until())
    hidden = list(zip(region.l_hat, region.u_hat, strict=True))
    y = net.forward(
        low + (high - low) * torch.rand(4000, net.n_in, generator=torch.Generator().manual_seed(0)).double()
    )
    rows = Conjunction(
        torch.eye(net.n_out).double()[None], None, y.amin(dim=0)[None], torch.ones(1, net.n_out, dtype=torch.bool)
    )
    found = Contraction.of(net)
    assert found is not None
    whole = found.contracted(rows, (low, high), hidden)
    assert bool((whole.low > low).any() | (whole.high < high).any())
    monkeypatch.setattr(contract, "CHUNK", 1)
    parts = found.contracted(rows, (low, high), hidden)
    assert torch.equal(whole.low, parts.low)
    assert torch.equal(whole.high, parts.high)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("seed", range(24))
def test_formulas_are_decided_as_by_enumeration(seed: int) -> None:
    n = 5 + seed % 3
    formula = random_formula(seed, n, clauses=n + seed % 9)
    true = any(holds(formula, point) for point in itertools.product((0, 1), repeat=n))
    outcome = decide(problem(formula, n))
    assert outcome.reason is None
    assert (outcome.witness is not None) == true


def test_both_verdicts_are_met() -> None:
    met = set()
    for seed in range(24):
        n = 5 + seed % 3
        formula = random_formula(seed, n, clauses=n + seed % 9)
        met.add(any(holds(formula, point) for point in itertools.product((0, 1), repeat=n)))
    assert met == {True, False}


def test_who_is_contracted() -> None:
    """Matrices and ReLUs of moderate size, where all clauses force signs and nobody follows the steps."""
    assert Contraction.of(conv(0)) is None
    assert Contraction.of(mixed(0)) is None
    some, options = problem([[1, 2]], 2), InputOptions()
    assert contraction_of(some, options) is not None
    assert contraction_of(some, InputOptions(care=Care(followed=True))) is None
    free = instances.problem(dense(0), instances.boxes([[-1] * 3], [[1] * 3]), [(0, [instances.row({0: 1}, 0)])])
    assert contraction_of(free, options) is None


def test_many_inputs_are_cut_where_rows_contract_boxes() -> None:
    n, search = 40, ProblemSearch()
    assert search.splitting is Splitting.AUTO
    assert search.by_inputs(problem([[1, 2]], n))
    rows = [instances.row({1: 1}, -1)]
    free = instances.problem(network([[1, 2]], n), instances.boxes([[0] * n], [[1] * n]), [(0, rows)])
    assert not search.by_inputs(free)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["unsat_v39_c77", "unsat_v54_c125"])
def test_encoded_formulas_of_the_benchmark(benchmarks: Path, name: str) -> None:
    """The search by signs alone is not done with these after tens of thousands of domains."""
    family = benchmarks / "sat_relu"
    result = verifier.verify(family / "onnx" / f"{name}.onnx.gz", family / "vnnlib" / f"{name}.vnnlib.gz", timeout=60)
    assert result.verdict.value == "unsat"
    assert result.statistics.domains < 1000
