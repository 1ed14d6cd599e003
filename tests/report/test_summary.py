"""Result folders are read with patience; the figures of runs, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report.lines import folder, line

from verifier.batch.summary import table_lines, tally
from verifier.errors import InputError
from verifier.report.summary import Run, changed, contradictions, differing, families, of_family, pairs, read_runs
from verifier.result.verdict import Verdict


@pytest.fixture
def two(tmp_path: Path) -> tuple[Run, Run]:
    first = folder(
        tmp_path / "first",
        line("a", "sat", 1.0),
        line("b", "unsat", 2.0),
        line("c", "timeout", 10.5),
        line("d", "error", 0.25, timeout=None),
        line("e", "unsat", 4.0, category="other"),
    )
    second = folder(
        tmp_path / "second",
        line("b", "sat", 2.5, threads=4),
        line("a", "sat", 1.5),
        line("c", "unsat", 7.0, config={"search": {"batch": 16}}),
        line("f", "unknown", 7.0),
    )
    one, other = read_runs([first, second])
    return one, other


def test_counts_and_times(two: tuple[Run, Run]) -> None:
    found = tally(of_family(two[0], "family"))
    assert {v.value: n for v, n in found.counts.items()} == {
        "sat": 1,
        "unsat": 1,
        "unknown": 0,
        "timeout": 1,
        "error": 1,
    }
    assert (found.instances, found.solved) == (4, 2)
    assert found.seconds == 13.75
    assert found.par2 == 1.0 + 2.0 + 2 * 10.0 + 2 * 0.25  # limits count, not the time spent; without a limit it does


def test_phases_and_the_rest_make_up_the_time(two: tuple[Run, Run]) -> None:
    found = tally(two[0].records)
    assert found.phases["root"] == pytest.approx(5 * 0.3)
    assert found.phases["other"] == pytest.approx(found.seconds - 5 * 0.6)
    assert tally([]).phases["other"] == 0


def test_phases_longer_than_the_time_leave_no_rest(tmp_path: Path) -> None:
    (run,) = read_runs([folder(tmp_path, line("a", "unsat", 0.1))])
    assert tally(run.records).phases["other"] == 0


def test_the_table_of_a_batch_has_the_same_figures(two: tuple[Run, Run]) -> None:
    _, *rows, total = table_lines(two[0].records)
    assert [row.split()[0] for row in rows] == ["family", "other"]
    assert total.split() == ["all", "5", "1", "2", "0", "1", "1", "17.8", "27.5"]
    assert tally(two[0].records).par2 == 27.5


def test_families_are_sorted(two: tuple[Run, Run]) -> None:
    assert families(two) == ["family", "other"]


def test_instances_are_matched_by_name_not_by_order(two: tuple[Run, Run]) -> None:
    assert [(a.vnnlib, b.vnnlib) for a, b in pairs(*two)] == [
        (f"vnnlib/{name}.vnnlib", f"vnnlib/{name}.vnnlib") for name in "abc"
    ]


def test_changes_and_contradictions(two: tuple[Run, Run]) -> None:
    assert [(a.verdict, b.verdict) for a, b in changed(*two)] == [
        (Verdict.UNSAT, Verdict.SAT),
        (Verdict.TIMEOUT, Verdict.UNSAT),
    ]
    assert contradictions(two) == [("family", "onnx/net.onnx", "vnnlib/b.vnnlib")]
    assert contradictions(two[:1]) == []


def test_settings_that_differ(two: tuple[Run, Run]) -> None:
    assert differing(two) == [
        ("search.batch", ["8", "8, 16"]),
        ("threads", ["1", "4, 1"]),
    ]
    assert differing(two[:1]) == []


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
