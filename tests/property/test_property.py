from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.oracles import declared

from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows
from verifier.property.vnnlib import parse

DECIMALS = st.decimals(-100, 100, places=9) | st.decimals(-1, 1, places=18) | st.decimals(-8, 8, places=1)
NO_ROWS = RoundedRows.of((), 1, 1, (np.zeros(1), np.zeros(1)))


def boxed(low: object, high: object, strict: bool = False) -> Boxes:
    lower, upper = (">", "<") if strict else (">=", "<=")
    text = declared(1, 1) + f"(assert ({lower} X_0 {low:f})) (assert ({upper} X_0 {high:f}))"
    return parse(text).boxes


@given(DECIMALS, DECIMALS, st.booleans())
def test_boxes_are_rounded_outward_and_inward(one: object, two: object, strict: bool) -> None:
    low, high = sorted((one, two))
    boxes = boxed(low, high, strict)
    exact_low, exact_high = Fraction(low), Fraction(high)
    if low == high and strict:
        assert len(boxes) == 0
        return
    assert Fraction(boxes.lower[0, 0]) <= exact_low < Fraction(np.nextafter(boxes.lower[0, 0], np.inf))
    assert Fraction(boxes.upper[0, 0]) >= exact_high > Fraction(np.nextafter(boxes.upper[0, 0], -np.inf))
    near = [np.float32(float(v)) for v in (low, high)]
    near += [np.nextafter(v, np.float32(side)) for v in near for side in (-1000, 1000)]
    for x in near:
        inside = exact_low < Fraction(float(x)) < exact_high
        if not strict:
            inside = exact_low <= Fraction(float(x)) <= exact_high
        if boxes.exact[0]:
            assert inside == bool(boxes.lower_in[0, 0] <= x <= boxes.upper_in[0, 0])
        else:
            assert not inside


def test_a_point_without_a_float32_is_marked() -> None:
    boxes = parse(declared(2, 1) + "(assert (= X_0 0.1666666666666667)) (assert (= X_1 0.5))").boxes
    assert boxes.exact.tolist() == [False]
    assert boxes.lower_in.tolist() == boxes.upper_in.tolist() == [[float(np.float32(1 / 6)), 0.5]]
    assert boxes.lower[0, 0] < boxes.upper[0, 0]
    assert boxes.lower[0, 1] == boxes.upper[0, 1] == 0.5


@pytest.mark.parametrize("text", ["0.1", "0.3", "123456.7", "-0.7", "1e-50", "3e38", "1e300"])
def test_the_float32_of_a_hollow_point_is_the_nearest(text: str) -> None:
    boxes = parse(declared(1, 1) + f"(assert (== X_0 {text}))").boxes
    with np.errstate(over="ignore"):
        expected = np.float32(float(text))
    limit = np.finfo(np.float32).max
    assert not boxes.exact[0]
    assert boxes.lower_in[0, 0] == boxes.upper_in[0, 0] == np.clip(expected, -limit, limit)


@given(st.lists(st.tuples(DECIMALS, DECIMALS, DECIMALS), min_size=1, max_size=3), st.data())
def test_float_rows_contain_the_exact_ones(rows: list[tuple[object, object, object]], data: st.DataObject) -> None:
    exact = [ExactRow(((0, Fraction(a)),), ((0, Fraction(b)),), Fraction(c), False) for a, b, c in rows]
    box = (np.array([-2.5]), np.array([1.5]))
    found = RoundedRows.of(exact, 1, 1, box)
    x, y = Fraction(data.draw(st.floats(-2.5, 1.5))), Fraction(data.draw(st.floats(-1e3, 1e3)))
    for k, row in enumerate(exact):
        A, c = Fraction(found.A[k, 0]), Fraction(found.c[k])
        assert found.B is not None
        error = Fraction(0) if found.A_error is None else Fraction(found.A_error[k, 0])
        assert abs(A - row.y[0][1]) <= error
        # On the row's boundary the float row must still hold, once A's own error is forgiven.
        bound = row.y[0][1] * y + row.x[0][1] * x
        tight = RoundedRows.of([ExactRow(row.y, row.x, bound, False)], 1, 1, box)
        assert A * y + Fraction(found.B[k, 0]) * x <= Fraction(tight.c[0]) + error * abs(y)
        assert c >= row.bound


