"""Traces: every bounded domain is a line, and several searches never share an id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from search.cases import decide, random_case

from verifier.errors import InputError
from verifier.report.tree import read_trace
from verifier.search.domains import Outcome
from verifier.search.loop import Limits, search
from verifier.search.signs.space import Policy, SignSpace
from verifier.search.trace import tracing


def traced(path: Path, times: int = 1) -> Outcome:
    """A search that is traced; it may run several times into the same file."""
    from search.cases import nobody, root_of

    from verifier.bounding.core.base import Until

    root = root_of(random_case("dense", 5, (1, 1)).problem([1e-3, 1e-3]))
    with tracing(str(path)) as journal:
        for _ in range(times):
            outcome = search(SignSpace(root, Policy(), Until(), nobody, journal), Limits(), Until())
    return outcome


def test_every_domain_is_a_line(tmp_path: Path) -> None:
    outcome = traced(tmp_path / "t.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(lines) == outcome.progress.domains
    assert {line["id"] for line in lines} == set(range(len(lines)))
    parents = {line["id"]: line["parent"] for line in lines}
    assert all(parent is None or parent < number for number, parent in parents.items())
    assert all((line["parent"] is None) == (not line["split"]) for line in lines)
    assert len(read_trace(str(tmp_path / "t.jsonl")).nodes) == len(lines)


def test_searches_that_follow_each_other_have_ids_of_their_own(tmp_path: Path) -> None:
    outcome = traced(tmp_path / "t.jsonl", times=3)
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines} == set(range(3 * outcome.progress.domains))
    first = {line["id"] for line in lines[: outcome.progress.domains]}
    later = [line["parent"] for line in lines[outcome.progress.domains :] if line["parent"] is not None]
    assert not first & set(later)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"), tracing(str(tmp_path / "nowhere" / "t.jsonl")):
        pytest.fail("there is no such folder")


def test_without_a_file_nothing_is_kept() -> None:
    with tracing(None) as journal:
        assert type(journal).__name__ == "Journal"
    assert decide(random_case("dense", 5, (1,)).problem([1e-3])).reason is None
