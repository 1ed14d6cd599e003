"""Every way in which a search can close something ends in nodes that the checker accepts; each is forced once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from checker.building import two_layers
from onnx import TensorProto, helper, numpy_helper

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.sweep import Sweep
from verifier.checker.check import check
from verifier.checker.nodes import Close, Imply, Judged
from verifier.checker.proving import Setting
from verifier.checker.scope import Scope
from verifier.config import load_config
from verifier.errors import InputError
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.proofs import attest
from verifier.proofs.attest import Attested
from verifier.proofs.recording import Recording
from verifier.proofs.signs import SignScribe
from verifier.proofs.witness import PRECISIONS, Precision, Witness, rounded
from verifier.proofs.writer import ProofWriter
from verifier.result.verdict import Verdict
from verifier.search import race
from verifier.search.journal import By, Closed, Event
from verifier.search.loop import Search
from verifier.search.problem import ProblemSearch
from verifier.search.signs.root import Batch
from verifier.search.signs.space import SignSpace
from verifier.search.task import SearchTask

RELUS = ("search.splitting=relus", "search.sharpen.after=null")


@dataclass
class Run:
    """An instance, and what was heard of its run."""

    net: Path
    prop: Path
    proof: Path
    closed: dict[By, int] = field(default_factory=dict)
    bounds: list[float] = field(default_factory=list)  # of domains of signs, as the search has them

    def __call__(self, options: Sequence[str] = (), preset: str = "auto") -> None:
        config = load_config(preset, tuple(options))
        given = GivenFiles(str(self.net), str(self.prop))
        request = Request(given, config, Machine("cpu", 1, 60.0), proof=str(self.proof))
        assert decide(request, request.status()).verdict is Verdict.UNSAT
        assert self.verdict() == "accepted"

    def verdict(self, exact: bool = False) -> str:
        return check(str(self.net), str(self.prop), str(self.proof), exact).verdict

    def checked(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """The bounds of all closings, as the checker has them."""
        found: list[float] = []

        judged = Close._judged

        def close(node: Close, bound: float, scope: Scope) -> Judged:
            found.append(bound)
            return judged(node, bound, scope)

        monkeypatch.setattr(Close, "_judged", close)
        assert self.verdict() == "accepted"
        return found


@pytest.fixture
def toy(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Six ReLUs, two inputs."""
    return heard(Run(root / "properties/onnx/toy.onnx", root / "properties/vnnlib/toy_positive.vnnlib", tmp_path / "p"))


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> None:
    note, signs = ProofWriter.note, SignScribe.closed

    def heard_event(writer: ProofWriter, event: Event) -> Any:
        if isinstance(event, Closed) and len(event.number) and HEARING:
            HEARING[-1].closed[event.by] = HEARING[-1].closed.get(event.by, 0) + len(event.number)
        return note(writer, event)

    def closed_signs(scribe: SignScribe, numbers: list[int], batch: Batch, proof: Attested) -> Any:
        if HEARING:
            HEARING[-1].bounds += proof.lower(batch.task(torch.float64))[:, 0].tolist()
        return signs(scribe, numbers, batch, proof)

    HEARING.clear()
    monkeypatch.setattr(ProofWriter, "note", heard_event)
    monkeypatch.setattr(SignScribe, "closed", closed_signs)


HEARING: list[Run] = []


def heard(run: Run) -> Run:
    HEARING.append(run)
    return run


# ---------------------------------------------------------------- what is written is what closes


def longer(precisions: tuple[Precision, ...]) -> Any:
    return lambda patch: patch.setattr(attest, "PRECISIONS", precisions)