def test_rows_with_floats_are_exact() -> None:
    rows = RoundedRows.of(
        [ExactRow(((0, Fraction(-1)), (2, Fraction(1, 2))), (), Fraction(3), True)], 2, 3, (np.zeros(2),) * 2
    )
    assert rows.A.tolist() == [[-1, 0, 0.5]]
    assert rows.B is None
    assert rows.A_error is None
    assert rows.c.tolist() == [3]
    assert rows.strict.tolist() == [True]


def test_witness_at_the_boundary() -> None:
    closed = parse(declared(1, 1) + "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (<= Y_0 0.1))")
    strict = parse(declared(1, 1) + "(assert (>= X_0 0)) (assert (< X_0 1)) (assert (< Y_0 0.5))")
    one, half = np.ones(1, np.float32), np.full(1, 0.5, np.float32)
    above = np.full(1, 0.1, np.float32)  # 0.1 in float32 is a little more than the decimal
    assert closed.witnessed(one, np.nextafter(above, np.float32(0))) == 0
    assert closed.witnessed(one, above) is None
    assert strict.witnessed(one, np.zeros(1, np.float32)) is None
    assert strict.witnessed(half, half) is None
    assert strict.witnessed(half, np.nextafter(half, np.float32(0))) == 0


def test_witness_prefers_exact_boxes() -> None:
    text = "(assert (or (and (= X_0 0.1)) (and (>= X_0 0) (<= X_0 1))))"
    prop = parse(declared(1, 1) + text + "(assert (<= Y_0 0))")
    x, y = np.full(1, 0.1, np.float32), np.zeros(1, np.float32)
    assert prop.boxes.exact.tolist() == [False, True]
    assert prop.witnessed(x, y) == 1
    only = Property(1, 1, prop.boxes, prop.clauses[:1])
    assert only.witnessed(x, y) == 0


def test_what_is_no_witness() -> None:
    prop = Property(1, 1, boxed(0.0, 1.0), (Clause(0, NO_ROWS),))
    assert prop.witnessed(np.ones(1, np.float32), np.ones(1, np.float32)) == 0
    assert prop.witnessed(np.full(1, np.nan, np.float32), np.ones(1, np.float32)) is None
    assert prop.witnessed(np.ones(1, np.float32), np.full(1, np.inf, np.float32)) is None
    with pytest.raises(ValueError, match="a point needs shapes"):
        prop.witnessed(np.ones(2, np.float32), np.ones(1, np.float32))


def test_rows_of_ones_are_rounded_as_all_others() -> None:
    """Coefficients 1 and -1 take a shorter way to the same numbers."""
    box = np.array([-1.0]), np.array([1.0])
    bounds = [Fraction(1, 3), Fraction(-7, 10), Fraction(5), Fraction(10) ** 400, -(Fraction(10) ** 400)]
    for bound in bounds:
        rows = [ExactRow(((0, Fraction(1)), (2, Fraction(-1))), (), bound, True), ExactRow((), (), bound, False)]
        short = RoundedRows.of(rows, 1, 3, box)
        other = RoundedRows.of([*rows, ExactRow(((1, Fraction(2)),), (), Fraction(0), False)], 1, 3, box)
        for a, b in ((short.A, other.A), (short.c, other.c), (short.strict, other.strict)):
            assert np.array_equal(a, b[:2])
            assert a.dtype == b.dtype
        assert (short.B, short.A_error, short.exact) == (None, None, tuple(rows))
