"""The bundled instances: files follow from the table, texts mean what was confirmed, verdicts are confirmed again."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import oracle  # noqa: F401  puts scripts/ on the path
import pytest

pytest.importorskip("sklearn", reason="the images come from scikit-learn's digits")

import make_properties as maker
from exact_network import Rows
from exact_onnx import load_dag
from property_instances import INSTANCES, Instance
from property_text import Clause, clauses

FOLDER = maker.FOLDER
LIMIT = 2_000_000  # bytes, all files together
# Confirmed again in every run: at least one of each method and network, none above a second or two.
QUICK = {
    "fc_interval_1437", "fc_crown_1439", "fc_patch_1441", "fc_sat_1443", "cart_push", "cart_range", "cart_cases",
    "cart_v2_strict", "pendulum_decrease", "pendulum_origin", "toy_positive", "toy_peak", "pool_sat_1444",
    "res_sat_1443",
}  # fmt: skip

each = pytest.mark.parametrize("instance", INSTANCES, ids=lambda i: i.name)
each_sat = pytest.mark.parametrize("instance", [i for i in INSTANCES if i.expected == "sat"], ids=lambda i: i.name)


@cache
def problem(instance: Instance) -> list[Clause]:
    return clauses(instance.formula(), *maker.sizes(instance))


def test_the_images_are_those_that_no_network_was_trained_on() -> None:
    images, labels = maker.digits()
    found = np.load(FOLDER / "digits.npz")
    np.testing.assert_array_equal(found["images"].reshape(-1, 64), images[maker.N_TRAIN :])
    np.testing.assert_array_equal(found["labels"], labels[maker.N_TRAIN :])


def expected() -> list[dict[str, str]]:
    with open(FOLDER / "expected.csv", newline="") as stream:
        return list(csv.DictReader(stream))


# ---------------------------------------------------------------- a second reading of the texts


def tokens(text: str) -> list[str]:
    return re.findall(r"[()]|[^\s()]+", re.sub(r";.*", "", text))


def tree(words: list[str]) -> list:
    """All top-level s-expressions as nested lists."""
    stack: list[list] = [[]]
    for word in words:
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    assert len(stack) == 1
    return stack[0]


def holds(path: Path, shapes: dict[str, tuple[int, ...]]) -> Callable[[np.ndarray, np.ndarray], bool]:
    """Truth of the whole file at a point, by direct evaluation in rational arithmetic."""
    asserts = [item[1] for item in tree(tokens(path.read_text())) if item[0] == "assert"]

    def evaluate(node: list | str, point: dict[str, np.ndarray]) -> Any:
        if isinstance(node, str):
            if node[0] not in "XY":
                return Fraction(node)
            index = [int(i) for i in re.findall(r"\d+", node)]
            flat = index[0] if "_" in node else int(np.ravel_multi_index(index, shapes[node[0]]))
            return Fraction(float(point[node[0]][flat]))
        head, values = node[0], [evaluate(child, point) for child in node[1:]]
        if head in ("and", "or"):
            return all(values) if head == "and" else any(values)
        if head == "+":
            return sum(values, Fraction(0))
        left, right = values
        table = {"<=": left <= right, ">=": left >= right, "<": left < right, ">": left > right, "*": left * right}
        return table[head]

    return lambda x, y: all(evaluate(item, {"X": x, "Y": y}) for item in asserts)


@each
def test_the_text_and_the_clauses_mean_the_same(instance: Instance) -> None:
    """At points inside, on the border of and just outside each box, with outputs near the rows' borders."""
    told = holds(FOLDER / maker.paths(instance)[1], maker.SHAPES[instance.network])
    rng, seen = np.random.default_rng(0), set()
    some = problem(instance)
    for _ in range(24):
        clause = some[rng.integers(len(some))]
        width = rng.choice([0.1, 1.0]) * (clause.upper - clause.lower)
        x = maker.inside(clause, clause.lower + width * rng.random(len(width)))
        rows = clause.rows
        y = rng.normal(size=rows.A.shape[1:])
        if rng.random() < 0.6:  # somewhere near the middle of where all rows of this clause hold
            right = rows.c if rows.B is None else rows.c - rows.B @ x
            y = np.linalg.lstsq(rows.A, right - 0.02, rcond=None)[0] + 1e-3 * y
        if rng.random() < 0.4:
            i = rng.integers(len(x))
            x[i] = rng.choice([clause.lower[i] - 1e-3, clause.upper[i] + 1e-3])
        claimed = any(c.holds(x, y) for c in some)
        assert told(x, y) == claimed
        seen.add(claimed)
    assert seen == {True, False}


# ---------------------------------------------------------------- files


def test_the_committed_files_follow_from_the_table(tmp_path: Path) -> None:
    maker.write(tmp_path)
    texts = (p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".npz")  # images have a test of their own
    made = {str(p.relative_to(tmp_path)): p.read_text() for p in texts}
    kept = {name: (FOLDER / name).read_text() if (FOLDER / name).exists() else None for name in made}
    assert [name for name in made if made[name] != kept[name]] == []
    assert {p.name for p in (FOLDER / "vnnlib").iterdir()} == {f"{i.name}.vnnlib" for i in INSTANCES}


