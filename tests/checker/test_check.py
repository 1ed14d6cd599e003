"""Whole proofs: those that hold are accepted, those that were tampered with are rejected with a reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from checker.building import (
    ALL,
    KEEP,
    NOTHING,
    RECALL,
    bits,
    close,
    cut,
    default,
    empty,
    improve,
    members,
    part,
    raw_bits,
    section,
    shrink,
    split,
    two_layers,
    values,
    varint,
    weights,
    witness,
    write_proof,
)

from verifier.checker.check import ACCEPTED, REJECTED, UNREADABLE, Judgement, check
from verifier.cli.main import run

DECLARED = "(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n(declare-const Y_1 Real)\n"
BOX = "".join(f"(assert (>= X_{i} -1.0))\n(assert (<= X_{i} 1.0))\n" for i in range(2))


@dataclass(frozen=True)
class Instance:
    """y_0 = |x_0 + x_1| + |x_0 - x_1| = 2 max(|x_0|, |x_1|) and y_1 = x_0 + 2 >= 1, on [-1, 1]^2."""

    net: Path
    prop: Path
    proof: Path

    def judge(self, body: bytes, exact: bool = False, changes: dict[str, object] | None = None) -> Judgement:
        write_proof(self.proof, self.net, self.prop, body, changes)
        return check(str(self.net), str(self.prop), str(self.proof), exact)


def instance(folder: Path, unsafe: str) -> Instance:
    first = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1], [1, 0]])
    last = np.array([[1, 1, 1, 1, 0], [0, 0, 0, 0, 1]])
    onnx.save(two_layers(first, np.array([0, 0, 0, 0, 2]), last), folder / "n.onnx")
    (folder / "p.vnnlib").write_text(DECLARED + BOX + unsafe)
    return Instance(folder / "n.onnx", folder / "p.vnnlib", folder / "proof.zip")


@pytest.fixture
def sums(tmp_path: Path) -> Instance:
    """Unsafe: y_0 <= -0.5, or y_0 >= 4.5 together with y_1 <= 9 (clauses 0 and 1)."""
    return instance(tmp_path, "(assert (or (<= Y_0 -0.5) (and (>= Y_0 4.5) (<= Y_1 9.0))))")


@pytest.fixture
def corner(tmp_path: Path) -> Instance:
    """Unsafe: y_0 <= 2 x_0 - 0.25, which only splits or boxes exclude."""
    return instance(tmp_path, "(assert (<= (+ Y_0 (* -2.0 X_0)) -0.25))")


BOTH = members([0, 1]) + default()
LAMBDA = weights([1.0, 0.0])


def test_root_bounds(sums: Instance) -> None:
    """Four ReLUs, each below 2: y_0 <= 2 + 2 by chords alone, which is below 4.5."""
    for exact in (False, True):
        found = sums.judge(BOTH + close(0) + close(1, LAMBDA), exact)
        assert found.verdict == ACCEPTED
        assert (found.nodes, found.closed) == (3, 2)
        assert found.margin == pytest.approx(0.5, abs=1e-9)


def tree() -> bytes:
    """|a| + |b| >= a + b = 2 x_0: slopes 1 for the first and third ReLU, 0 for the others."""
    slopes = ALL + values([1.0, 0.0, 1.0, 0.0, 0.0], 0)
    return close(0, witness=witness([section(1, slopes=slopes)]))


def blocked() -> bytes:
    """The same where a = x_0 + x_1 <= 0: its ReLU gives nothing, and the split's own multiplier gives a."""
    slopes = ALL + values([1.0, 0.0, 1.0, 0.0, 0.0], 0)
    return close(0, witness=witness([section(1, slopes=slopes, deltas=members([0]) + values([1.0], 2))]))


def test_slopes_of_eight_bits_close(corner: Instance) -> None:
    found = corner.judge(members([0]) + default() + tree())
    assert found.verdict == ACCEPTED
    assert found.margin == pytest.approx(0.25, abs=1e-9)


