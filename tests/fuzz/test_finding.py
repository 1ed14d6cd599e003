"""The fuzzer finds bugs that are seeded in the verifier, makes them small and saves them; and it judges witnesses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from fuzzing import campaign as campaign_module
from fuzzing.campaign import Campaign
from fuzzing.command import main
from fuzzing.instances import Case, Truth
from fuzzing.journal import Journal
from fuzzing.judge import Answer, contradictions, judge_witness
from fuzzing.minimise import minimised
from fuzzing.pieces import Row
from fuzzing.queries import Clause, Query
from fuzzing.settings import OFF, Setting
from fuzzing.simplex import OracleError
from onnx import TensorProto, helper

from verifier import api, pipeline
from verifier.property.problem import ClauseRows, Problem

ZERO, ONE = Fraction(0), Fraction(1)


def shrunk(*arguments: object) -> Problem:
    """The bug: the unsafe set is a little smaller than it ought to be."""
    problem = ORIGINAL(*arguments)
    rows = tuple(ClauseRows(r.A, r.B, r.c - 0.002 * (1 + r.c.abs())) for r in problem.rows)
    return replace(problem, rows=rows)


ORIGINAL = pipeline.canonicalise


def test_a_shrunken_unsafe_set_is_found_minimised_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "canonicalise", shrunk)
    monkeypatch.setattr(
        campaign_module, "chosen", lambda rng, count, hopeless: [Setting(overrides=(OFF,), seconds=2.0)]
    )
    campaign = Campaign(1, tmp_path, queries=4, patience=15.0)
    journal = campaign.journal()
    for number in range(12):
        campaign.run(journal, number)
        if journal.wrong:
            break
    assert journal.wrong
    assert "WRONG" in journal.summary()
    folder = next((tmp_path / "findings").iterdir())
    assert {p.name for p in folder.iterdir()} >= {"net.onnx", "prop.vnnlib", "config.yaml", "README.md", "original"}
    assert "the truth of net.onnx is sat" in (folder / "README.md").read_text()
    sizes = [_entries(onnx.load(where / "net.onnx")) for where in (folder, folder / "original")]
    assert sizes[0] < sizes[1]
    assert (
        api.verify(folder / "net.onnx", folder / "prop.vnnlib", config=folder / "config.yaml").verdict.value == "unsat"
    )
    monkeypatch.undo()
    assert api.verify(folder / "net.onnx", folder / "prop.vnnlib", threads=1, timeout=10).verdict.value != "unsat"


def _entries(model: onnx.ModelProto) -> tuple[int, int]:
    constants = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer]
    return len(model.graph.node), sum(int(np.count_nonzero(c)) for c in constants)


def line(threshold: Fraction, lower: Fraction = ZERO, upper: Fraction = ONE) -> Case:
    """y = 2 x in a box; unsafe where y <= threshold."""
    weight = onnx.numpy_helper.from_array(np.array([[2.0]], np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    query = Query((Clause((lower,), (upper,), (Row((ONE,), (ZERO,), threshold),)),))
    return Case(model, query, Truth(2 * lower - threshold, (lower,), False), "ordinary", ZERO, True)


def test_witnesses_are_judged() -> None:
    case = line(ONE)
    assert judge_witness(case, np.array([0.5], np.float32), exact=True) == (None, "")
    assert "confirm" in str(judge_witness(case, np.array([0.75], np.float32), exact=True)[0])
    assert "outside" in str(judge_witness(case, np.array([-0.5], np.float32), exact=True)[0])
    tenth = Fraction(1, 10)
    hollow = line(ONE, tenth, tenth)
    assert judge_witness(hollow, np.array([0.1], np.float32), exact=False) == (None, "inexact")
    assert "next to" in str(judge_witness(hollow, np.array([0.1000001], np.float32), exact=False)[0])


def test_answers_that_contradict_each_other_are_wrong() -> None:
    one, two, off = Setting(), Setting(threads=2), Setting(overrides=(OFF,))
    other = Setting("no_cuts")
    assert contradictions([Answer(one, "sat"), Answer(other, "unsat")])
    for alike in (two, off):
        assert contradictions([Answer(one, "sat", note="by rounding"), Answer(alike, "unsat")])
        assert not contradictions([Answer(one, "sat", note="by rounding", seconds=one.seconds), Answer(alike, "unsat")])
    assert not contradictions([Answer(one, "sat", note="inexact"), Answer(other, "unsat")])
    assert not contradictions([Answer(one, "sat"), Answer(two, "unknown"), Answer(other, "sat")])


def test_a_wrong_unsat_and_a_crash_are_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def crash(*arguments: object) -> Problem:
        raise RuntimeError("broken")

    campaign, setting = Campaign(0, tmp_path), Setting(overrides=(OFF,))
    right = campaign.ask_all(line(Fraction(-1, 1000)), [setting])[0]
    assert (right.verdict, right.wrong) == ("unsat", None)
    lied = campaign.ask_all(replace(line(Fraction(-1, 1000)), truth=Truth(-ONE, (ZERO,), False)), [setting])[0]
    assert lied.wrong is not None
    assert lied.wrong.startswith("unsat, but the margin is")
    monkeypatch.setattr(pipeline, "canonicalise", crash)
    crashed = campaign.ask_all(line(ONE), [setting])[0]
    assert (crashed.verdict, crashed.wrong) == ("crash", "RuntimeError: broken")


def test_a_run_that_never_ends_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hang(*arguments: object) -> Problem:
        while True:
            pass

    monkeypatch.setattr(campaign_module, "HANGS", 1)
    monkeypatch.setattr(pipeline, "canonicalise", hang)
    answer = Campaign(0, tmp_path).ask_all(line(ONE), [Setting()])[0]
    assert (answer.verdict, answer.wrong) == ("crash", "no answer 1 s after the start")


def test_an_oracle_that_contradicts_itself_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*arguments: object) -> list[Case]:
        raise OracleError("two minima")

    monkeypatch.setattr(campaign_module, "cases", broken)
    journal = Campaign(0, tmp_path).journal()
    Campaign(0, tmp_path).run(journal, 0)
    assert journal.done[0]["wrong"] == ["the oracle contradicts itself: two minima"]


def test_minimising_keeps_what_fails_and_its_margin() -> None:
    case = line(Fraction(7, 5), Fraction(-1, 3), Fraction(5, 3))
    row = case.query.clauses[0].rows[0]
    clause = replace(case.query.clauses[0], rows=(row, replace(row, bound=row.bound + 9)))
    case = replace(case, query=Query((clause, clause)))
    small = minimised(case, lambda c: c.truth.unsafe)
    assert small.truth.margin == case.truth.margin
    assert len(small.query.clauses) == 1
    assert len(small.query.clauses[0].rows) == 1
    assert small.query.clauses[0].lower == small.query.clauses[0].upper == (ZERO,)


def test_a_journal_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    assert journal.begin(0)
    journal.end(0, {"answers": [], "wrong": [], "seconds": 1.0})
    assert journal.begin(1)
    with path.open("a") as file:
        file.write('{"number": 1, "ans')  # torn
    again = Journal(path)
    assert again.next(0) == 1
    assert again.begin(1)  # a second attempt
    assert not Journal(path).begin(1)  # not a third


def test_the_command_runs_resumes_and_summarises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seed", "5", "--out", str(tmp_path), "--queries", "1", "--settings", "1", "--minutes", "0.01"]
    counts = []
    for _ in range(2):
        assert main("", arguments) == 0
        lines = [json.loads(text) for text in (tmp_path / "seed-5.jsonl").read_text().splitlines()]
        counts.append([line["number"] for line in lines if "number" in line])
        assert f"{len(counts[-1])} instances" in capsys.readouterr().out
    assert counts[0]
    assert counts[1] == list(range(len(counts[1])))
    assert len(counts[1]) > len(counts[0])


def test_the_exit_code_says_that_something_was_wrong(tmp_path: Path) -> None:
    Journal(tmp_path / "seed-3.jsonl").end(0, {"answers": [], "wrong": ["unsat by auto"], "seconds": 1.0})
    assert main("", ["--seed", "3", "--out", str(tmp_path), "--minutes", "0"]) == 1


def test_too_many_undecided_queries_are_a_failure(tmp_path: Path) -> None:
    answers = [
        {"setting": "auto", "verdict": verdict, "note": "", "ordinary": ordinary}
        for verdict, ordinary in [("unsat", True)] * 8 + [("unknown", True)] + [("timeout", False)] * 9
    ]
    journal = Journal(tmp_path / "seed-3.jsonl")
    journal.end(0, {"answers": answers[1:], "wrong": [], "seconds": 1.0})
    assert journal.weak()
    assert not journal.weak(["timeout"])
    assert main("", ["--seed", "3", "--out", str(tmp_path), "--minutes", "0"]) == 1
    journal.end(1, {"answers": answers[:8] * 2, "wrong": [], "seconds": 1.0})
    assert main("", ["--seed", "3", "--out", str(tmp_path), "--minutes", "0"]) == 0


def test_the_script_starts(root: Path) -> None:
    done = subprocess.run([sys.executable, root / "scripts" / "fuzz.py", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "build/fuzz" in done.stdout
