"""The figures of runs, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.lines import folder, line

from verifier.batch import records as batch_records
from verifier.report.records import Run, read_runs
from verifier.report.summary import changed, contradictions, differing, families, of_family, pairs, tally
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


def test_the_batch_counts_the_same(two: tuple[Run, Run]) -> None:
    for run in two:
        lines = (Path(run.source) / "results.jsonl").read_bytes().splitlines()
        assert tally(run.records).par2 == sum(batch_records.parse(text).par2 for text in lines)


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
