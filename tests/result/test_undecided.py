"""What is said about a run without a definite answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from verifier.processes import cores
from verifier.result.result import Setting, Statistics
from verifier.result.status import Status
from verifier.result.undecided import PAUSE, Asked, Explanation, Trail, undecided
from verifier.result.verdict import Reason, Verdict

TRAIL = Trail(9, 4, 3, -2.0, 0.75, ((0.0, -2.0), (10.0, -1.0), (20.0, -0.5), (30.0, -0.25)))
SECONDS = {"total": 31.0, "load": 0.5, "attack": 0.1, "root": 0.4, "search": 30.0}


def found(reason: Reason = Reason.TIMEOUT, trail: Trail = TRAIL, done: int = 500, **known: Any) -> Explanation:
    return undecided(reason, SECONDS, trail, (done, 40), Asked(-0.25, **known))


def test_the_numbers_follow_from_what_is_known() -> None:
    why = found(timeout=31.0, threads=cores())
    assert (why.phase, why.phase_seconds) == ("search", 30.0)
    assert why.settled == 0.25
    assert why.estimated_domains == 2000  # a quarter took 500
    assert why.domains_per_second == pytest.approx(500 / 30)
    assert why.trail.rise == pytest.approx(0.25 / 10 * 60)  # over the last half
    assert why.hints == ("--timeout 186, if the tree goes on as it began",)  # four times, and a half more


def test_the_sentences_say_the_same() -> None:
    phase, bounds, tree, hint = found(timeout=31.0, threads=cores()).lines()
    assert phase == "of 31.0 s the phase 'search' took most: 30.0 s"
    assert bounds == (
        "4 of 9 clauses stayed open at the root; the worst, number 3, had the bound -2; the worst bound of an open "
        "domain is -0.25, and rises by 1.5 per minute"
    )
    assert tree == "domains: 500 done, 16.7 per second, 40 open; about 25 % of a tree of some 2e+03 domains"
    assert hint.startswith("try: --timeout 186")


def test_nothing_is_said_of_what_is_not_known() -> None:
    why = undecided(Reason.TIMEOUT, {"total": 0.2, "load": 0.0}, Trail(), (0, 0), Asked(threads=cores()))
    assert why.lines() == [
        "of 0.2 s the phase 'start-up' took most: 0.2 s",
        "try: a longer --timeout: most of it went by before anything was read",
    ]
    assert why.as_dict()["estimated_domains"] is None


@pytest.mark.parametrize("left", [1.0, 0.9999, None])
def test_a_tree_of_which_little_is_settled_has_no_estimate(left: float | None) -> None:
    trail = Trail(1, 1, 0, -1.0, left)
    why = found(trail=trail, timeout=31.0, threads=cores())
    assert why.estimated_domains is None
    assert "too little of the tree is settled" in why.lines()[2]
    assert any("a smaller box" in hint for hint in why.hints)


@pytest.mark.parametrize(
    ("reason", "known", "expected"),
    [
        (Reason.LIMIT, {"config": {"search": {"max_domains": 7}}}, "a larger search.max_domains"),
        (Reason.MEMORY, {}, "--set bounding.memory_mb=N"),
        (Reason.NUMERICS, {}, "rounding errors"),
        (Reason.UNSUPPORTED, {}, "verify show"),
        (Reason.CLAIMED, {}, "the preset auto"),
        (Reason.INTERRUPTED, {"config": {"falsify": {"enabled": False}}}, "falsify.enabled=true"),
        (Reason.TIMEOUT, {"threads": 0}, f"--threads {cores()}"),
    ],
)
def test_every_reason_has_something_to_try(reason: Reason, known: dict[str, Any], expected: str) -> None:
    assert any(expected in hint for hint in found(reason, **known).hints)


def test_bounds_are_remembered_now_and_then_and_the_first_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("verifier.result.undecided.time.monotonic", lambda: now[0])
    trail = Trail(1, 1, 0, -9.0)
    for i in range(2000):
        trail = trail.after(-9.0 + i, 0.5)
        now[0] += PAUSE / 4
    assert len(trail.bounds) <= 513
    assert trail.bounds[0] == (100.0, -9.0)
    assert all(b[0] - a[0] >= PAUSE for a, b in zip(trail.bounds, trail.bounds[1:], strict=False))


def test_only_undecided_results_are_explained_and_the_json_says_it() -> None:
    status = Status(Setting("n.onnx", "p.vnnlib", 5.0), lower_bound=-0.25, trail=TRAIL, threads=1)
    status.statistics, status.open = Statistics(domains=500), 40
    late = status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "late")
    data = json.loads(late.as_json())["undecided"]
    assert (data["worst_clause"], data["open_clauses"], data["root_bound"]) == (3, 4, -2.0)
    assert data["open_domains"] == 40
    assert data["hints"]
    assert json.loads(status.conclude(Verdict.UNSAT).as_json())["undecided"] is None