def test_every_rule_is_accepted_where_it_holds(corner: Instance) -> None:
    """One proof that uses them all; each leaf ends with the same slopes."""
    plane = (0, witness([section(1, slopes=ALL + values([1.0, 0.0, 1.0, 0.0, 0.0], 1))]))
    body = members([0]) + default(1, 31)
    body += cut(0, 0.25)
    body += split(1, 0) + tree() + split(1, 4) + blocked() + empty(1, 4)
    body += improve(1, [0, 2], [1], NOTHING) + shrink([plane], [(1, 0, -0.5), (1, 1, 0.5)]) + default() + tree()
    for exact in (False, True):
        found = corner.judge(body, exact)
        assert found.verdict == ACCEPTED, found
        assert found.closed == 3


def test_cuts_of_every_form_and_deltas_are_read(corner: Instance) -> None:
    shares = ALL + varint(0) + values([0.0] * 5, 0)
    forms = [varint(0) + bits([True, False], keep=True) + shares, varint(1) + varint(4) + varint(4) + shares]
    forms += [varint(2) + ALL + raw_bits([True, False]) * 5 + varint(1) + values([0.0] * 5, 2)]
    slopes = ALL + values([1.0, 0.0, 1.0, 0.0, 0.0], 0)
    inner = section(1, slopes=slopes, deltas=members([0]) + values([0.0], 2), cuts=forms)
    assert corner.judge(members([0]) + default() + close(0, witness=witness([inner]))).verdict == ACCEPTED
    plain = section(1, deltas=ALL + values([1.0, 0.0, 1.0, 0.0, 0.0]), plain=True)
    assert corner.judge(members([0]) + default() + close(0, witness=witness([plain])), exact=True).verdict == ACCEPTED


def test_clauses_part(sums: Instance) -> None:
    body = BOTH + part([1]) + close(1, LAMBDA) + close(0)
    assert sums.judge(body).verdict == ACCEPTED
    two = members([0]) + default() + close(0) + members([1]) + default() + close(1, LAMBDA)
    assert sums.judge(two).verdict == ACCEPTED


def test_earlier_bounds_are_recalled_with_the_signs_since(corner: Instance) -> None:
    """Signs hold, and a smaller box is forgotten."""
    begin = members([0]) + default() + KEEP
    assert corner.judge(begin + split(1, 0) + RECALL + tree() + RECALL + blocked(), exact=True).verdict == ACCEPTED
    for recall, verdict in ((b"", ACCEPTED), (RECALL, REJECTED)):
        smaller = cut(0, -0.75) + cut(1, 0.5) + default() + recall + blocked() + tree() + tree()
        assert corner.judge(begin + smaller).verdict == verdict


def test_what_is_closed_stays_closed_where_bounds_are_recalled(sums: Instance) -> None:
    assert sums.judge(BOTH + KEEP + close(0) + RECALL + close(1, LAMBDA)).verdict == ACCEPTED
    assert sums.judge(BOTH + KEEP + close(0) + RECALL + close(0)).verdict == REJECTED


