"""The judge in real arithmetic: what it confirms is true, and it confirms what is clearly true."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import networks
import numpy as np
import pytest
from falsify import instances
from rounding import Case, random_case

from verifier.falsify.real import RationalNetwork, RealArithmetic, enclosed_outputs
from verifier.falsify.target import Target
from verifier.network.models.onnx import load_onnx
from verifier.network.network import Network
from verifier.property.problem import canonicalise
from verifier.property.vnnlib import load_property


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("size", [1.0, 1e-300, 1e30])
def test_the_enclosure_holds_the_exact_outputs(family: str, size: float) -> None:
    net = networks.FAMILIES[family](7)
    rational = RationalNetwork.of(net)
    assert rational is not None
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=net.n_in) * size
        low, high = enclosed_outputs(net, x, x)
        for a, y, b in zip(low.tolist(), rational.forward(x.tolist()), high.tolist(), strict=True):
            assert Fraction(a) <= y <= Fraction(b)
            assert b - a <= 1e-9 * (abs(a) + abs(b)) + 1e-280


def test_products_that_underflow_are_enclosed() -> None:
    W = [[0.3, -0.7, 0.3]]
    net = Network((3,), (), instances.layer("out", 0, W, [0.0]))
    for unit in range(1, 40):
        x = np.array([1.0, 2.0, 5.0]) * unit * 5e-324
        low, high = enclosed_outputs(net, x, x)
        y = sum(Fraction(w) * Fraction(v) for w, v in zip(W[0], x.tolist(), strict=True))
        assert Fraction(float(low)) <= y <= Fraction(float(high))


def judge(case: Case, threshold: Fraction, folder: Path) -> tuple[RealArithmetic, np.dtype]:
    network, prop = case.write(folder, threshold)
    model = load_onnx(network)
    problem = canonicalise(model.network(), load_property(prop))
    return RealArithmetic(problem.network, problem.property), model.dtype


@pytest.mark.parametrize("seed", range(12))
def test_what_is_confirmed_is_true_and_what_is_clear_is_confirmed(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    near = Fraction(float(case.least()))
    gaps = [Fraction(sign) * Fraction(10) ** -k * (1 + abs(near)) for k in (3, 6, 12, 15, 18) for sign in (1, -1)]
    for gap in [*gaps, Fraction(0)]:
        real, dtype = judge(case, near + gap, tmp_path)
        for place in (0, 1):
            ends = real.prop.boxes.ends(dtype)
            x = ends[place][0]
            inside = [min(max(Fraction(v), low), high) for v, (low, high) in zip(x.tolist(), case.box, strict=True)]
            y = case.outputs(inside)[0]
            confirmed = real.confirms(x, 0)
            assert not confirmed or y <= near + gap
            if near + gap - y > abs(y) / 10**9:
                assert confirmed


def test_a_point_on_the_border_is_unsafe_and_strictly_it_is_not() -> None:
    net, box = instances.tent(1), instances.boxes([[0]], [[1]])
    x = np.array([0.25], np.float32)
    for strict, expected in ((False, True), (True, False)):
        row = instances.row({0: 1}, "0.25", strict=strict)
        problem = instances.problem(net, box, [(0, [row])])
        assert RealArithmetic(net, problem.property).confirms(x, 0) is expected


def test_only_clauses_of_the_box_count() -> None:
    net, box = instances.identity(1), instances.boxes([[0], [2]], [[1], [3]])
    clauses = [(0, [instances.row({0: -1}, -5)]), (1, [instances.row({0: -1}, "-0.5")])]
    real = RealArithmetic(net, instances.problem(net, box, clauses).property)
    assert not real.confirms(np.array([1.0], np.float32), 0)
    assert real.confirms(np.array([2.5], np.float32), 1)


def test_rows_of_inputs_are_judged_at_the_point_of_the_box() -> None:
    # x = 0.1 as a decimal: x <= 0.1 + 1e-10 holds there, though not for the float32 next to it.
    net, box = instances.identity(1), instances.boxes([["0.1"]], [["0.1"]])
    row = instances.row({0: 0}, "0.1000000001", x={0: 1})
    real = RealArithmetic(net, instances.problem(net, box, [(0, [row])]).property)
    assert real.confirms(np.array([0.1], np.float32), 0)


def test_a_neighbour_does_not_stand_in_for_a_point_between_floats() -> None:
    # The decimal 0.1 lies above its lower neighbour among the float64, and so do its outputs.
    net, box = instances.identity(1), instances.boxes([["0.1"]], [["0.1"]])
    below, above = Fraction(float(box.lower[0, 0])), Fraction(float(box.upper[0, 0]))
    for bound, sign in (((below + Fraction("0.1")) / 2, 1), (-(above + Fraction("0.1")) / 2, -1)):
        problem = instances.problem(net, box, [(0, [instances.row({0: sign}, bound)])])
        for x in (np.float32(0.1), np.float64(below), np.float64(above)):
            assert not RealArithmetic(net, problem.property).confirms(np.array([x]), 0)


def test_a_witness_of_the_run_alone_is_not_returned_but_kept() -> None:
    net, box = instances.identity(1), instances.boxes([["0.1"]], [["0.1"]])
    problem = instances.problem(net, box, [(0, [instances.row({0: -1}, "-0.1000000001")])])
    target = Target.of(problem, instances.Float32Model(net))
    x, clause = target.lower, target.box.new_zeros(1)
    assert target.replay(x, x.new_zeros(1), clause) is None
    kept = target.reserve.found()
    assert kept is not None
    assert (kept.exact, kept.sharp) == (False, False)


def test_a_sharp_witness_is_returned_and_nothing_is_kept() -> None:
    net, box = instances.identity(1), instances.boxes([["0.1"]], [["0.1"]])
    problem = instances.problem(net, box, [(0, [instances.row({0: -1}, "-0.0999")])])
    target = Target.of(problem, instances.Float32Model(net))
    found = target.replay(target.lower, target.lower.new_zeros(1), target.box.new_zeros(1))
    assert found is not None
    assert (found.exact, found.sharp) == (False, True)
    assert target.reserve.found() is None
