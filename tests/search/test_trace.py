"""Traces: every bounded domain is a line, whoever bounded it, and several searches never share an id."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from falsify import instances
from scripted import script
from search.cases import GAP, decide, hard, ignore, narrow, nobody, random_case, root_of, unbounded

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.solver import Certified
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.network.merge import Classes, LayerMerge
from verifier.processes import forkable
from verifier.search.boxes.space import InputOptions
from verifier.search.domains import Outcome, Progress
from verifier.search.journal import Journal
from verifier.search.loop import BranchAndBound, Limits, run
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.sharpen import Sharpener, Sharpening
from verifier.search.signs.space import Policy, SignSpace
from verifier.search.trace import tracing

read_trace = script("draw_tree").read_trace

KEYS = {"id", "parent", "clause", "split", "bound", "closed", "tier", "time"}


def traced(path: Path, times: int = 1) -> Outcome:
    """A search that is traced; it may run several times into the same file."""
    root = root_of(random_case("dense", 5, (1, 1)).problem([1e-3, 1e-3]))
    with tracing(str(path)) as journal:
        for _ in range(times):
            space = SignSpace(root, Policy(), Until(), nobody, Journal(above=journal))
            outcome = run(BranchAndBound(space, Limits()), Until())
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
        assert len(journal._listeners) == 1  # it counts
    assert decide(random_case("dense", 5, (1,)).problem([1e-3])).reason is None


def lines_of(path: Path, search: ProblemSearch, rows: tuple[int, ...] = (3,)) -> tuple[list[dict[str, Any]], Outcome]:
    problem = random_case("dense", 1, rows).problem([GAP] * len(rows)) if rows else hard()
    with tracing(str(path)) as journal:
        whole = replace(search, journal=journal)
        outcome = whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), ignore)
    assert outcome.reason is None
    return [json.loads(line) for line in path.read_text().splitlines()], outcome


SEARCHES: dict[str, Callable[[], ProblemSearch]] = {
    "signs": lambda: ProblemSearch(narrow(4), splitting=Splitting.RELUS),
    "boxes": lambda: ProblemSearch(splitting=Splitting.INPUTS, inputs=InputOptions(batch=4, least_children=2)),
    "finish": lambda: ProblemSearch(splitting=Splitting.INPUTS, inputs=InputOptions(few_kinks=99, patience=0)),
}


@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("which", SEARCHES)
def test_every_process_and_both_splittings_are_traced(
    which: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    lines, outcome = lines_of(tmp_path / "t.jsonl", replace(SEARCHES[which](), cores=cores))
    assert len(lines) == len({line["id"] for line in lines}) == outcome.progress.domains
    seen, parents = set[int](), {line["parent"] for line in lines}
    for line in lines:
        assert line.keys() >= KEYS
        assert line["parent"] is None or line["parent"] in seen
        seen.add(line["id"])
        assert line["closed"] == ("by" in line) == (line["id"] not in parents)
    by = {line.get("by") for line in lines} - {None}
    assert by >= {"signs": {"bound", "leaf"}, "boxes": {"bound"}, "finish": {"finished"}}[which]
    tiers = {name: count for name, count in outcome.progress.counts.tiers.items() if count}
    assert {line["tier"] for line in lines} == set(tiers)
    assert len(read_trace(str(tmp_path / "t.jsonl")).nodes) == len(lines)


@pytest.mark.usefixtures("unchecked")
def test_cuts_and_clipping_give_the_box_of_every_domain(tmp_path: Path) -> None:
    """A box is that of its parent after clipping, with the ends that the cut has moved; children cover it."""
    lines, _ = lines_of(tmp_path / "t.jsonl", SEARCHES["boxes"]())
    case = random_case("dense", 1, (3,))
    boxes: dict[int | None, list[list[float]]] = {None: [list(ends) for ends in zip(*case.boxes[0], strict=True)]}
    volumes: dict[int, float] = {}
    for line in lines:
        box = [ends[:] for ends in boxes[line["parent"]]]
        for group, axis, side, end in line["split"]:
            assert group == 0
            box[axis][0 if side > 0 else 1] = end
        assert all(low <= high for low, high in box)
        if line["parent"] is not None:
            volumes[line["parent"]] = volumes.get(line["parent"], 0.0) + volume(box)
        for axis, low, high in line.get("clipped", []):
            assert box[axis][0] <= low <= high <= box[axis][1]
            box[axis] = [low, high]
        boxes[line["id"]] = box
    assert any("clipped" in line for line in lines)
    for parent, covered in volumes.items():
        assert covered == pytest.approx(volume(boxes[parent]))


def volume(box: list[list[float]]) -> float:
    found = 1.0
    for low, high in box:
        found *= high - low
    return found


@pytest.mark.usefixtures("unchecked")
def test_what_is_superseded_has_a_second_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ready(self: Sharpener, progress: Progress) -> bool:
        return progress.counts.batches >= 3

    monkeypatch.setattr(Sharpener, "ready", ready)
    sharpening = Sharpening(Certified(AlphaCrown(Ascent(10, Steps(0.1, 0.02)))))
    search = ProblemSearch(narrow(4), intermediate=RootBounds(None), sharpening=sharpening, splitting=Splitting.RELUS)
    lines, outcome = lines_of(tmp_path / "t.jsonl", search, rows=())
    again = [line for k, line in enumerate(lines) if line["id"] in {other["id"] for other in lines[:k]}]
    assert again
    assert all(line["closed"] and line["by"] in ("superseded", "crossed") for line in again)
    assert len(lines) - len(again) == outcome.progress.domains
    assert len(read_trace(str(tmp_path / "t.jsonl")).nodes) == outcome.progress.domains


def test_merged_neurons_stand_beside_whole_boxes(tmp_path: Path) -> None:
    gone = LayerMerge(Classes.of_one_each(4), torch.zeros(4, dtype=torch.bool), False)
    problem = replace(random_case("dense", 5, (1,)).problem([1e-3]), merged=(gone,))
    with tracing(str(tmp_path / "t.jsonl")) as journal:
        whole = ProblemSearch(splitting=Splitting.RELUS, journal=journal)
        whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), ignore)
    first, *rest = (json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines())
    assert first["merged"] == 4
    assert not any("merged" in line for line in rest)
