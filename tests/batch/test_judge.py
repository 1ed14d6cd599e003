"""What is found wrong with results, and how it is told: lines, table, JUnit."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from verifier.batch.judge import Demands, Finding, Kind, Require, junit
from verifier.batch.records import Record
from verifier.batch.summary import finding_lines, last_line, table_lines
from verifier.result.verdict import Verdict

V = Verdict


def record(name: str, verdict: Verdict, category: str = "family", **more: Any) -> Record:
    return Record(category, "n.onnx", name, "/n.onnx", f"/{name}", verdict, **more)


ALL = [record(verdict.value, verdict, reason="why not") for verdict in Verdict]


def found(demands: Demands, *records: Record) -> list[tuple[Kind, str, bool]]:
    return [(f.kind, f.record.vnnlib, f.fails) for f in demands.judge(records)]


def test_only_errors_are_wrong_by_themselves() -> None:
    assert found(Demands(), *ALL) == [(Kind.ERROR, "error", True)]


@pytest.mark.parametrize("known", [V.SAT, V.UNSAT])
def test_only_the_opposite_verdict_contradicts(known: Verdict) -> None:
    demands = Demands(expected={r.files: known for r in ALL})
    opposite = {V.SAT: "unsat", V.UNSAT: "sat"}[known]
    assert found(demands, *ALL) == [(Kind.CONTRADICTION, opposite, True), (Kind.ERROR, "error", True)]


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [
        (V.UNSAT, V.UNSAT, False),
        (V.UNSAT, V.SAT, True),
        (V.UNSAT, V.TIMEOUT, True),
        (V.SAT, V.UNKNOWN, True),
        (V.SAT, V.UNSAT, True),
        (V.TIMEOUT, V.UNKNOWN, False),
        (V.UNKNOWN, V.SAT, False),
    ],
)
def test_a_definite_verdict_must_not_be_lost(before: Verdict, now: Verdict, lost: bool) -> None:
    for strict in (False, True):
        old = record("p", before, network_sha256="1")
        demands = Demands(baseline={old.names: old}, fail_on_regression=strict)
        assert found(demands, record("p", now, network_sha256="1")) == [(Kind.LOST, "p", strict)] * lost


def test_a_new_network_may_repair_a_violation_but_not_lose_a_property() -> None:
    for before, now, lost in ((V.SAT, V.UNSAT, False), (V.UNSAT, V.SAT, True), (V.SAT, V.TIMEOUT, True)):
        old = record("p", before, network_sha256="1")
        demands = Demands(baseline={old.names: old})
        assert bool(found(demands, record("p", now, network_sha256="2"))) == lost
    assert found(Demands(baseline={old.names: record("p", V.SAT)}), record("p", V.UNSAT, network_sha256="2"))


def test_requirements() -> None:
    met = {kind: [r.verdict for r in ALL if kind.met(r.verdict)] for kind in Require}
    assert met == {Require.UNSAT: [V.UNSAT], Require.DECIDED: [V.SAT, V.UNSAT]}
    assert found(Demands(require=Require.DECIDED), *ALL) == [
        (Kind.ERROR, "error", True),
        (Kind.UNMET, "unknown", True),
        (Kind.UNMET, "timeout", True),
    ]


def test_files_about_other_instances_are_noticed() -> None:
    other = record("other", V.SAT)
    demands = Demands(expected={other.files: V.SAT}, baseline={other.names: other})
    assert len(demands.unused(ALL)) == 2
    assert demands.unused([*ALL, other]) == []


def test_the_table_sums_up_families() -> None:
    records = [
        record("a", V.SAT, "one", run_time=1.0, timeout=10.0),
        record("b", V.TIMEOUT, "one", run_time=10.5, timeout=10.0),
        record("c", V.UNSAT, "a longer name", run_time=2.0),
    ]
    rows = [line.rsplit(maxsplit=8) for line in table_lines(records)]
    assert rows[1:] == [
        ["one", "2", "1", "0", "0", "1", "0", "11.5", "21.0"],
        ["a longer name", "1", "0", "1", "0", "0", "0", "2.0", "2.0"],
        ["all", "3", "1", "1", "0", "1", "0", "13.5", "23.0"],
    ]
    assert len({len(line) for line in table_lines(records)}) == 1
    assert len(table_lines(records[:2])) == 2


def test_contradictions_are_all_listed_and_first() -> None:
    many = [record(f"p{k}", V.SAT) for k in range(50)]
    findings = [Finding(Kind.UNMET, r, "x") for r in many] + [Finding(Kind.CONTRADICTION, r, "y") for r in many]
    lines = finding_lines(findings)
    assert len(lines) == 50 + 20 + 1
    assert lines[0] == "CONTRADICTION: family n.onnx p0: y"
    assert lines[-1] == "NOT MET: and 30 more"
    assert last_line(many, 60, findings) == "50 of 60 instances: 50 sat, 50 contradictions, 50 not as required"


def test_junit_fails_where_the_batch_does() -> None:
    records = [*ALL, record("odd <&\"' \x00\x1b\ud800 name", V.UNSAT, "second")]
    demands = Demands(expected={ALL[0].files: V.UNSAT}, baseline={ALL[2].names: record("unknown", V.SAT)})
    root = ElementTree.fromstring(junit(records, demands.judge(records)).encode())
    tags = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert list(tags.values()) == [
        ["failure", "system-out"],  # sat, but unsat is expected
        ["system-out"],
        ["skipped", "system-out"],  # a regression that is not to fail
        ["skipped", "system-out"],
        ["error", "system-out"],
        ["system-out"],
    ]
    names = ("tests", "failures", "errors", "skipped")
    assert [root.get(name) for name in names] == ["6", "1", "1", "2"]
    assert [[suite.get(name) for name in names] for suite in root] == [["5", "1", "1", "2"], ["1", "0", "0", "0"]]
    assert list(tags)[-1] == "n.onnx odd <&\"' \ufffd\ufffd\ufffd name"


def test_junit_merges_what_is_wrong_with_one_instance() -> None:
    demands = Demands(expected={ALL[0].files: V.UNSAT}, require=Require.UNSAT)
    root = ElementTree.fromstring(junit(ALL[:1], demands.judge(ALL[:1])))
    (failure,) = root.iter("failure")
    assert failure.get("message") == "sat, but unsat is expected; sat, but unsat is required"
    assert root.get("failures") == "1"
