"""Runs that are looked at and ended by who looks."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

import verifier
from verifier.clock import Clock, Switch
from verifier.result.result import Result
from verifier.result.status import Snapshot, Status
from verifier.result.verdict import Reason, Verdict
from verifier.result.watching import watched


def test_a_clock_that_is_cancelled_has_run_out_and_so_have_its_parts() -> None:
    switch = Switch()
    clock = Clock.begin().within(1000.0)
    assert not clock.cancelled
    clock = Clock(clock.start, clock.deadline, switch)
    part = clock.within(10.0)
    assert not part.expired()
    assert 0 < part.remaining() <= 10.0
    switch.pull()
    assert part.expired()
    assert part.remaining() < 0
    assert part.within(5.0).expired()


def test_forks_see_that_the_switch_was_pulled() -> None:
    switch = Switch()
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 20.0
        while not switch.pulled and time.monotonic() < end:
            time.sleep(0.01)
        os._exit(0 if switch.pulled else 1)
    switch.pull()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def until_cancelled(status: Status) -> Result:
    """A run that goes on until its clock has run out."""
    with status.phase("search"):
        status.lower_bound = -1.5
        while not status.clock.expired():
            time.sleep(0.01)
    return status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached")


@pytest.mark.parametrize("answer", [False, None, True])
def test_a_callback_sees_the_run_and_ends_it_by_false(answer: bool | None) -> None:
    seen: list[Snapshot] = []
    status = Status(clock=Clock.begin(1.0 if answer is not False else 60.0))

    def look(snapshot: Snapshot) -> bool | None:
        seen.append(snapshot)
        return answer

    with watched(status, look, None) as ended:
        result = ended(until_cancelled(status))
    assert {s.phase for s in seen} == {"search"}
    assert seen[-1].lower_bound == -1.5
    cancelled = (Verdict.UNKNOWN, Reason.INTERRUPTED, 1)
    assert (result.verdict, result.reason, min(len(seen), 2)) == (
        cancelled if answer is False else (Verdict.TIMEOUT, Reason.TIMEOUT, 2)
    )
    assert result.lower_bound == -1.5


def test_an_event_ends_it_too() -> None:
    status, cancel = Status(clock=Clock.begin(60.0)), threading.Event()
    threading.Timer(0.1, cancel.set).start()
    with watched(status, None, cancel) as ended:
        result = ended(until_cancelled(status))
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.INTERRUPTED)


def test_an_error_of_the_callback_is_raised_again() -> None:
    status = Status(clock=Clock.begin(60.0))

    def look(snapshot: Snapshot) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), watched(status, look, None) as ended:
        ended(until_cancelled(status))


def test_a_decided_run_stays_decided() -> None:
    status, cancel = Status(clock=Clock.begin(60.0)), threading.Event()
    cancel.set()
    with watched(status, None, cancel) as ended:
        until_cancelled(status)
        assert ended(status.conclude(Verdict.UNSAT)).verdict is Verdict.UNSAT


@pytest.mark.parametrize("wrong", [{"progress": 3}, {"cancel": True}])
def test_what_cannot_be_called_or_asked_is_refused(root: Path, wrong: dict[str, object]) -> None:
    names = root / "properties/onnx/toy.onnx", root / "properties/vnnlib/toy_positive.vnnlib"
    with pytest.raises(verifier.InputError):
        verifier.verify(*names, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_search_is_ended_from_another_thread(root: Path, threads: int) -> None:
    """On one core, and with processes that have to hear of it."""
    names = root / "properties/onnx/digits_fc.onnx", root / "properties/vnnlib/fc_branch_1438.vnnlib"
    cancel, searched = threading.Event(), []

    def look(snapshot: Snapshot) -> None:
        if snapshot.phase == "search":
            searched.append(snapshot)
            cancel.set()

    slow = ["search.tiers=[{method: big_m, iterations: 2000}]", "search.splitting=relus", "search.sharpen.after=null"]
    from verifier.config import load_config

    config = load_config("auto", [*slow, "falsify.enabled=false"])
    result = verifier.verify(*names, config=config, threads=threads, progress=look, cancel=cancel, timeout=300)
    assert searched
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.INTERRUPTED)
    assert result.time["total"] < 200
