"""The fuzzer of functions: programs mean what onnxruntime computes, and wrong bounds and verdicts are noticed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import onnx
import pytest
import torch
from fuzzing.judge import run_file
from fuzzing.pieces import Row
from fuzzing.program_cases import Asked, asked, exact, points, random_box, random_program
from fuzzing.program_checks import SETTINGS, Instance, disagreement, faults_of_bounds, reached, verdict
from fuzzing.program_command import check
from fuzzing.programs import UNARY, Program
from fuzzing.queries import Clause, Query

from verifier.bounding.relaxation import zonotope
from verifier.functions.product import Product
from verifier.functions.sigmoids import Sigmoid
from verifier.network.models.onnx import load_onnx

UNIT = np.eye(2, dtype=np.float32)
ZERO = np.zeros(2, dtype=np.float32)


@pytest.mark.parametrize("name", UNARY)
def test_functions_mean_what_onnxruntime_computes(name: str) -> None:
    program = Program(2)
    program.add(name, 0)
    for x in ((0.3, 1.7), (2.5, 0.5), (4.0, 1e-3)):
        mine = program.run(np.array([x]))[0]
        theirs = run_file(program.model(), np.array(x, np.float32), optimised=False)
        assert theirs is not None
        assert mine == pytest.approx([float(v) for v in theirs], rel=1e-5, abs=1e-6)
        assert mine == pytest.approx([float(v) for v in program.exactly(x)], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("number", range(12))
def test_programs_mean_what_onnxruntime_computes(number: int) -> None:
    program, style = random_program(random.Random(number))
    x = np.random.default_rng(number).normal(size=program.inputs).astype(np.float32)
    theirs = run_file(program.model(), x, optimised=False)
    mine = [exact(v) for v in program.exactly(x)]
    if theirs is None or any(v is None for v in mine) or style == "extreme":
        return
    for own, other in zip(mine, theirs, strict=True):
        assert float(own) == pytest.approx(float(other), rel=1e-3, abs=1e-3)  # type: ignore[arg-type]


def test_what_is_not_defined_is_no_number() -> None:
    program = Program(2)
    program.add("Div", program.add("Log", 0), program.add("Sqrt", 0))
    assert np.isnan(program.run(np.array([[-1.0, 2.0]]))[0]).tolist() == [True, False]
    assert [exact(v) is None for v in program.exactly([-1.0, 2.0])] == [True, False]


def test_numbers_of_many_digits_become_fractions() -> None:
    assert exact(mpmath.mpf(-0.375)) == Fraction(-3, 8)
    assert exact(mpmath.mpf(0)) == 0
    assert exact(mpmath.exp(mpmath.mpf(10) ** 9)) is None
    tiny = exact(mpmath.exp(-(mpmath.mpf(10) ** 9)))
    assert tiny is not None
    assert 0 < tiny < Fraction(5e-324)


def test_nothing_is_wrong() -> None:
    seen: Counter[str] = Counter()
    for number in range(2):
        assert check(1, number, 1, 0.5, seen) == []
    assert seen["read"] == 2
    assert seen["alpha_crown after crown"] == 2


def gate(tmp_path: Path) -> tuple[Program, Instance]:
    """sigmoid(x) x, on disk."""
    program = Program(2)
    program.add("Gemm", program.add("Mul", program.add("Sigmoid", 0), 0), size=2, arrays=(UNIT, ZERO))
    onnx.save(program.model(), tmp_path / "net.onnx")
    box = np.array([-2.0, -1.0]), np.array([1.0, 3.0])
    return program, Instance.of(program, box, points(box, 0))


def faults(instance: Instance, folder: Path) -> list[str]:
    return list(faults_of_bounds(load_onnx(folder / "net.onnx").network(), instance, Counter()))


def test_wrong_bounds_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, instance = gate(tmp_path)
    assert faults(instance, tmp_path) == []
    with monkeypatch.context() as patch:
        patch.setattr(Sigmoid, "reach", (0.3, 1.0))
        assert any("hidden bounds" in sentence for sentence in faults(instance, tmp_path))
    with monkeypatch.context() as patch:
        beyond = Product.beyond
        patch.setattr(Product, "beyond", lambda *given: beyond(*given) + 4.0 * given[-1])
        assert any(sentence.startswith("crown") for sentence in faults(instance, tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(zonotope, "image", _halved)
        assert any("zonotope" in sentence for sentence in faults(instance, tmp_path))


IMAGE = zonotope.image


def _halved(layer: object, forms: object, *rough: object) -> object:
    found = IMAGE(layer, forms, *rough)  # type: ignore[arg-type]
    return zonotope.AffineForm(found.centre, found.spread / 2, found.radius / 2, found.error)


def question(program: Program, instance: Instance, gap: float) -> Asked:
    for seed in range(50):
        found = asked(random.Random(seed), program, instance.box, instance.points)
        if found is not None and found.gap == gap:
            return found
    raise AssertionError("no seed gives the gap")


def test_wrong_verdicts_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, instance = gate(tmp_path)
    reachable = question(program, instance, -0.1)
    assert reachable.margin < 0
    said, wrong = verdict(program, program.model(), reachable, SETTINGS[3], tmp_path)
    assert (said, wrong) == ("sat", "")
    monkeypatch.setattr("verifier.search.boxes.bounds.closes", lambda lower: torch.ones_like(lower, dtype=torch.bool))
    said, wrong = verdict(program, program.model(), reachable, SETTINGS[1], tmp_path)
    assert said == "unsat"
    assert wrong.startswith("unsat, but the margin is")


def comparing(program: Program, x: tuple[float, float]) -> Asked:
    """Whether the first output is at most the second one, at a point."""
    row = Row((Fraction(1), Fraction(-1)), (Fraction(0),) * 2, Fraction(0))
    ends = tuple(map(Fraction, x))
    return Asked(Query((Clause(ends, ends, (row,)),), "plain"), Fraction(0), x, 1e-9)


def test_what_sixty_digits_do_not_show_is_no_fault() -> None:
    gates, copies = Program(2), Program(2)
    gates.add("Tanh", 0)
    copies.add("Abs", 0)
    assert len(set(gates.exactly((80.0, 75.0)))) == 1
    assert not reached(gates, comparing(gates, (80.0, 75.0)))
    assert reached(gates, comparing(gates, (75.0, 80.0)))
    assert reached(copies, comparing(copies, (3.0, -3.0)))
    assert not reached(gates, comparing(gates, (1e6, 1e6 - 1)))  # not even in a thousand digits


def test_a_sine_without_digits_is_no_other_function(tmp_path: Path) -> None:
    program = Program(2)
    program.add("Sin", program.add("Mul", 0, 0))
    onnx.save(program.model(), tmp_path / "net.onnx")
    network = load_onnx(tmp_path / "net.onnx").network()
    points = np.random.default_rng(0).normal(size=(50, 2))
    assert disagreement(program, network, points) is None
    assert disagreement(program, network, points * 1e11) is None
    program.steps[-1] = replace(program.steps[-1], op="Cos")
    assert disagreement(program, network, points) is not None
    assert disagreement(program, network, points * 1e11) is None


def test_boxes_are_in_order() -> None:
    for seed in range(50):
        low, high = random_box(random.Random(seed), 4)
        assert bool((low <= high).all())
        inside = points((low, high), seed)
        assert bool(((low <= inside) & (inside <= high)).all())
