"""Verdicts at the ends of the floats, around exact minima: never a wrong `unsat`, and ordinary numbers still close."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from extremes import KNOWN, Extreme, random_extreme
from falsify import instances
from search.cases import ignore

from verifier.bounding.clauses import ClauseBounder
from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.config import load_config
from verifier.property.problem import Problem
from verifier.search.loop import Limits
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.signs.space import Policy

pytestmark = pytest.mark.usefixtures("unchecked")

SPLITTINGS = (Splitting.RELUS, Splitting.INPUTS)
LIMITS = Limits(max_domains=100, max_batches=2)


def unsat(problem: Problem, splitting: Splitting, policy: Policy | None = None, bounded: bool = True) -> bool:
    """Whether bounds and search prove the property, without any attack."""
    found = ClauseBounder().bound(problem, Until())
    if found.closed:
        return True
    if not bounded:
        found.lower.fill_(-float("inf"))
    whole = ProblemSearch(policy or Policy(), LIMITS, splitting=splitting)
    outcome = whole.run(problem, found, instances.target(problem), Clock.begin(60), ignore)
    return outcome.witness is None and outcome.reason is None


def around(extreme: Extreme, gaps: tuple[float, ...]) -> list[tuple[int, Fraction]]:
    """Rows sign * y <= bound that a point satisfies, though barely."""
    least, most = extreme.ends()
    size = max(abs(least), abs(most))
    rows = [(1, least + size * Fraction(gap)) for gap in gaps] + [(-1, -most + size * Fraction(gap)) for gap in gaps]
    return [*rows, (1, least + Fraction(1, 10**300)), (-1, -most + Fraction(1, 10**100))]


def judge(extreme: Extreme, gaps: tuple[float, ...]) -> None:
    for (sign, bound), splitting in itertools.product(around(extreme, gaps), SPLITTINGS):
        assert not unsat(extreme.problem(sign, bound), splitting), (extreme, sign, bound, splitting)


@pytest.mark.parametrize("seed", [pytest.param(k, marks=pytest.mark.slow if k % 2 else []) for k in range(40)])
def test_nothing_is_proved_that_does_not_hold(seed: int) -> None:
    judge(random_extreme(seed), (0.0,))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_nothing_is_proved_that_does_not_hold_on_many(seed: int) -> None:
    judge(random_extreme(seed, 308.0 if seed % 2 else 110.0), (0.0, 1e-12, 1e-6))


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("preset", ["auto", "paper/big_m", "paper/active_set_100"])
def test_known_instances_are_not_proved(name: str, preset: str) -> None:
    """By the solvers of the presets, where root bounds do not help."""
    policy = load_config(preset).search.policy()
    for sign, bound in around(KNOWN[name], ()):
        assert not unsat(KNOWN[name].problem(sign, bound), Splitting.RELUS, policy, bounded=False)


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_large_rows_overflow_nothing(splitting: Splitting) -> None:
    """1e308 (y_0 - y_1 - y_2) <= 0 holds everywhere: 1.9 - 1 - 1."""
    net = instances.identity(3)
    box = instances.boxes([["1.899", "0.999", "0.999"]], [["1.901", "1.001", "1.001"]])
    for size in (Fraction(10**308), Fraction(10**400), Fraction(1, 10**400), Fraction(10**40)):
        row = instances.row({0: size, 1: -size, 2: -size}, 0)
        assert not unsat(instances.problem(net, box, [(0, [row])]), splitting)
        other = instances.row({0: size, 1: -size, 2: -size}, -size)
        assert unsat(instances.problem(net, box, [(0, [other])]), splitting)


@pytest.mark.parametrize("splitting", SPLITTINGS)
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-30, 1.0, 1e15, 1e30])
def test_ordinary_numbers_still_close(size: float, splitting: Splitting) -> None:
    """Subnormal weights of float32 beside ordinary ones, gains of 1e30, and rows of that size and its inverse."""
    hidden = [[1.0], [-1.0], [size], [1e-42]], [0.5, 0.5, 0.0, 1e-44]
    extreme = Extreme(
        (hidden, ([[1.0, 1.0, 1e-41, 1.0], [size, 1e-40, 0.0, 0.0]], [-0.25, 0.0]), ([[1.0, 1.0]], [0.0])), -1, 1
    )
    least, _ = extreme.ends()
    for factor in (1.0, 1e30, 1e-30):
        gap = Fraction(max(1.0, size)) / 1000
        row = instances.row({0: Fraction(factor)}, (least - gap) * Fraction(factor))
        problem = instances.problem(extreme.network, instances.boxes([[-1]], [[1]]), [(0, [row])])
        assert unsat(problem, splitting, bounded=False)