TAMPERED: dict[str, tuple[Callable[[], bytes], str]] = {
    "a clause left open": (lambda: BOTH + close(0), "too early"),
    "a leaf twice": (lambda: BOTH + close(0) + close(1, LAMBDA) + close(1, LAMBDA), "there is no set|too early|clause"),
    "a clause closed twice": (lambda: BOTH + close(0) + close(0), "not open"),
    "a clause without a tree": (lambda: members([0]) + default() + close(0), "clause 1 has no tree"),
    "a tree about nothing": (lambda: members([]), "no clause"),
    "a clause that is not there": (lambda: members([2]) + default(), "there is no"),
    "a closing of another tree's clause": (lambda: members([0]) + default() + close(1, LAMBDA), "not open"),
    "lambda zero": (lambda: BOTH + close(0) + close(1, weights([0.0, 0.0])), "lambda"),
    "lambda negative": (lambda: BOTH + close(0) + close(1, weights([1.0, -1.0])), "lambda"),
    "lambda not a number": (lambda: BOTH + close(0) + close(1, weights([np.nan, 1.0])), "finite"),
    "a lambda that does not close": (lambda: BOTH + close(0) + close(1, weights([0.0, 1.0])), "not closed"),
    "no bounds": (lambda: members([0, 1]) + close(0) + close(1, LAMBDA), "not closed"),
    "an unknown node": (lambda: BOTH + varint(99), "no node"),
    "a part with nothing": (lambda: BOTH + part([]), "part"),
    "a recall of nothing": (lambda: BOTH + RECALL, "kept"),
    "a recall of a recall": (lambda: BOTH + KEEP + KEEP + RECALL + RECALL, "kept"),
    "a group that is not there": (lambda: BOTH + split(2, 0), "no group"),
    "group zero": (lambda: BOTH + split(0, 0), "no group"),
    "a neuron that is not there": (lambda: BOTH + split(1, 5), "no neuron"),
    "an input that is not there": (lambda: BOTH + cut(2, 0.0), "no input"),
    "a cut outside of the box": (lambda: BOTH + cut(0, 1.5), "outside"),
    "a cut at no number": (lambda: BOTH + cut(0, np.inf), "finite"),
    "bounds that do not cross": (lambda: BOTH + empty(1, 0), "exclude"),
    "a witness with too many rows": (lambda: BOTH + close(0, witness=witness([], rows=2)), "rows"),
    "groups of a witness out of order": (
        lambda: BOTH + close(0, witness=varint(1) + varint(1) + section(2)),
        "names group",
    ),
    "kappa positive": (
        lambda: BOTH + close(0, witness=witness([section(1, cuts=[CUT + values([-1.0] * 5, 2)])])),
        "kappa",
    ),
    "a slope that is not a number": (
        lambda: BOTH + close(0, witness=witness([section(1, slopes=ALL + values([np.nan] * 5, 2))])),
        "finite",
    ),
    "values of no type": (lambda: BOTH + close(0, witness=witness([section(1, slopes=ALL + varint(4))])), "type"),
    "a set that is not there": (lambda: BOTH + close(0, witness=witness([section(1, slopes=varint(4))])), "no set"),
    "bits behind the end": (
        lambda: BOTH + close(0, witness=witness([section(1, slopes=varint(1) + b"\xff")])),
        "bits behind",
    ),
    "a number that does not end": (lambda: BOTH + b"\xff" * 12, "too many bytes"),
    "a split with one child": (lambda: BOTH + split(1, 4) + close(0) + close(1, LAMBDA), "too early"),
    "a box that shrinks too far": (
        lambda: BOTH + shrink([(0, NOTHING), (1, LAMBDA + NOTHING)], [(0, 0, 2.0)]),
        "outside",
    ),
    "a shrinking without all planes": (lambda: BOTH + shrink([(0, NOTHING)], [(0, 0, 0.0)]), "planes"),
    "bytes behind the end": (lambda: BOTH + close(0) + close(1, LAMBDA) + b"\x00", "too early|bounds|closed"),
}
CUT = varint(0) + ALL + ALL + varint(0)


@pytest.mark.parametrize("kind", TAMPERED)
def test_what_was_tampered_with_is_rejected(sums: Instance, kind: str) -> None:
    body, reason = TAMPERED[kind]
    found = sums.judge(body())
    assert found.verdict == REJECTED
    assert found.reason is not None
    assert re.search(reason, found.reason), found.reason


