"""Laws of the general reader: what it reads means what the text says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from property.oracles import Node, assert_same, declared, holds, named

from verifier.property.vnnlib import parse
from verifier.property.vnnlib.general import parse_general

N_X, N_Y = 2, 2
NUMBERS = st.sampled_from(["0", "1", "-1", "0.5", "-1.25", "2e0", "25e-2", "0.1", "-.75", "+1."])
VARIABLES = st.sampled_from(["X_0", "X_1", "Y_0", "Y_1"])
CONSTANTS = st.recursive(
    NUMBERS,
    lambda c: st.builds(Node, st.sampled_from("+-*"), st.lists(c, min_size=1, max_size=3).map(tuple)),
    max_leaves=3,
)
POINTS = st.lists(st.integers(-16, 16).map(lambda k: k / 8), min_size=N_X + N_Y, max_size=N_X + N_Y)


def _sums(terms: st.SearchStrategy[Node | str]) -> st.SearchStrategy[Node | str]:
    some = st.lists(terms, min_size=1, max_size=3).map(tuple)
    return st.builds(Node, st.sampled_from("+-"), some) | st.builds(
        lambda c, t, swap: Node("*", (t, c) if swap else (c, t)), CONSTANTS, terms, st.booleans()
    )


TERMS = st.recursive(VARIABLES | NUMBERS, _sums, max_leaves=4)
SIMPLE = st.builds(
    lambda op, v, c, swap: Node(op, (c, v) if swap else (v, c)),
    st.sampled_from(["<=", ">="]),
    VARIABLES,
    NUMBERS,
    st.booleans(),
)
ATOMS = SIMPLE | st.builds(
    lambda op, a, b: Node(op, (a, b)), st.sampled_from(["<=", ">=", "<", ">", "=", "==", "!="]), TERMS, TERMS
)
FORMULAS = st.recursive(
    ATOMS,
    lambda f: st.builds(Node, st.sampled_from(["and", "or"]), st.lists(f, min_size=1, max_size=3).map(tuple)),
    max_leaves=8,
)
BOX = "".join(f"(assert (and (>= X_{i} -2) (<= X_{i} 2)))" for i in range(N_X))
GAPS = st.sampled_from([" ", "\n", "\t", "\r\n", " ; a comment )(\n", "  \n\n "])


@settings(max_examples=200)
@given(st.lists(FORMULAS, min_size=1, max_size=3), st.lists(POINTS, min_size=1, max_size=6), GAPS)
def test_membership_is_the_truth_of_the_formula(formulas: list[Node], points: list[list[float]], gap: str) -> None:
    asserts = gap.join(f"(assert{gap}{formula.text(gap)})" for formula in formulas)
    prop = parse(declared(N_X, N_Y) + BOX + asserts)
    for point in points:
        x, y = np.array(point[:N_X], np.float32), np.array(point[N_X:], np.float32)
        expected = all(holds(formula, named(point[:N_X], point[N_X:])) for formula in formulas)
        clause = prop.witnessed(x, y)
        found = clause is not None and bool(prop.boxes.exact[prop.clauses[clause].box])
        assert found == expected


@settings(max_examples=100)
@given(st.lists(FORMULAS, min_size=1, max_size=2), st.lists(POINTS, min_size=1, max_size=6))
def test_the_float_rows_lose_no_point(formulas: list[Node], points: list[list[float]]) -> None:
    prop = parse(declared(N_X, N_Y) + BOX + "".join(f"(assert {formula.text()})" for formula in formulas))
    for point in points:
        if all(holds(formula, named(point[:N_X], point[N_X:])) for formula in formulas):
            assert any(_loosely_inside(prop, k, point) for k in range(len(prop.clauses)))


def _loosely_inside(prop: object, k: int, point: list[float]) -> bool:
    """Membership by the roundings that proofs use, evaluated without any further rounding."""
    clause = prop.clauses[k]  # type: ignore[attr-defined]
    lower, upper = prop.boxes.lower[clause.box], prop.boxes.upper[clause.box]  # type: ignore[attr-defined]
    x, y = [Fraction(v) for v in point[:N_X]], [Fraction(v) for v in point[N_X:]]
    if not all(Fraction(low) <= v <= Fraction(high) for low, v, high in zip(lower, x, upper, strict=True)):
        return False
    rows = clause.rows
    for r in range(len(rows)):
        total = sum((Fraction(a) * v for a, v in zip(rows.A[r], y, strict=True)), Fraction(0))
        if rows.B is not None:
            total += sum((Fraction(b) * v for b, v in zip(rows.B[r], x, strict=True)), Fraction(0))
        if rows.A_error is not None:
            total -= sum((Fraction(e) * abs(v) for e, v in zip(rows.A_error[r], y, strict=True)), Fraction(0))
        if total > Fraction(rows.c[r]):
            return False
    return True


def test_cases_that_mix_inputs_and_outputs() -> None:
    text = """
    (assert (>= X_0 -1)) (assert (<= X_1 1)) (assert (>= X_1 0.5))
    (assert (or (and (<= X_0 0) (<= Y_0 1) (>= Y_1 2)) (and (<= X_0 1) (<= (+ (* 2 Y_0) (- X_1)) 0.5)) (<= X_0 1)))
    (assert (< Y_1 3))
    """
    prop = parse(declared(2, 2) + text)
    assert prop.boxes.lower.tolist() == [[-1, 0.5], [-1, 0.5]]
    assert prop.boxes.upper.tolist() == [[0, 1], [1, 1]]
    assert [clause.box for clause in prop.clauses] == [0, 1, 1]
    rows = [clause.rows for clause in prop.clauses]
    assert [r.A.tolist() for r in rows] == [[[0, 1], [1, 0], [0, -1]], [[0, 1], [2, 0]], [[0, 1]]]
    assert rows[0].B is None
    assert rows[1].B is not None
    assert rows[1].B.tolist() == [[0, 0], [0, -1]]
    assert [r.c.tolist() for r in rows] == [[3, 1, -2], [3, 0.5], [3]]
    assert rows[0].strict.tolist() == [True, False, False]


def test_input_rows_and_conditions_without_rows() -> None:
    prop = parse(declared(2, 1) + "(assert (and (<= 0 X_0 1) (<= 0 X_1 1) (<= (+ X_0 X_1) 1)))")
    assert prop.clauses[0].rows.A.tolist() == [[0]]
    assert prop.clauses[0].rows.B is not None
    assert prop.clauses[0].rows.B.tolist() == [[1, 1]]
    bare = parse(declared(1, 1) + "(assert (<= 0 X_0 1))")
    assert [len(clause.rows) for clause in bare.clauses] == [0]


def test_scaled_bounds_are_divided_exactly() -> None:
    prop = parse(declared(1, 1) + "(assert (<= (* 3 X_0) 1)) (assert (>= (* -2 X_0) (- 4)))(assert (>= X_0 (/ -1 2)))")
    assert prop.boxes.lower[0, 0] == -0.5
    assert Fraction(np.nextafter(prop.boxes.upper[0, 0], 0)) < Fraction(1, 3) < Fraction(prop.boxes.upper[0, 0])


def test_empty_boxes_are_dropped_with_a_warning() -> None:
    text = declared(2, 1) + "(assert (>= X_1 0)) (assert (<= X_1 1)) (assert (<= X_0 1)) (assert (>= X_0 {}))"
    prop = parse(text.format("1.00000000000000000001"))
    assert prop.clauses == ()
    assert prop.boxes.lower.shape == (0, 2)
    assert prop.warnings == (
        "the only clause dropped: the input box is empty (lower bound above upper bound, first at X_0)",
    )
    assert parse(text.format("1")).warnings == ()
    two = parse(text.format("0") + "(assert (or (and (>= X_1 2) (<= Y_0 0)) (and (<= Y_0 1))))")
    assert len(two.clauses) == 1
    assert two.warnings == (
        "1 of 2 clauses dropped: the input box is empty (lower bound above upper bound, first at X_1)",
    )


def test_conditions_without_variables() -> None:
    box = declared(1, 1) + "(assert (>= X_0 0)) (assert (<= X_0 1))"
    assert len(parse(box + "(assert (or (<= 1 0) (<= (- Y_0 Y_0) 0)))").clauses) == 1
    assert parse(box + "(assert (< X_0 X_0))").warnings == (
        "the only clause dropped: a condition without variables does not hold",
    )
    assert parse(box + "(assert false)").clauses == ()
    assert len(parse(box + "(assert true)").clauses) == 1


def test_deep_nesting_is_no_problem() -> None:
    depth = 5_000
    term = "(+ " * depth + "Y_0" + " 1)" * depth
    formula = "(and (or " * depth + f"(<= {term} 0)" + "))" * depth
    prop = parse(declared(1, 1) + f"(assert {formula}) (assert (<= 0 X_0 1))")
    assert prop.clauses[0].rows.exact[0].bound == -depth


def test_other_forms_of_the_same_property() -> None:
    plain = (
        "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= X_0 1))(assert (>= X_0 0.5))(assert (<= Y_0 2))"
    )
    dressed = (
        "\ufeff; comment\r\n(set-logic QF_LRA)\r\n(declare-fun X_0 () Real)\t(declare-fun Y_0 () Real)"
        "(assert (and (<= X_0 1) (>= X_0 5e-1)))\r\n(assert (>= 2.0 Y_0)) ; ünicode\n(check-sat)"
    )
    assert_same(parse(plain), parse(dressed))
    assert_same(parse(plain), parse_general(plain))


VERSION_2 = "(vnnlib-version <2.0>)(declare-network f (declare-input X float32 [1, 2]) (declare-output Y real[2]))"


def test_version_2() -> None:
    text = VERSION_2 + "(assert (and (<= X[0,0] 1) (>= X[0,0] 0) (== X[0, 1] 0.5))) (assert (> Y[1] Y[0]))"
    prop = parse(text)
    same = declared(2, 2) + "(assert (and (<= X_0 1) (>= X_0 0) (== X_1 0.5))) (assert (> Y_1 Y_0))"
    assert_same(prop, parse(same))
    assert prop.variables is not None
    assert [(v.name, v.kind, v.dtype, v.shape) for v in prop.variables] == [
        ("X", "input", "float32", (1, 2)),
        ("Y", "output", "real", (2,)),
    ]
    scalar = "(vnnlib-version <2.0>)(declare-network f (declare-input X real []) (declare-output Y real [1,1]))"
    assert_same(
        parse(scalar + "(assert (<= 0 X 1))(assert (!= Y 2))"),
        parse(declared(1, 1) + "(assert (<= 0 X_0 1))(assert (!= Y_0 2))"),
    )


def test_the_strict_one_of_two_equal_bounds_wins() -> None:
    below = float(np.nextafter(np.float32(1), np.float32(0)))
    for bounds in ("(<= X_0 1) (< X_0 1)", "(< X_0 1) (<= X_0 1)"):
        together = parse(declared(1, 1) + f"(assert (and (> X_0 -1) (>= X_0 -1) {bounds}))")
        apart = parse(
            declared(1, 1)
            + f"(assert (and (>= X_0 -1) {bounds.split(') ')[0]})))(assert (and (> X_0 -1) {bounds.split(') ')[1]}))"
        )
        for prop in (together, apart):
            assert (prop.boxes.lower.tolist(), prop.boxes.upper.tolist()) == ([[-1]], [[1]])
            assert (prop.boxes.lower_in.tolist(), prop.boxes.upper_in.tolist()) == ([[-below]], [[below]])
