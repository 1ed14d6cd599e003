"""The fast reader gives what the general one gives, or nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.oracles import assert_same, declared

from verifier.property.vnnlib import scan as scanner
from verifier.property.vnnlib.fast import parse_fast
from verifier.property.vnnlib.general import parse_general

NUMBERS = st.one_of(
    st.floats(-100, 100).map(repr),
    st.decimals(-10, 10, places=6).map(lambda d: f"{d:f}"),
    st.sampled_from(["0", "-1", "0.1666666666666667", "1e-06", "-2.5E+0", "0.152941182255744934", "3.", ".5", "-0.0"]),
)
Interval = tuple[str, str]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Properties of the common form: the box among the facts or in every case, or partly here and partly there."""
    n_x, n_y, cases = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(0, 4))
    inside = [cases > 0 and draw(st.booleans()) for _ in range(n_x)]
    facts = [bound for i in range(n_x) if not inside[i] for bound in draw(_bounds(i))]
    facts += draw(st.lists(_row(n_y), max_size=2))
    bodies = []
    for _ in range(cases):
        atoms = [bound for i in range(n_x) if inside[i] for bound in draw(_bounds(i))]
        atoms += draw(st.lists(_row(n_y), min_size=0 if atoms else 1, max_size=2))
        atoms = draw(st.permutations(atoms))
        bare = len(atoms) == 1 and draw(st.booleans())
        bodies.append(atoms[0] if bare else f"(and {' '.join(atoms)})")
    asserts = [f"(assert {fact})" for fact in draw(st.permutations(facts))]
    if bodies:
        asserts.insert(draw(st.integers(0, len(asserts))), "(assert (or " + "\n".join(bodies) + "))")
    gap = draw(st.sampled_from(["\n", " ", "\t; comment\n", "\r\n"]))
    return declared(n_x, n_y) + gap.join(asserts)


@st.composite
def _bounds(draw: st.DrawFn, i: int) -> list[str]:
    low, high = draw(NUMBERS), draw(NUMBERS)
    kind = draw(st.integers(0, 5))
    if kind == 0:
        high = low  # a point
    elif kind > 1 and float(low) > float(high):
        low, high = high, low  # kind 1 keeps intervals that may be empty
    left = f"(>= X_{i} {low})" if draw(st.booleans()) else f"(<= {low} X_{i})"
    return [left, f"(<= X_{i} {high})"]


@st.composite
def _row(draw: st.DrawFn, n_y: int) -> str:
    j, operator = draw(st.integers(0, n_y - 1)), draw(st.sampled_from(["<=", ">="]))
    other = draw(st.one_of(NUMBERS, st.integers(0, n_y - 1).map(lambda k: f"Y_{k}")))
    return f"({operator} {other} Y_{j})" if draw(st.booleans()) else f"({operator} Y_{j} {other})"


@settings(max_examples=150)
@given(texts())
def test_both_readers_agree(text: str) -> None:
    found = parse_fast(text.encode())
    assert found is not None
    assert_same(found, parse_general(text))


@settings(max_examples=30)
@given(texts(), st.integers(30, 80))
def test_the_cuts_between_chunks_do_not_matter(text: str, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "CHUNK", chunk)
        found = parse_fast(text.encode())
    assert found is not None
    assert_same(found, parse_general(text))


BOX = declared(2, 1) + "(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 1))"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        declared(2, 1) + "(assert (>= X_0 0))",
        BOX + "(assert (<= X_0 0.5))",
        BOX + "(assert (< Y_0 0.5))",
        BOX + "(assert (= Y_0 0.5))",
        BOX + "(assert (<= X_0 X_1))",
        BOX + "(assert (<= X_0 Y_0))",
        BOX + "(assert (<= 0 1))",
        BOX + "(assert (<= Y_1 0))",
        BOX + "(assert (<= X_2 0))",
        BOX + "(assert (<= Y_00 0))",
        BOX + "(assert (<= Y_0 0..5))",
        BOX + "(assert (<= Y_0 0.5\0))",
        BOX + "(assert (<= Y_0 nan))",
        BOX + "(assert (<= Y_0 1e999))",
        BOX + "(assert (<= Y_0 0)",
        BOX + "(assert (<= Y_0 0)))",
        BOX + "(assert (<= Y_0 0)) x",
        BOX + "(assert (or (<= Y_0 0))) (assert (or (<= Y_0 1)))",
        BOX + "(assert (or (and (or (<= Y_0 0)))))",
        BOX + "(assert (or))",
        BOX + "(assert (or (and)))",
        BOX + "(assert (or (and (<= X_0 1) (<= Y_0 0))))",
        BOX + "(declare-const Y_1 Real)(assert (<= Y_1 0))",
        BOX + "(assert (<= Y_0 (+ 1 2)))",
        BOX.replace("X_1 Real", "X_1 Int"),
        BOX.replace("X_1 Real", "X_0 Real"),
        BOX.replace("declare-const", "declare-thing"),
        "(vnnlib-version <2.0>)" + BOX,
    ],
)
def test_everything_else_is_left_to_the_general_reader(text: str) -> None:
    assert parse_fast(text.encode()) is None
    assert parse_fast(text.replace(")(", ")\n(").encode()) is None


