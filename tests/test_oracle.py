"""The oracle judges itself: two exact methods agree, relaxations lie below, and values known by hand."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


def instance(seed: int) -> tuple[np.random.Generator, oracle.Dag, tuple[np.ndarray, np.ndarray]]:
    """A chain or a DAG with at most 8 ReLUs."""
    rng = np.random.default_rng(seed)
    n_in, n_out = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    widths = [int(w) for w in rng.integers(1, 5, size=2)]
    chain = rng.random() < 0.5
    net = oracle.random_chain(rng, [n_in, *widths, n_out]) if chain else oracle.random_dag(rng, n_in, widths, n_out)
    return rng, net, oracle.random_box(rng, n_in)


@settings(max_examples=30)
@given(seed=seeds)
def test_milp_and_enumeration_agree_on_one_row(seed: int) -> None:
    rng, net, box = instance(seed)
    c, d = rng.normal(size=len(net.output.bias)), float(rng.normal())
    by_milp = oracle.minimum(net, box, c, d)
    assert by_milp == pytest.approx(oracle.minimum(net, box, c, d, method="enumeration"), abs=1e-6)


@settings(max_examples=30)
@given(seed=seeds)
def test_milp_and_enumeration_agree_on_conjunctions(seed: int) -> None:
    rng, net, box = instance(seed)
    A, c = rng.normal(size=(3, len(net.output.bias))), rng.normal(size=3)
    A[2] = 0  # a pure input row
    B = rng.normal(size=(3, net.n_in))
    by_milp = oracle.minimum_of_max(net, box, A, c, B)
    by_patterns = oracle.minimum_of_max(net, box, A, c, B, method="enumeration")
    assert by_milp.value == pytest.approx(by_patterns.value, abs=1e-6)
    for answer in (by_milp, by_patterns):
        assert answer.x is not None
        assert answer.value - answer.lower == pytest.approx(0, abs=1e-6)
        assert (np.asarray(box[0]) <= answer.x).all()
        assert (answer.x <= box[1]).all()
        assert (A @ net.forward(answer.x) + B @ answer.x - c).max() == pytest.approx(answer.value, abs=1e-9)


@settings(max_examples=30)
@given(seed=seeds)
def test_minimum_is_below_samples_and_above_the_planet_lp(seed: int) -> None:
    rng, net, box = instance(seed)
    c = rng.normal(size=len(net.output.bias))
    exact = oracle.minimum(net, box, c)
    points = rng.uniform(*box, size=(300, net.n_in))
    assert exact <= (net.forward(points) @ c).min() + 1e-7
    loose, better, best = (f(net, box) for f in (oracle.interval, oracle.crown, oracle.tightened))
    values = [oracle.planet_lp(net, box, bounds, c) for bounds in (loose, better, best)]
    assert values[0] <= values[1] + 1e-6
    assert values[1] <= values[2] + 1e-6
    assert values[2] <= exact + 1e-6


@settings(max_examples=20)
@given(seed=seeds)
def test_bounds_contain_the_preactivations(seed: int) -> None:
    rng, net, box = instance(seed)
    values = net.values(rng.uniform(*box, size=(300, net.n_in)))
    for bounds in (oracle.interval(net, box), oracle.crown(net, box), oracle.tightened(net, box)):
        for group, (l_hat, u_hat) in zip(net.groups, bounds, strict=True):
            x_hat = group(values)
            assert (x_hat >= l_hat - 1e-6).all()
            assert (x_hat <= u_hat + 1e-6).all()


def absolute() -> oracle.Dag:
    """y = |x|."""
    return oracle.chain([(np.array([[1.0], [-1.0]]), np.zeros(2)), (np.array([[1.0, 1.0]]), np.zeros(1))])


BOX = (np.array([-1.0]), np.array([3.0]))


@pytest.mark.parametrize("method", ["milp", "enumeration"])
def test_absolute_value(method: str) -> None:
    assert oracle.minimum(absolute(), BOX, np.ones(1), method=method) == pytest.approx(0, abs=1e-8)
    assert oracle.minimum(absolute(), BOX, -np.ones(1), 0.5, method=method) == pytest.approx(-2.5, abs=1e-8)
    # |x| <= t and 2 - x <= t: best at x = 1
    joint = oracle.minimum_of_max(absolute(), BOX, [[1.0], [0.0]], [0.0, -2.0], [[0.0], [-1.0]], method=method)
    assert joint.value == pytest.approx(1, abs=1e-8)
    assert joint.x == pytest.approx([1.0], abs=1e-7)


def test_planet_lp_of_the_absolute_value() -> None:
    bounds = oracle.interval(absolute(), BOX)
    # Upper faces of relu(x) on [-1, 3] and relu(-x) on [-3, 1]: 3 (x + 1) / 4 + (3 - x) / 4, largest at x = 3.
    assert oracle.planet_lp(absolute(), BOX, bounds, -np.ones(1)) == pytest.approx(-3.0, abs=1e-8)
    # With the weight 2 on the second ReLU: 3 (x + 1) / 4 + 2 (3 - x) / 4 = (9 + x) / 4, so 3 at x = 3.
    lopsided = oracle.chain([(np.array([[1.0], [-1.0]]), np.zeros(2)), (np.array([[1.0, 2.0]]), np.zeros(1))])
    assert oracle.planet_lp(lopsided, BOX, bounds, -np.ones(1)) == pytest.approx(-3.0, abs=1e-8)
    # With the weight 4 it falls in x: 3 (x + 1) / 4 + 4 (3 - x) / 4 = (15 - x) / 4, so 4 at x = -1, which is exact.
    steep = oracle.chain([(np.array([[1.0], [-1.0]]), np.zeros(2)), (np.array([[1.0, 4.0]]), np.zeros(1))])
    assert oracle.planet_lp(steep, BOX, bounds, -np.ones(1)) == pytest.approx(-4.0, abs=1e-8)
    # Lower faces only: y >= |x|, so y - x / 2 is at least 0 there too.
    assert oracle.planet_lp_of_max(absolute(), BOX, bounds, [[1.0]], [0.0], [[-0.5]]) == pytest.approx(0, abs=1e-8)


def test_planet_lp_is_not_exact_in_the_middle() -> None:
    # relu(x) - relu(-x) - x is 0 everywhere; at x = 0 the relaxation allows relu(x) = 0 and relu(-x) = 1/2.
    net = oracle.chain([(np.array([[1.0], [-1.0]]), np.zeros(2)), (np.array([[1.0, -1.0]]), np.zeros(1))])
    box = (np.array([-1.0]), np.array([1.0]))
    value = oracle.planet_lp_of_max(net, box, oracle.interval(net, box), [[1.0]], [0.0], [[-1.0]])
    assert value == pytest.approx(-0.5, abs=1e-8)


def test_crown_takes_the_better_lower_slope() -> None:
    # relu(x) - x on [-1, 3]: the slope 1 below gives 0, the slope 0 would give -3; the upper face gives (3 - x) / 4.
    one = np.ones((1, 1))
    net = oracle.dag(1, [((0,), (one,), np.zeros(1)), ((1, 0), (one, -one), np.zeros(1)), ((2,), (one,), np.zeros(1))])
    assert np.array(oracle.crown(net, BOX)[1]).ravel() == pytest.approx([0, 1])
    assert np.array(oracle.interval(net, BOX)[1]).ravel() == pytest.approx([-3, 4])


def test_split_bounds_are_constraints() -> None:
    (l_hat, u_hat) = oracle.interval(absolute(), BOX)[0]
    passing = [(np.array([0.0, l_hat[1]]), np.array([u_hat[0], 0.0]))]  # x >= 0 and -x <= 0
    assert oracle.planet_lp_of_max(absolute(), BOX, passing, [[0.0]], [0.0], [[1.0]]) == pytest.approx(0, abs=1e-8)
    empty = [(np.array([0.0, l_hat[1]]), np.array([u_hat[0], -1.0]))]
    assert oracle.planet_lp(absolute(), (BOX[0], np.array([-0.5])), empty, np.ones(1)) == np.inf


def test_enumeration_refuses_many_neurons() -> None:
    net = oracle.random_chain(np.random.default_rng(0), [2, 40, 1])
    with pytest.raises(ValueError, match="ambiguous"):
        oracle.minimum(net, (np.full(2, -9.0), np.full(2, 9.0)), np.ones(1), method="enumeration")


def test_a_dag_with_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="node 2: source 0"):
        oracle.dag(2, [((0,), (np.ones((3, 2)),), np.zeros(3)), ((0,), (np.ones((1, 3)),), np.zeros(1))])
