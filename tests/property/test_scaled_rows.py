"""RoundedRows of any size: floats near 1 for proofs, and whatever satisfies the exact row satisfies the float row."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st
from property.oracles import declared

from verifier.cli.main import run
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.falsify.pgd import quick
from verifier.property.numbers import at_least
from verifier.property.property import ExactRow, RoundedRows
from verifier.property.vnnlib import parse

NO_BOX = np.zeros(0), np.zeros(0)
POWERS = st.builds(
    lambda m, e: Fraction(m) * Fraction(10) ** e, st.integers(-9, 9).filter(bool), st.integers(-700, 700)
)


def rounded(y: dict[int, object], bound: object) -> RoundedRows:
    return RoundedRows.of([instances.row(y, bound)], 0, 2, NO_BOX)


@settings(max_examples=300)
@given(POWERS, POWERS, POWERS, st.integers(-5, 5), st.integers(-5, 5))
def test_points_of_the_exact_row_satisfy_the_float_row(a: Fraction, b: Fraction, c: Fraction, y0: int, y1: int) -> None:
    found = rounded({0: a, 1: b}, c)
    assert np.isfinite(found.A).all()
    assert np.isfinite(found.c).all()
    exact = found.exact[0]
    assert exact == ExactRow(((0, a), (1, b)), (), c, False)
    y = [Fraction(y0), Fraction(y1)]
    if exact.holds([], y):
        value = sum(Fraction(A) * v for A, v in zip(found.A[0].tolist(), y, strict=True))
        error = found.A_error[0].tolist() if found.A_error is not None else [0.0, 0.0]
        assert value <= Fraction(float(found.c[0])) + sum(Fraction(e) * abs(v) for e, v in zip(error, y, strict=True))


@pytest.mark.parametrize("size", [1, 3, 100, 2**60, Fraction(1, 2**60)])
def test_rows_of_ordinary_size_stay_as_they_are(size: object) -> None:
    found = rounded({0: size, 1: -1}, 7)
    assert found.A.tolist() == [[float(size), -1.0]]  # type: ignore[arg-type]
    assert found.c.tolist() == [7.0]


@pytest.mark.parametrize("size", [Fraction(10**400), Fraction(1, 10**400), Fraction(10**40), Fraction(2**65)])
def test_rows_far_from_one_are_scaled(size: Fraction) -> None:
    found = rounded({0: size, 1: -size / 2}, size)
    assert 0.5 <= found.A[0, 0] <= 2
    assert found.A[0, 1] == -found.A[0, 0] / 2
    assert math.isclose(found.c[0], found.A[0, 0])


def test_right_hand_sides_beyond_the_floats() -> None:
    """A row that every output satisfies becomes 0 <= 0, one that none can keeps the smallest float."""
    assert rounded({0: 1}, Fraction(10**400)).A.tolist() == [[0.0, 0.0]]
    assert rounded({0: 1}, -Fraction(10**400)).c.tolist() == [-np.finfo(np.float64).max]
    assert at_least(Fraction(10**400)) == math.inf
    assert at_least(Fraction(1, 10**400)) == 5e-324
    assert at_least(-Fraction(1, 10**400)) == 0.0


def test_products_beyond_the_floats_are_read() -> None:
    text = declared(1, 1) + "(assert (<= 0 X_0 1))\n(assert (<= (* 1e308 (* 1e308 Y_0)) 1.0))\n"
    (clause,) = parse(text).clauses
    assert clause.rows.exact[0].y == ((0, Fraction(10**616)),)
    assert 0.5 <= clause.rows.A[0, 0] <= 2
    assert 0 < clause.rows.c[0] <= 5e-324


@pytest.mark.parametrize("sides", ["(<= 0 X_0)(<= (* 1e-300 X_0) 1e300)", "(<= (* 1e-300 X_0) -1e300)(<= X_0 0)"])
def test_boxes_beyond_the_floats_are_refused_with_their_line(sides: str) -> None:
    with pytest.raises(InputError, match="a bound of the input X_0 is outside of the range of 64-bit floats"):
        parse(declared(1, 1) + f"(assert (and {sides}))\n(assert (<= Y_0 0))\n")


@pytest.mark.parametrize("size", [Fraction(10**40), Fraction(10**400), Fraction(1, 10**400)])
def test_attacks_work_on_rows_of_any_size(size: Fraction) -> None:
    """x_0 >= 0.9 x_1 + 0.5 on the unit square: the falsifier sees a row of ordinary numbers."""
    row = instances.row({0: -size, 1: size * Fraction(9, 10)}, -size / 2)
    problem = instances.problem(instances.identity(2), instances.boxes([[0, 0]], [[1, 1]]), [(0, [row])])
    witness = quick().attack(instances.target(problem), Clock.begin(20))
    assert witness is not None
    instances.check(problem, witness, [0, 0], [1, 1])


def test_attacks_survive_what_float32_does_not_hold() -> None:
    """Outputs of 1e30 times rows of 1e15, and right-hand sides of 1e300: margins overflow, the judge's do not."""
    large = torch.tensor([[1e30]]).tolist()
    net = instances.Network((1,), (), instances.layer("out", 0, large, [0.0]))
    for bound, found in ((Fraction(10**300), True), (-Fraction(10**44), True), (-Fraction(10**300), False)):
        row = instances.row({0: -(10**15)}, bound)
        problem = instances.problem(net, instances.boxes([[0]], [[1]]), [(0, [row])])
        witness = quick().attack(instances.target(problem), Clock.begin(20))
        assert (witness is not None) is found


def test_no_traceback_on_the_command_line(tmp_path: Path, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(declared(1, 1) + "(assert (<= (* 1e-300 X_0) 1e300))\n(assert (>= X_0 0))\n(assert (<= Y_0 0))\n")
    assert run([str(root / "properties" / "onnx" / "toy.onnx"), str(path)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "p.vnnlib" in err
    assert "a bound of the input X_0 is outside of the range of 64-bit floats" in err
    assert "Traceback" not in err