def test_a_slab_that_may_be_unsafe_is_not_cut_off(tmp_path: Path) -> None:
    """Unsafe: y_1 <= 2.5, hence x_0 <= 0.5.  The part above may go, the part below not."""
    given = instance(tmp_path, "(assert (<= Y_1 2.5))")
    good = members([0]) + default() + shrink([(0, NOTHING)], [(0, 1, 0.75)])
    assert "too early" in str(given.judge(good))
    bad = members([0]) + default() + shrink([(0, NOTHING)], [(0, 1, 0.25)])
    assert "may be unsafe" in str(given.judge(bad))


def test_what_is_cut_off_lies_above_one_plane_of_its_clause(tmp_path: Path) -> None:
    """Unsafe: 1.75 <= y_1 <= 2.25, hence -0.25 <= x_0 <= 0.25.  Each row cuts off one side, their sum neither."""
    given = instance(tmp_path, "(assert (<= Y_1 2.25))\n(assert (>= Y_1 1.75))")
    above, below, sum_ = weights([1.0, 0.0]), weights([0.0, 1.0]), weights([1.0, 1.0])
    both_ends = [(0, 1, 0.5), (0, 0, -0.5)]

    def judged(lambdas: list[bytes], ends: list[tuple[int, int, float]]) -> str:
        planes = [(0, b"".join(lambdas) + NOTHING)]
        return str(given.judge(members([0]) + default() + shrink(planes, ends, [len(lambdas)])))

    assert "too early" in judged([above, below], both_ends)
    assert "too early" in judged([sum_, below, above], both_ends)
    assert "too early" in judged([above], both_ends[:1])
    for lambdas in ([above], [below], [sum_], [above, sum_]):
        assert "may be unsafe" in judged(lambdas, both_ends)
    assert "may be unsafe" in judged([above, below], [(0, 1, 0.5), (0, 0, 0.4)])
    assert "planes" in judged([], both_ends)
    assert "count of planes" in judged([above, below, sum_, sum_], both_ends)


def test_planes_of_one_clause_say_nothing_of_another(tmp_path: Path) -> None:
    """Unsafe: y_1 <= 2.25 (x_0 <= 0.25), or y_1 >= 1.75 (x_0 >= -0.25): no side can be cut off."""
    given = instance(tmp_path, "(assert (or (<= Y_1 2.25) (>= Y_1 1.75)))")
    for end in ((0, 1, 0.5), (0, 0, -0.5)):
        body = members([0, 1]) + default() + shrink([(0, NOTHING), (1, NOTHING)], [end])
        assert "may be unsafe" in str(given.judge(body))


def test_every_shortened_proof_is_rejected(corner: Instance) -> None:
    body = members([0]) + default() + split(1, 0) + tree() + cut(1, 0.0) + blocked() + blocked()
    assert corner.judge(body).verdict == ACCEPTED
    for end in range(len(body)):
        assert corner.judge(body[:end]).verdict == REJECTED


def test_the_wrong_files_are_noticed(sums: Instance) -> None:
    body = BOTH + close(0) + close(1, LAMBDA)
    for name in ("network", "property"):
        found = sums.judge(body, changes={name: "0" * 64})
        assert (found.verdict, found.node) == (REJECTED, None)
        assert f"another {name}" in str(found)
    write_proof(sums.proof, sums.net, sums.prop, body)
    sums.prop.write_text(sums.prop.read_text().replace("-0.5", "-0.4"))
    assert check(str(sums.net), str(sums.prop), str(sums.proof)).verdict == REJECTED


def test_what_is_no_proof_cannot_be_read(sums: Instance) -> None:
    for change in ({"format": "other"}, {"version": 2}, {"network": 7}):
        assert sums.judge(b"", changes=change).verdict == UNREADABLE
    for data in (b"", b"PK", os.urandom(100)):
        sums.proof.write_bytes(data)
        assert check(str(sums.net), str(sums.prop), str(sums.proof)).verdict == UNREADABLE
    with zipfile.ZipFile(sums.proof, "w") as archive:
        archive.writestr("header.json", "[" * 100_000)
        archive.writestr("proof.bin", b"")
    assert check(str(sums.net), str(sums.prop), str(sums.proof)).verdict == UNREADABLE
    assert check("missing", str(sums.prop), str(sums.proof)).verdict == UNREADABLE


