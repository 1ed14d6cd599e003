"""Findings for the pages of CI systems, and instances of a baseline that have vanished."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verifier.batch.annotations import MEANINGS, github_lines, sarif
from verifier.batch.judge import Demands, Finding, Kind, junit
from verifier.result.verdict import Verdict


def record(vnnlib: str, folder: str = "", verdict: Verdict = Verdict.UNSAT) -> Any:
    """As much of a record as findings are told by."""
    names = ("family", "a.onnx", vnnlib)
    return SimpleNamespace(
        names=names,
        category="family",
        onnx="a.onnx",
        vnnlib=vnnlib,
        files=(f"{folder}a.onnx", f"{folder}{vnnlib}"),
        verdict=verdict,
        run_time=1.0,
        why="",
    )


def test_a_finding_is_an_annotation_at_the_property(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside = Finding(Kind.UNMET, record("p,1.vnnlib", f"{tmp_path}/nets/"), "100 % wrong\nor not")
    outside = Finding(Kind.LOST, record("q.vnnlib", "/elsewhere/"), "gone", fails=False)
    one, two = github_lines([inside, outside])
    assert one == (
        "::error file=nets/p%2C1.vnnlib,line=1,title=verify%3A NOT MET::"
        "family a.onnx p,1.vnnlib: 100 %25 wrong%0Aor not"
    )
    assert two.startswith("::warning file=/elsewhere/q.vnnlib,line=1,title=verify%3A REGRESSION::")


def test_sarif_has_a_rule_for_every_kind_and_a_result_for_every_finding(tmp_path: Path) -> None:
    assert set(MEANINGS) == set(Kind)
    findings = [Finding(kind, record("p.vnnlib", "nets/"), "text", fails=kind is Kind.ERROR) for kind in Kind]
    data = json.loads(sarif(findings))
    (run,) = data["runs"]
    assert (data["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "strata-verifier")
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [result["ruleId"] for result in run["results"]] == rules
    assert {result["level"] for result in run["results"] if result["ruleId"] == "ERROR"} == {"error"}
    assert {result["level"] for result in run["results"] if result["ruleId"] != "ERROR"} == {"warning"}
    places = {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]}
    assert places == {"nets/p.vnnlib"}


def test_a_vanished_instance_is_found_in_families_that_are_run() -> None:
    known = [record("kept"), record("gone"), record("open", verdict=Verdict.TIMEOUT)]
    other = record("far")
    other.names, other.category = ("other", "a.onnx", "far"), "other"
    baseline = {r.names: r for r in [*known, other]}
    for strict in (False, True):
        found = Demands(baseline=baseline, fail_on_regression=strict).vanished([("family", "a.onnx", "kept")])
        assert [(f.kind, f.record.vnnlib, f.fails) for f in found] == [(Kind.VANISHED, "gone", strict)]
        text = junit([known[0]], found)
        assert (re.search(r'tests="(\d)" failures="(\d)"', text) or [])[0] == (
            'tests="2" failures="1"' if strict else 'tests="1" failures="0"'
        )
    assert Demands().vanished([("family", "a.onnx", "kept")]) == []