def test_every_file_is_listed_and_nothing_else_lies_there() -> None:
    listed = {name for i in INSTANCES for name in maker.paths(i)}
    listed |= {f"witnesses/{i.name}.txt" for i in INSTANCES if i.expected == "sat"}
    listed |= {"instances.csv", "expected.csv", "README.md", "digits.npz"}
    assert {str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*") if p.is_file()} == listed


def test_all_files_together_stay_small() -> None:
    assert sum(p.stat().st_size for p in FOLDER.rglob("*") if p.is_file()) <= LIMIT


def test_the_two_tables_agree() -> None:
    with open(FOLDER / "instances.csv", newline="") as stream:
        rows = list(csv.reader(stream))
    verdicts = expected()
    assert [tuple(row[:2]) for row in rows] == [(v["onnx"], v["vnnlib"]) for v in verdicts]
    assert all(0 < float(row[2]) <= 120 for row in rows)
    assert [v["expected"] for v in verdicts] == [i.expected for i in INSTANCES]
    for verdict in verdicts:
        assert set(verdict) == {"onnx", "vnnlib", "expected", "method", "note"}
        assert verdict["method"] in ({"witness"} if verdict["expected"] == "sat" else {"milp", "enumeration"})


def test_the_instances_cover_what_they_should() -> None:
    notes = [v["note"] for v in expected()]
    assert len(INSTANCES) == len(notes)
    for bound, least in (("interval", 1), ("crown", 4), ("planet lp", 1), ("branching", 8)):
        assert sum(note.endswith(f"needs {bound}") for note in notes) >= least
    problems = [problem(i) for i in INSTANCES]
    assert any(len(p) == 1 and len(p[0].rows.c) > 2 for p in problems)  # conjunction
    assert any(len({c.lower.tobytes() for c in p}) > 1 for p in problems)  # several boxes
    assert any(len(p) > 1 and len(p[0].rows.c) > 1 for p in problems)  # or of ands
    assert any(c.rows.B is not None and not c.rows.A[-1].all() for p in problems for c in p)  # input row
    assert {i.version for i in INSTANCES} == {1, 2}


@pytest.mark.parametrize("name", ["fc_joint_1440", "fc_minimal_1440", "pendulum_decrease"])
def test_the_safe_conjunctions_need_all_their_rows(name: str) -> None:
    """Each row on its own can hold, so a verifier that looks at single rows cannot prove them."""
    instance = next(i for i in INSTANCES if i.name == name)
    dag = load_dag(FOLDER / maker.paths(instance)[0])
    (clause,) = problem(instance)
    for i in range(len(clause.rows.c)):
        row = Rows(clause.rows.A[i : i + 1], clause.rows.c[i : i + 1])
        x = maker.descend(dag, Clause(*clause.box, row, ()), seed=0)
        assert row.value(x, dag.forward(x)).max() < -maker.MARGIN


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("name", sorted(maker.NETWORKS))
def test_the_lowered_network_is_the_onnx_file(name: str) -> None:
    path = FOLDER / "onnx" / f"{name}.onnx"
    dag = load_dag(path)
    for x in np.random.default_rng(0).uniform(-1, 1, size=(20, dag.n_in)).astype(np.float32):
        np.testing.assert_allclose(maker.replay(path, x), dag.forward(x), rtol=1e-4, atol=1e-4)


def read_witness(path: Path) -> tuple[np.ndarray, np.ndarray]:
    pairs = re.findall(r"\(([XY])_(\d+) ([^\s()]+)\)", path.read_text())
    sides = {side: [(int(i), float(v)) for s, i, v in pairs if s == side] for side in "XY"}
    for side in sides.values():
        assert [i for i, _ in side] == list(range(len(side)))
    x, y = (np.array([v for _, v in sides[side]]).astype(np.float32) for side in "XY")
    return x, y


@each_sat
def test_the_stored_witness_is_one(instance: Instance) -> None:
    network, text = (FOLDER / part for part in maker.paths(instance))
    x, y = read_witness(FOLDER / "witnesses" / f"{instance.name}.txt")
    replayed = maker.replay(network, x)
    np.testing.assert_allclose(y, replayed, rtol=1e-4, atol=1e-5)
    assert holds(text, maker.SHAPES[instance.network])(x, replayed)
    margins = [c.rows.value(x.astype(float), replayed).max() for c in problem(instance) if c.holds(x, replayed)]
    assert min(margins) <= -maker.MARGIN / 2


def check_again(instance: Instance) -> None:
    kept = next(v for v in expected() if v["vnnlib"] == maker.paths(instance)[1])
    result = maker.confirm(instance, FOLDER)
    assert (result.expected, result.method) == (kept["expected"], kept["method"])
    if result.expected == "unsat":
        assert result.note == kept["note"]


@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name in QUICK], ids=lambda i: i.name)
def test_cheap_verdicts_are_confirmed_again(instance: Instance) -> None:
    check_again(instance)


@pytest.mark.slow
@pytest.mark.parametrize("instance", [i for i in INSTANCES if i.name not in QUICK], ids=lambda i: i.name)
def test_the_other_verdicts_are_confirmed_again(instance: Instance) -> None:
    check_again(instance)


@pytest.mark.parametrize(("name", "wrong"), [("toy_peak", "unsat"), ("cart_push", "sat"), ("pendulum_decrease", "sat")])
def test_a_wrong_verdict_is_not_confirmed(name: str, wrong: str) -> None:
    true = next(i for i in INSTANCES if i.name == name)
    with pytest.raises(ValueError, match=name):
        maker.confirm(Instance(name, true.network, true.formula, wrong, true.purpose), FOLDER)
