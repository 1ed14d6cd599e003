"""The way of one instance through the phases, in one process and in several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import networks
import pytest
import torch
from forks import PATIENCE, watched
from torch import nn

import verifier
from verifier.bounding.clauses import ClauseBounds
from verifier.clock import Clock
from verifier.config import load_config
from verifier.falsify.base import Falsifier, Wave
from verifier.falsify.target import Target
from verifier.loading import GivenArrays
from verifier.machine import Machine
from verifier.pipeline import Pipeline, Request, decide, load_problem
from verifier.processes import Send, cores, forkable
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample
from verifier.result.result import Result, Setting
from verifier.result.status import Status
from verifier.result.verdict import Reason, Verdict
from verifier.search.domains import Outcome, Progress

BOX = {"lower": [-1.0, -1.0], "upper": [1.0, 1.0]}


@pytest.fixture(scope="module")
def module() -> nn.Module:
    """y = (|x_0 - x_1|, x_0) over two inputs."""
    return networks.difference_module()


def test_memory_that_runs_out_is_an_answer(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*args: Any, **named: Any) -> None:
        torch.empty(2**60)

    monkeypatch.setattr("verifier.pipeline.Pipeline.bound", greedy)
    result = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.001])])
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.MEMORY)


def test_other_errors_are_not_hidden(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **named: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("verifier.pipeline.Pipeline.bound", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.001])])


FORKS = pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
SAFE, UNSAFE = [([[0.0, 1.0]], [-1.5])], [([[-1.0, 0.0]], [-1.5])]
"""Closed by the bounds of the whole box; found by the attack."""
CLOSE = [([[-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [-1.99, 0.9, 0.9])]
"""Nearly opposite corners, and x_0 in none of them: only branching can tell that this is impossible."""


def unbounded(problem: Problem) -> ClauseBounds:
    return ClauseBounds(torch.full((len(problem.rows),), -torch.inf, dtype=torch.float64), {}, {})


@FORKS
def test_an_attack_that_succeeds_ends_the_bounds(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def slow(pipeline: Pipeline, needless: Callable[[], bool]) -> ClauseBounds:
        end = time.monotonic() + PATIENCE
        while not needless():
            assert time.monotonic() < end
            time.sleep(0.01)
        asked.append(needless())
        return unbounded(pipeline.problem)

    monkeypatch.setattr("verifier.pipeline.Pipeline.bound", slow)
    with watched() as forks:
        result = verifier.verify(module, **BOX, unsafe=UNSAFE, threads=2)
    assert result.verdict is Verdict.SAT
    assert result.counterexample is not None
    assert asked == [True]
    assert len(forks.pairs) == 1


@FORKS
def test_the_bounds_hear_of_an_attack_that_succeeds(module: nn.Module) -> None:
    """The bounds themselves look: what is not begun by then, they leave."""
    heard = []

    def late() -> bool:
        heard.append(True)
        return True

    pipeline = loaded(module, threads=1)
    found = pipeline.bound(late)
    assert heard
    assert not found.closed
    again = pipeline.bound()
    assert again.closed


@FORKS
def test_bounds_that_close_everything_end_the_attack(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(pipeline: Pipeline, send: Send) -> Counterexample | None:
        time.sleep(10 * PATIENCE)
        raise AssertionError("nobody waits so long")

    monkeypatch.setattr("verifier.pipeline.Pipeline.falsify", slow)
    began = time.monotonic()
    with watched() as forks:
        result = verifier.verify(module, **BOX, unsafe=SAFE, threads=2)
    assert result.verdict is Verdict.UNSAT
    assert len(forks.pairs) == 1
    assert time.monotonic() - began < PATIENCE


@FORKS
def test_the_search_does_not_wait_for_the_attack(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.pipeline.Pipeline.falsify", lambda *given: time.sleep(10 * PATIENCE))
    began = time.monotonic()
    with watched():
        assert verifier.verify(module, **BOX, unsafe=CLOSE, threads=2).verdict is Verdict.UNSAT
    assert time.monotonic() - began < PATIENCE


@FORKS
def test_what_the_search_cannot_decide_the_attack_may(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that gives up says nothing about what the attack will find: it is waited for."""
    usual = Pipeline.falsify

    def slow(pipeline: Pipeline, send: Send) -> Counterexample | None:
        time.sleep(0.5)
        return usual(pipeline, send)

    given_up = Outcome(None, Reason.LIMIT, Progress())
    monkeypatch.setattr("verifier.pipeline.Pipeline.falsify", slow)
    monkeypatch.setattr("verifier.pipeline.Pipeline._at_minimisers", lambda *given: [])
    monkeypatch.setattr("verifier.search.problem.ProblemSearch.run", lambda *given: given_up)
    with watched():
        assert verifier.verify(module, **BOX, unsafe=UNSAFE, threads=2).verdict is Verdict.SAT