WAYS = {f"precision {place}": longer(PRECISIONS[place:]) for place in range(len(PRECISIONS))}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("preset", ["auto", "paper/big_m"])
def test_the_checker_finds_the_bounds_of_the_search(
    toy: Run, way: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of the search leave room for errors that are counted otherwise; that is all they differ by."""
    WAYS[way](monkeypatch)
    toy(RELUS, preset)
    assert len(toy.bounds) > 1
    np.testing.assert_allclose(sorted(toy.checked(monkeypatch)), sorted(toy.bounds), rtol=0.0, atol=1e-9)


def test_slopes_of_zero_are_written(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads nothing takes others."""
    folder = root / "properties"
    digits = heard(Run(folder / "onnx/digits_fc.onnx", folder / "vnnlib/fc_branch_1442.vnnlib", tmp_path / "p"))

    def flat(witness: Witness, sweep: Sweep, precision: Precision) -> Witness:
        found = rounded(witness, sweep, precision)
        return replace(found, groups=tuple(replace(g, slope=torch.zeros_like(g.slope)) for g in found.groups))

    monkeypatch.setattr(attest, "rounded", flat)
    digits(RELUS)
    found = sorted(digits.checked(monkeypatch))
    assert len(digits.bounds) > 1
    assert all(min(abs(bound - other) for other in found) < 1e-9 for bound in digits.bounds)


# ---------------------------------------------------------------- ways to close


def test_exact_leaves(toy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bound of a tier counts, so the tree ends where no neuron is ambiguous."""
    monkeypatch.setattr(SignSpace, "_proved", lambda space, brood, found, empty, closed: closed)
    toy(RELUS)
    assert toy.closed[By.LEAF] > 1
    assert By.BOUND not in toy.closed
    assert toy.verdict(exact=True) == "accepted"


def test_boxes_that_signs_finish(toy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    provable = Recording.provable

    def impatient(recording: Recording, search: ProblemSearch) -> ProblemSearch:
        found = provable(recording, search)
        return replace(found, inputs=replace(found.inputs, few_kinks=100, patience=1))

    monkeypatch.setattr(Recording, "provable", impatient)
    toy(("search.splitting=inputs",))
    assert toy.closed[By.FINISHED] > 0
    assert toy.verdict(exact=True) == "accepted"


class Stalled(Search):
    """Takes one step, and then none."""

    def __init__(self, inner: Search) -> None:
        self._inner = inner
        inner.step()
        assert inner.outcome is None
        self.progress, self.outcome = inner.progress, None

    def step(self) -> None:
        time.sleep(0.01)

    def close(self) -> None:
        self._inner.close()


def test_a_race_that_signs_win(toy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = SearchTask.boxes
    monkeypatch.setattr(SearchTask, "boxes", lambda task, members: Stalled(boxes(task, members)))
    monkeypatch.setattr(race, "FIRST_SLICE", 0.01)
    toy()
    assert toy.bounds


# ---------------------------------------------------------------- rows, and bounds of the root


@pytest.mark.parametrize("factor", ["1e-25", "1e25"])
def test_rows_that_the_search_has_scaled(toy: Run, tmp_path: Path, factor: str) -> None:
    """With one row the multipliers are scaled, with several ones their weights; the second one here is idle."""
    text = toy.prop.read_text()
    row = "(assert (<= Y_0 -0.01))"
    assert row in text
    toy.prop = tmp_path / "scaled.vnnlib"
    large = f"(assert (<= (* {factor} Y_0) (* {factor} -0.01)))"
    for rows in (large, f"{large}\n(assert (<= (- Y_0 X_0) 50.0))"):
        toy.prop.write_text(text.replace(row, rows))
        toy(RELUS)
        toy(("search.splitting=inputs",))


def test_rows_at_the_ends_of_the_floats_are_refused(toy: Run, tmp_path: Path) -> None:
    text = toy.prop.read_text()
    toy.prop = tmp_path / "tiny.vnnlib"
    toy.prop.write_text(text.replace("(<= Y_0 -0.01)", "(<= (* 1e-200 Y_0) -1e-202)"))
    with pytest.raises(InputError, match="coefficients"):
        toy(RELUS)


def test_clauses_that_are_hardly_closed_at_the_root_stay_open() -> None:
    found = ClauseBounds(
        torch.tensor([1e-3, 1e-12, -1.0], dtype=torch.float64), {}, {}, {}, {0: 1e-13, 1: 1e-13, 2: 1e-13}
    )
    careful = Recording.careful(Recording.__new__(Recording), found)
    assert careful.lower.tolist() == [1e-3, 0.0, -1.0]


# ---------------------------------------------------------------- signs that clauses imply


def test_signs_that_clauses_imply(toy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clauses, each with signs of its own."""
    toy.net, toy.prop = tmp_path / "n.onnx", tmp_path / "p.vnnlib"
    onnx.save(distances(), str(toy.net))
    box = "".join(f"(assert (>= X_{i} -1.0))\n(assert (<= X_{i} 1.0))\n" for i in range(2))
    names = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    clauses = "(and (<= Y_0 0.0) (>= Y_1 1.6)) (and (<= Y_1 0.0) (>= Y_0 0.8))"
    toy.prop.write_text(names + box + f"(assert (or {clauses}))")
    clauses_of: list[int] = []
    scopes = Imply.scopes

    def imply(node: Imply, setting: Setting, scope: Scope) -> list[Scope]:
        clauses_of.append(node.clause)
        return scopes(node, setting, scope)

    monkeypatch.setattr(Imply, "scopes", imply)
    toy(RELUS)
    assert sorted(clauses_of) == [0, 1]
    assert toy.verdict(exact=True) == "accepted"


def distances() -> onnx.ModelProto:
    """y_0 = |x_0 - x_1|, at most 3/4 where y_1 is zero, and y_1 = |x_0 - 2 x_1 - 1/2|, at most 3/2 where y_0 is.

    Neurons that mirrored others would be merged; so some are twice as large.
    """
    first = np.array([[1, -1], [-2, 2], [1, -2], [-2, 4]])
    return two_layers(first, np.array([0, 0, -0.5, 1]), np.array([[1, 0.5, 0, 0], [0, 0, 1, 0.5]]))


UNSAFE = {
    "one row": "(assert (<= Y_0 -3))",
    "or": "(assert (or (and (<= Y_0 -3)) (and (>= Y_1 3))))",
    "and": "(assert (<= Y_0 -1)) (assert (>= Y_1 1.5))",
}


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_networks_without_relus(tmp_path: Path, unsafe: str) -> None:
    """y = (x0 + x1, x0 + x1) over [-1, 1]^2."""
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "sums", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "n.onnx")
    names = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    box = "".join(f"(assert (>= X_{i} -1)) (assert (<= X_{i} 1))\n" for i in range(2))
    (tmp_path / "p.vnnlib").write_text(names + box + UNSAFE[unsafe])
    run = Run(tmp_path / "n.onnx", tmp_path / "p.vnnlib", tmp_path / "p")
    run()
    assert run.verdict(exact=True) == "accepted"
