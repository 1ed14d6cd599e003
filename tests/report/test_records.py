"""Result folders are read with patience, and nothing is read into them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.lines import folder, line

from verifier.errors import InputError
from verifier.report.records import Witness, parse, read_runs
from verifier.result.result import Setting
from verifier.result.status import Status
from verifier.result.verdict import Reason, Verdict

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_a_whole_line() -> None:
    record = parse(json.dumps(line("p", "sat", 2.5)))
    assert record is not None
    assert record.key == ("family", "onnx/net.onnx", "vnnlib/p.vnnlib")
    assert record.verdict is Verdict.SAT
    assert (record.seconds, record.timeout, record.domains, record.lower_bound) == (2.5, 10.0, 7, -0.5)
    assert record.phases == {"load": 0.1, "attack": 0.2, "root": 0.3, "search": 0.0}
    assert record.witness == Witness((0.5, -1.0), (2.0,))
    assert record.command == "verify /there/net.onnx /there/p.vnnlib --timeout 10"
    assert record.setting.versions == {"strata-verifier": "0.1.0"}


def test_points_at_which_arithmetics_differ_are_told_apart() -> None:
    point = {"x": [0.5], "y": [2.0], "exact": False}
    real, run = (parse(json.dumps(line("p", "sat", counterexample=point, arithmetic=a))) for a in ("real", "run"))
    proved = parse(json.dumps(line("p", "unsat", arithmetic="real", rounding_witness=point)))
    assert real is not None
    assert run is not None
    assert proved is not None
    assert (real.witness, real.rounding_witness) == (Witness((0.5,), (2.0,), False, True), None)
    assert run.witness == Witness((0.5,), (2.0,), False, False)
    assert (proved.witness, proved.rounding_witness) == (None, run.witness)


def test_what_a_single_run_writes_is_a_line_too() -> None:
    status = Status(Setting("a b/family/onnx/n.onnx", "q.vnnlib", 5.0, {"x": 1}, 3))
    record = parse(status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached").as_json())
    assert record is not None
    assert (record.family, record.onnx, record.vnnlib) == ("family", "a b/family/onnx/n.onnx", "q.vnnlib")
    assert shlex.split(record.command) == ["verify", "a b/family/onnx/n.onnx", "q.vnnlib", "--timeout", "5"]
    assert record.reason == "the time limit was reached"
    assert record.setting.seed == 3


def test_a_line_with_a_verdict_only() -> None:
    record = parse('{"verdict": "unknown"}')
    assert record is not None
    assert (record.seconds, record.timeout, record.domains, record.command) == (0.0, None, None, "")


@pytest.mark.parametrize("text", ["", "7", "[]", "{}", '{"verdict": "maybe"}', '{"verdict": []}', "[" * 100_000])
def test_what_is_no_result(text: str) -> None:
    assert parse(text) is None


@given(st.dictionaries(st.sampled_from(sorted(line())), JSON), st.sampled_from(["sat", "timeout"]))
def test_any_value_of_any_key_is_survived(keys: dict[str, Any], verdict: str) -> None:
    record = parse(json.dumps(line("p", verdict) | keys | {"verdict": verdict}))
    assert record is not None
    assert record.seconds >= 0


@given(st.integers(0, len(json.dumps(line("p", "sat"))) - 1))
def test_a_torn_line_is_no_result(length: int) -> None:
    assert parse(json.dumps(line("p", "sat"))[:length].encode()) is None


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    source = folder(tmp_path / "a", line("p"), "nonsense\n", "\n", line("q"), json.dumps(line("r"))[:-20])
    (run,) = read_runs([source])
    assert [record.vnnlib for record in run.records] == ["vnnlib/p.vnnlib", "vnnlib/q.vnnlib"]
    assert run.skipped == 2


def test_bytes_that_are_no_text_cost_their_line_only(tmp_path: Path) -> None:
    source = folder(tmp_path / "a", line("p"))
    with open(f"{source}/results.jsonl", "ab") as stream:
        stream.write(b'\xff\xfe{"verdict": "sat"\n')
    (run,) = read_runs([source])
    assert (len(run.records), run.skipped) == (1, 1)


def test_the_last_line_about_an_instance_counts(tmp_path: Path) -> None:
    (run,) = read_runs([folder(tmp_path, line("p", "timeout"), line("q"), line("p", "unsat"))])
    assert [(r.vnnlib, r.verdict.value) for r in run.records] == [
        ("vnnlib/p.vnnlib", "unsat"),
        ("vnnlib/q.vnnlib", "unsat"),
    ]


def test_a_file_is_as_good_as_its_folder(tmp_path: Path) -> None:
    source = folder(tmp_path / "night", line())
    assert read_runs([source])[0].records == read_runs([f"{source}/results.jsonl"])[0].records
    assert read_runs([f"{source}/results.jsonl"])[0].name == "night"


def test_runs_have_different_names(tmp_path: Path) -> None:
    sources = [folder(tmp_path / name, line()) for name in ("a/out", "b/out", "c")]
    assert [run.name for run in read_runs(sources)] == ["a/out", "b/out", "c"]
    assert [run.name for run in read_runs([sources[2], sources[2]])] == ["c (1)", "c (2)"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no results.jsonl in this folder"),
        ("", "the file holds no result$"),
        ("\n \n", "the file holds no result$"),
        ('{"verdict": "s', "the file holds no result that can be read"),
    ],
)
def test_folders_without_results(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "results.jsonl").write_text(content)
    with pytest.raises(InputError, match=message):
        read_runs([str(tmp_path)])


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_runs([str(tmp_path / "nowhere")])