@pytest.mark.parametrize("unsafe", [SAFE, CLOSE])
def test_on_one_core_bounds_come_after_the_first_wave(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch, unsafe: Any
) -> None:
    """Descents that would take for ever are left out if bounds decide sooner."""
    made: list[int] = []

    def waves(falsifier: Falsifier, target: Target) -> Iterator[Wave]:
        def wave(until: Clock) -> None:
            made.append(1)
            time.sleep(0.5)

        return repeat(wave)

    monkeypatch.setattr("verifier.falsify.base.FirstOf.waves", waves)
    assert verifier.verify(module, **BOX, unsafe=unsafe, threads=1).verdict is Verdict.UNSAT
    assert len(made) == 1


def test_a_large_network_is_attacked_first(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr("verifier.falsify.base.FirstOf.waves", lambda *given: [lambda until: made.append(1)] * 3)
    monkeypatch.setattr("verifier.pipeline.is_large", lambda *given: True)
    usual = Pipeline.bound

    def bound(pipeline: Pipeline, needless: Callable[[], bool]) -> ClauseBounds:
        assert len(made) == 3
        return usual(pipeline, needless)

    monkeypatch.setattr("verifier.pipeline.Pipeline.bound", bound)
    assert verifier.verify(module, **BOX, unsafe=SAFE, threads=1).verdict is Verdict.UNSAT


@FORKS
@pytest.mark.parametrize("error", [ZeroDivisionError("in the attack"), MemoryError("full")])
def test_an_error_in_the_attack_is_no_answer(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(pipeline: Pipeline, send: Send) -> Counterexample | None:
        raise error

    def open_(pipeline: Pipeline, needless: Callable[[], bool]) -> ClauseBounds:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:  # the attack has failed long before that
            needless()
            time.sleep(0.01)
        return unbounded(pipeline.problem)

    monkeypatch.setattr("verifier.pipeline.Pipeline.falsify", broken)
    monkeypatch.setattr("verifier.pipeline.Pipeline.bound", open_)
    with watched():
        if isinstance(error, MemoryError):
            result = verifier.verify(module, **BOX, unsafe=CLOSE, threads=2)
            assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.MEMORY)
        else:
            with pytest.raises(ZeroDivisionError, match="in the attack"):
                verifier.verify(module, **BOX, unsafe=CLOSE, threads=2)


@FORKS
@pytest.mark.parametrize("threads", [2, 3])
def test_several_processes_give_the_same_verdicts(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    monkeypatch.setattr("verifier.bounding.hidden.WORTH_SHARING", -1)
    before = torch.get_num_threads()
    for unsafe, expected in ((SAFE, Verdict.UNSAT), (UNSAFE, Verdict.SAT), (CLOSE, Verdict.UNSAT)):
        for options in ([], ["falsify.enabled=false"]):
            with watched() as forks:
                config = load_config("auto", options)
                result = verifier.verify(module, **BOX, unsafe=unsafe, config=config, threads=threads)
            assert result.verdict is expected
            assert forks.pairs or options
            assert bool(result.statistics.domains) == (unsafe is CLOSE or (unsafe is UNSAFE and bool(options)))
    assert torch.get_num_threads() == before


def status_of() -> Status:
    return Status(Setting(None, None, None, load_config("auto").resolved(), 0), Clock.begin(PATIENCE))


def request_of(module: nn.Module, unsafe: list[Any], threads: int | None = None, trace: str | None = None) -> Request:
    given = GivenArrays(module, BOX["lower"], BOX["upper"], unsafe)
    return Request(given, load_config("auto"), Machine(threads=threads), trace=trace)


def loaded(module: nn.Module, threads: int | None = None, trace: str | None = None) -> Pipeline:
    request, status = request_of(module, SAFE, threads, trace), status_of()
    return Pipeline.of(request, status, *load_problem(request, status), torch.device("cpu"))


def run(module: nn.Module, unsafe: list[Any], **named: Any) -> Result:
    return decide(request_of(module, unsafe, **named), status_of())


@pytest.mark.parametrize("unsafe", [SAFE, UNSAFE, CLOSE])
def test_one_thread_forks_nothing_and_a_trace_changes_nothing(
    module: nn.Module, unsafe: list[Any], tmp_path: Path
) -> None:
    trace = str(tmp_path / "tree.jsonl")
    with watched() as forks:
        one = run(module, unsafe, threads=1)
        traced = run(module, unsafe, threads=1, trace=trace)
    assert not forks.pairs
    assert (one.verdict, one.statistics.domains) == (traced.verdict, traced.statistics.domains)
    assert run(module, unsafe, threads=3, trace=trace).verdict is one.verdict


def test_how_many_processes_there_may_be(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.machine.forkable", lambda: True)
    assert loaded(module).processes == cores()
    assert loaded(module, 1).processes == 1
    assert loaded(module, 7).processes == 7
    assert loaded(module, 7, "tree.jsonl").processes == 7
    here = loaded(module, 7)
    elsewhere = replace(here.problem, lower=here.problem.lower.to("meta"))
    assert replace(here, problem=elsewhere).processes == 1
    monkeypatch.setattr("verifier.machine.forkable", lambda: False)
    assert loaded(module, 7).processes == 1
