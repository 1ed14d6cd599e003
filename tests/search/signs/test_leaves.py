"""Domains without ambiguous neurons: the program's proposals are checked, and doubt stays doubt."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
import torch
from falsify import instances
from search.cases import Case, decide, domains_of, patterns, random_case, root_of, twin, wedge

from verifier.bounding.core.base import Until
from verifier.bounding.lp.program import Program
from verifier.bounding.lp.solver import Solution
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.result.verdict import Reason
from verifier.search.signs.leaves import Leaf, solve_leaf
from verifier.search.signs.root import Root


def solve(root: Root, signs: torch.Tensor | list[int], clause: int, until: Until | None = None) -> Leaf:
    return solve_leaf(domains_of(root, torch.as_tensor(signs).unsqueeze(0), clause), until or Until())


def exact(case: Case, root: Root, signs: torch.Tensor, clause: int) -> float:
    """The minimum on the domain by the oracle; +inf if it is empty."""
    region = domains_of(root, signs.unsqueeze(0), clause).region()
    bounds = [(low[0].numpy(), high[0].numpy()) for low, high in zip(region.l_hat, region.u_hat, strict=True)]
    claim = case.claims[clause]
    return oracle.planet_lp_of_max(
        twin(case.net), case.boxes[claim.box], bounds, claim.A, claim.c + claim.least, claim.B
    )


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("family", "seed"), [("dense", 9), ("dense", 3), ("residual", 0), ("residual", 3), ("conv", 3)]
)
def test_leaves_are_exact_and_empty_ones_are_closed(family: str, seed: int) -> None:
    case = random_case(family, seed, (1, 3), mixed=bool(seed % 2))
    problem = case.problem([0.0, 0.0])
    root = root_of(problem)
    assert 1 <= root.kinks <= 8
    empty, least = 0, [math.inf, math.inf]
    for signs in patterns(root.kinks):
        for clause in range(2):
            leaf = solve(root, signs, clause)
            value = exact(case, root, signs, clause)
            if value == math.inf:
                empty += 1
                assert leaf.lower > 0
                assert leaf.x0 is None
                continue
            assert value - 1e-7 <= leaf.lower <= value + 1e-9
            assert leaf.x0 is not None
            rows = problem.rows[clause]
            g = rows.A @ root.net.forward(leaf.x0) - rows.c + (0 if rows.B is None else rows.B @ leaf.x0)
            assert float(g.max()) == pytest.approx(value, abs=1e-6)
            least[clause] = min(least[clause], leaf.lower)
    assert least == pytest.approx([0.0, 0.0], abs=1e-6)  # the leaves together give the exact minimum
    assert empty > 0 or family == "conv" or root.kinks < 4  # 16 inputs leave room for all sign patterns


class Liar:
    """Proposes any multipliers and claims any bound; HiGHS is right far too often to test what is made of it."""

    def __init__(self, size: float, claim: float, seed: int) -> None:
        self.size, self.claim, self.rng = size, claim, np.random.default_rng(seed)

    def __call__(self, program: Program) -> Liar:
        self.program = program
        return self

    def solve(self, cost: np.ndarray, until: Until) -> Solution:
        multipliers = self.size * self.rng.normal(size=self.program.rows.count)
        return Solution(self.claim, self.rng.normal(size=self.program.width), multipliers)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("claim", [5.0, math.inf, -math.inf, math.nan])
def test_whatever_the_solver_says_the_bound_is_valid(
    monkeypatch: pytest.MonkeyPatch, size: float, claim: float
) -> None:
    case = random_case("residual", 0, (1, 3), mixed=True)
    root = root_of(case.problem([0.0, 0.0]))
    monkeypatch.setattr("verifier.search.signs.leaves.Solver", Liar(size, claim, 1))
    for signs in patterns(root.kinks):
        for clause in range(2):
            assert solve(root, signs, clause).lower <= exact(case, root, signs, clause) + 1e-9


def test_the_leaves_of_a_wedge() -> None:
    problem = instances.problem(wedge(0.25), instances.boxes([[-1]], [[1]]), [(0, [instances.row({0: 1}, -1)])])
    root = root_of(problem)
    found = {tuple(signs.tolist()): solve(root, signs, 0) for signs in patterns(2)}  # x_hat = (x - 1/4, 1/4 - x)
    assert found[1, -1].lower == pytest.approx(1.0, abs=1e-9)
    assert found[-1, 1].lower == pytest.approx(1.0, abs=1e-9)
    for agree in ((1, 1), (-1, -1)):  # both signs at once: only x = 1/4, where y = 0
        assert found[agree].lower == pytest.approx(1.0, abs=1e-6)
        point = found[agree].x0
        assert point is not None
        assert float(point) == pytest.approx(0.25, abs=1e-6)


def test_signs_that_contradict_each_other_are_closed_by_a_ray() -> None:
    """relu(x - 1) and relu(-1 - x) cannot both pass, whatever the rows say."""
    hidden = instances.layer("hidden", 0, [[1.0], [-1.0]], [-1.0, -1.0])
    net = Network((1,), (hidden,), instances.layer("out", 1, [[1.0, 1.0]], [0.0]))
    root = root_of(instances.problem(net, instances.boxes([[-2]], [[2]]), [(0, [instances.row({0: 1}, 1e9)]), (0, [])]))
    for clause in range(2):  # a row that always holds, and no row at all
        leaf = solve(root, [1, 1], clause)
        assert leaf.lower > 0
        assert leaf.x0 is None
        assert not solve(root, [1, -1], clause).lower > 0


@pytest.mark.parametrize("offset", [0.25, 0.1])
def test_a_minimum_of_zero_is_never_closed(offset: float) -> None:
    problem = instances.problem(wedge(offset), instances.boxes([[-1]], [[1]]), [(0, [instances.row({0: 1}, 0)])])
    root = root_of(problem)
    for signs in patterns(2):
        assert not solve(root, signs, 0).lower > 0
    outcome = decide(problem)
    assert outcome.witness is not None or outcome.reason is Reason.NUMERICS


def test_no_time_closes_nothing() -> None:
    problem = instances.problem(wedge(0.25), instances.boxes([[-1]], [[1]]), [(0, [instances.row({0: 1}, -1)])])
    leaf = solve(root_of(problem), [1, -1], 0, Until(Clock.begin(0.0)))
    assert not leaf.lower > 0
    assert leaf.x0 is None


def test_numbers_of_very_different_size() -> None:
    """Multipliers that overflow or lose all digits prove nothing; the answer may be doubtful, but not wrong."""
    hidden = instances.layer("hidden", 0, [[1e30, 0.0], [1e-30, 1.0], [0.0, -1e12]], [1.0, -1e-8, 1e3])
    net = Network((2,), (hidden,), instances.layer("out", 1, [[1e-30, 1e8, -1e-12]], [0.5]))
    case = instances.boxes([[-1, -1]], [[1, 1]])
    x = np.random.default_rng(0).uniform(-1, 1, size=(4000, 2))
    least = float(net.forward(torch.from_numpy(x)).min())
    root = root_of(instances.problem(net, case, [(0, [instances.row({0: 1}, least)])]))
    assert not all(solve(root, signs, 0).lower > 0 for signs in patterns(root.kinks))