def test_a_damaged_archive_is_never_accepted(sums: Instance) -> None:
    body = BOTH + close(0) + close(1, LAMBDA)
    write_proof(sums.proof, sums.net, sums.prop, body)
    whole = sums.proof.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        start = whole.index(b"proof.bin") + len("proof.bin")
        damaged[start + int(rng.integers(len(body) // 2))] ^= 1 << int(rng.integers(8))
        sums.proof.write_bytes(bytes(damaged))
        if check(str(sums.net), str(sums.prop), str(sums.proof)).verdict == ACCEPTED:  # nothing but padding changed
            assert zipfile.ZipFile(sums.proof).read("proof.bin") == body


def test_no_forged_proof_of_what_is_false(tmp_path: Path) -> None:
    """y_0 <= 1 is reached at the origin.  Mutations of a plausible proof, and random witnesses, prove nothing."""
    given = instance(tmp_path, "(assert (<= Y_0 1.0))")
    rng = np.random.default_rng(3)
    seed = members([0]) + default() + split(1, 0) + split(1, 2) + tree() + tree() + cut(0, 0.0) + tree() + tree()
    for number in range(400):
        body = bytearray(seed)
        for _ in range(int(rng.integers(1, 5))):
            place = int(rng.integers(len(body)))
            action = rng.integers(3)
            if action == 0:
                body[place] = int(rng.integers(256))
            elif action == 1:
                del body[place]
            else:
                body.insert(place, int(rng.integers(256)))
        if number % 2:
            numbers = ALL + values(rng.normal(size=5) * 10.0 ** rng.integers(-3, 4), 3)
            random = close(0, witness=witness([section(1, deltas=numbers, plain=bool(rng.integers(2)))]))
            body = bytearray(members([0]) + default() + random)
        assert given.judge(bytes(body)).verdict == REJECTED


def test_random_witnesses_are_confirmed_by_rationals_where_floats_accept(corner: Instance) -> None:
    rng = np.random.default_rng(5)
    accepted = 0
    for _ in range(60):
        slopes = np.array([1.0, 0.0, 1.0, 0.0, 0.0]) + rng.normal(size=5) * rng.choice([1e-12, 0.02, 0.2])
        deltas = rng.normal(size=5) * rng.choice([0.0, 0.05])
        inner = section(1, slopes=ALL + values(slopes), deltas=ALL + values(deltas))
        body = members([0]) + default() + close(0, witness=witness([inner]))
        if corner.judge(body).verdict == ACCEPTED:
            accepted += 1
            assert corner.judge(body, exact=True).verdict == ACCEPTED
    assert 10 < accepted < 60


def test_exit_codes_and_json(sums: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [str(sums.net), str(sums.prop), str(sums.proof)]
    record = tmp_path / "judgement.json"
    sums.judge(BOTH + close(0) + close(1, LAMBDA))
    assert run(["check", *files, "--json", str(record)]) == 0
    assert capfd.readouterr().out.startswith("accepted (3 nodes")
    assert json.loads(record.read_text())["closed"] == 2
    sums.judge(BOTH + close(0) + close(0))
    assert run(["check", *files, "--json", "-"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert (found["verdict"], found["node"]) == ("rejected", 3)
    sums.proof.write_bytes(b"nothing")
    assert run(["check", *files]) == 2
    assert "cannot be read" in capfd.readouterr().out


def test_it_runs_alone_where_torch_is_not_installed(sums: Instance, tmp_path: Path, root: Path) -> None:
    """Only the folder, and imports of everything but numpy and onnx's own needs are refused."""
    shutil.copytree(root / "verifier" / "checker", tmp_path / "alone" / "checker")
    (tmp_path / "alone" / "sitecustomize.py").write_text(
        "import sys\n"
        "for name in ('torch', 'verifier', 'onnxruntime', 'onnx2torch', 'highspy', 'click', 'scipy'):\n"
        "    sys.modules[name] = None\n"
    )
    sums.judge(BOTH + close(0) + close(1, LAMBDA))
    files = [str(sums.net), str(sums.prop), str(sums.proof)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "alone")}
    found = subprocess.run(
        [sys.executable, "-m", "checker", *files], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("accepted")


def test_the_example_of_the_documentation(tmp_path: Path, root: Path) -> None:
    """docs/proofs.md reads these bytes by hand."""
    page = (root / "docs" / "proofs.md").read_text().partition("## An example")[2]
    body = bytes.fromhex("".join(re.findall(r"^\| `([0-9a-f ]+)` \|", page, re.MULTILINE)))
    net, prop = tmp_path / "n.onnx", tmp_path / "p.vnnlib"
    onnx.save(two_layers(np.array([[1], [-1]]), np.array([1, 1]), np.array([[1, 1]])), net)
    prop.write_text(
        "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 -1))(assert (<= X_0 1))(assert (<= Y_0 1.5))"
    )
    write_proof(tmp_path / "proof", net, prop, body)
    found = check(str(net), str(prop), str(tmp_path / "proof"), exact=True)
    assert found.margin == pytest.approx(0.5, abs=1e-9)


# ---------------------------------------------------------------- signs that a clause implies

IMPLY = varint(11)


def test_a_row_without_negative_summands_forces_signs(tmp_path: Path) -> None:
    """y_0 <= 0 needs x_0 + x_1 = x_0 - x_1 = 0, and so y_1 = 2."""
    both = instance(tmp_path, "(assert (and (<= Y_0 0.0) (<= Y_1 1.5)))")
    begin = members([0]) + default()
    idle = weights([0.0, 1.0])
    slopes = section(1, deltas=members([0, 1, 2, 3, 4]) + values([0.0, 0.5, 0.0, 0.5, 0.0]))
    for exact in (False, True):
        assert both.judge(begin + IMPLY + varint(0) + close(0, idle, witness([slopes])), exact).verdict == ACCEPTED
    assert both.judge(begin + close(0, idle, witness([slopes]))).verdict == REJECTED


@pytest.mark.parametrize(
    ("unsafe", "row", "why"),
    [
        ("(assert (<= Y_0 0.001))", 0, "forces no signs"),  # neurons may be above zero
        ("(assert (>= Y_0 0.0))", 0, "forces no signs"),  # weights below zero
        ("(assert (<= (+ Y_0 X_0) 0.0))", 0, "forces no signs"),  # it reads the input
        ("(assert (<= Y_0 0.0))", 1, "no row of the clause 1"),
        ("(assert (or (<= Y_0 0.0) (<= Y_1 0.0)))", 0, "only clause"),
    ],
)
def test_other_rows_force_none(tmp_path: Path, unsafe: str, row: int, why: str) -> None:
    found = instance(tmp_path, unsafe)
    body = members([0, 1] if "or" in unsafe else [0]) + default() + IMPLY + varint(row) + close(0)
    judged = found.judge(body)
    assert judged.verdict == REJECTED
    assert re.search(why, str(judged.reason)), judged


def test_implied_signs_hold_where_bounds_are_recalled(tmp_path: Path) -> None:
    both = instance(tmp_path, "(assert (and (<= Y_0 0.0) (<= Y_1 1.5)))")
    slopes = section(1, deltas=members([0, 1, 2, 3, 4]) + values([0.0, 0.5, 0.0, 0.5, 0.0]))
    body = members([0]) + default() + KEEP + IMPLY + varint(0) + RECALL
    assert both.judge(body + close(0, weights([0.0, 1.0]), witness([slopes]))).verdict == ACCEPTED