PLAIN = "(assert (<= X_0 1))\n(assert (>= X_1 0))\n(assert (<= X_1 1))\n(assert (>= X_0 {}\n(assert (<= Y_0 1))\n"


@pytest.mark.parametrize(
    ("line", "readable"),
    [
        ("0))", True),
        ("-1.5e-3))\r", True),
        ("0)) ; comment", True),
        ("0 ))", True),
        ("0)\n)", True),
        ("0))\n; comment\n\n(assert (<= Y_0 0))", True),
        ("0)) (assert (>= Y_0 0))", True),
        ("0)))", False),
        ("0)", False),
        ("0y)", False),
        ("))", False),
        ("0 0))", False),
        ("Z))", False),
        ("0;))", False),
        ("0)) (declare-const Y_1 Real)", False),
        ("0))\n(declare-const Y_1 Real)", False),
    ],
)
def test_lines_that_are_not_quite_plain(line: str, readable: bool) -> None:
    text = declared(2, 1) + PLAIN.format(line)
    found = parse_fast(text.encode())
    assert (found is not None) == readable
    if found is not None:
        assert_same(found, parse_general(text))


@pytest.mark.parametrize(
    ("extra", "readable"),
    [(" x", False), (")", False), (" (declare-const Y_0 Real)", False), ("(assert (<= Y_0 0))", True)],
)
def test_declarations_with_something_behind_them(extra: str, readable: bool) -> None:
    text = "(declare-const Y_0 Real)\n(declare-const X_0 Real)" + extra + "\n(assert (<= X_0 1))\n(assert (>= X_0 0))\n"
    text += "(assert (<= Y_0 1))"
    found = parse_fast(text.encode())
    assert (found is not None) == readable
    if found is not None:
        assert_same(found, parse_general(text))


def test_an_assert_inside_of_another_one_is_not_taken_for_a_line() -> None:
    bounds = "".join(f"(assert (>= X_{i} 0))\n(assert (<= X_{i} 1))\n" for i in range(100))
    text = declared(100, 1) + "(assert (or (<= Y_0 0)\n" + bounds + "))"
    assert parse_fast(text.encode()) is None
    assert parse_fast((declared(100, 1) + bounds + "(assert (or (<= Y_0 0)))").encode()) is not None


def test_equal_boxes_are_stored_once() -> None:
    box = "(>= X_0 0) (<= X_0 1) (>= X_1 {}) (<= X_1 1)"
    cases = [f"(and {box.format(low)} ({op} Y_0 {op == '>='}))" for low in ("0", "0.5", "0.0") for op in ("<=", ">=")]
    text = declared(2, 1) + "(assert (or " + " ".join(cases).replace("True", "1").replace("False", "0") + "))"
    found = parse_fast(text.encode())
    assert found is not None
    assert [clause.box for clause in found.clauses] == [0, 0, 1, 1, 0, 0]
    assert_same(found, parse_general(text))


def write_cases(path: Path, cases: int, inputs: int) -> None:
    """A property with many whole boxes, as learned indexes have them."""
    draw = random.Random(1)
    with path.open("w") as stream:
        stream.write(declared(inputs, 1) + "(assert (or\n")
        for _ in range(cases):
            lows = [draw.uniform(-1, 1) for _ in range(inputs)]
            atoms = (f"(>= X_{i} {low!r}) (<= X_{i} {low + draw.random()!r})" for i, low in enumerate(lows))
            stream.write(f"(and {' '.join(atoms)} ({draw.choice(['<=', '>='])} Y_0 {draw.random()!r}))\n")
        stream.write("))\n")


@pytest.mark.slow
def test_ten_thousand_boxes_of_300_inputs(tmp_path: Path, root: Path) -> None:
    """In 15 seconds and 2 GB.  The seconds are those of the processor: reading uses one thread, and what other
    programs do on the machine is not the reader's business."""
    path = tmp_path / "large.vnnlib"
    write_cases(path, 10_000, 300)
    program = (
        "import resource, sys, time\nfrom verifier.property.vnnlib import load_property\nstart = time.process_time()\n"
        "found = load_property(sys.argv[1])\nprint(time.process_time() - start, len(found.clauses), len(found.boxes),"
        " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    seconds, clauses, boxes, peak = done.stdout.split()
    assert (int(clauses), int(boxes)) == (10_000, 10_000)
    assert float(seconds) < 15
    assert int(peak) * (1 if sys.platform == "darwin" else 1024) < 2e9
