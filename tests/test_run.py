"""The entry points for Python: files and modules take the same path."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forks import PATIENCE, watched
from torch import nn

import verifier
from verifier.bounding.clauses import ClauseBounds
from verifier.clock import Clock
from verifier.config import load_config
from verifier.errors import InputError
from verifier.falsify.arena import Arena
from verifier.processes import cores, forkable
from verifier.property.canonical import Problem
from verifier.result.counterexample import Counterexample
from verifier.result.ledger import Ledger
from verifier.result.result import Result, Setting
from verifier.result.verdict import Reason, Verdict
from verifier.run import Task, decide, from_arrays, load_problem, processes


@pytest.fixture(scope="module")
def module() -> nn.Module:
    """y = (|x_0 - x_1|, x_0) over two inputs."""
    first, last = nn.Linear(2, 3), nn.Linear(3, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 0.0]]))
        first.bias.copy_(torch.tensor([0.0, 0.0, 4.0]))
        last.weight.copy_(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
        last.bias.copy_(torch.tensor([0.0, -4.0]))
    return nn.Sequential(first, nn.ReLU(), last)


BOX = {"lower": [-1.0, -1.0], "upper": [1.0, 1.0]}


def test_a_module_is_proved(module: nn.Module) -> None:
    result = verifier.verify(module, **BOX, unsafe=[([[0.0, 1.0]], [-1.5]), ([[0.0, -1.0]], [-1.5])])
    assert result.verdict is Verdict.UNSAT
    assert result.lower_bound is not None
    assert 0 < result.lower_bound <= 0.5
    assert result.setting.network is None


def test_a_module_is_refuted_and_the_witness_is_real(module: nn.Module) -> None:
    result = verifier.verify(module, **BOX, unsafe=[([[-1.0, 0.0], [0.0, 1.0]], [-1.5, -0.5])])
    assert result.verdict is Verdict.SAT
    witness = result.counterexample
    assert witness is not None
    assert (abs(witness.x) <= 1).all()
    y = module(torch.from_numpy(witness.x)[None])[0].detach().numpy()
    np.testing.assert_allclose(y, witness.y, rtol=1e-6, atol=1e-6)
    assert y[0] >= 1.5
    assert y[1] <= -0.5


def test_tensors_arrays_and_lists_are_the_same(module: nn.Module) -> None:
    low, high = torch.tensor(BOX["lower"], requires_grad=True), np.array(BOX["upper"])
    result = verifier.verify(module, lower=low, upper=high, unsafe=[(torch.tensor([0.0, 1.0]), -1.5)])
    assert result.verdict is Verdict.UNSAT


def test_branching_decides_what_the_root_leaves_open(module: nn.Module) -> None:
    # |x_0 - x_1| + x_0 >= -1, with equality at (-1, -1): just below it nothing is unsafe, at -0.9 something is.
    off = load_config("auto", ["falsify.enabled=false"])
    below = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.001])], config=off)
    assert below.verdict is Verdict.UNSAT
    above = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-0.9])], config=off)
    assert above.verdict is Verdict.SAT
    assert above.setting.config["falsify"]["enabled"] is False
    touching = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.0])])
    assert touching.verdict in (Verdict.SAT, Verdict.UNKNOWN)


def test_an_empty_box_holds(module: nn.Module) -> None:
    assert verifier.verify(module, lower=[1, 0], upper=[0, 1], unsafe=[([[1.0, 0.0]], [9.0])]).verdict is Verdict.UNSAT


def test_no_unsafe_output_holds(module: nn.Module) -> None:
    assert verifier.verify(module, **BOX, unsafe=[]).verdict is Verdict.UNSAT


def test_a_limit_of_zero_seconds(module: nn.Module) -> None:
    result = verifier.verify(module, **BOX, unsafe=[([[1.0, 0.0]], [1.0])], timeout=0.0)
    assert (result.verdict, result.reason) == (Verdict.TIMEOUT, Reason.TIMEOUT)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"lower": [0.0, 0.0]},
        {**BOX},
        {**BOX, "prop": "p.vnnlib", "unsafe": [([[1.0, 0.0]], [0.0])]},
        {"prop": "p.vnnlib"},
        {**BOX, "unsafe": [([[1.0]], [0.0])]},
        {**BOX, "unsafe": [([[1.0, 0.0]], [0.0, 1.0])]},
        {**BOX, "unsafe": [([["a", "b"]], [0.0])]},
        {"lower": [0.0, 0.0], "upper": [1.0], "unsafe": []},
        {"lower": [0.0, np.nan], "upper": [1.0, 1.0], "unsafe": []},
        {"lower": [0.0, 0.0], "upper": [1.0, np.inf], "unsafe": []},
        {"lower": [], "upper": [], "unsafe": []},
        {**BOX, "unsafe": [], "device": "cuda:77"},
        {**BOX, "unsafe": [], "config": "nothing"},
    ],
)
def test_arguments_that_make_no_sense(module: nn.Module, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        verifier.verify(module, **arguments)


def test_bounds_of_every_group_contain_what_happens(module: nn.Module) -> None:
    for method in ("interval", "crown", "wong_kolter", "best", "paper"):
        found = verifier.bounds(module, **BOX, method=method)
        assert [tuple(low.shape) for low, _ in found] == [(1, 3), (1, 2)]
        x = torch.rand(1000, 2) * 2 - 1
        values = [module[0](x), module(x)]
        for (low, high), value in zip(found, values, strict=True):
            assert low.dtype is torch.float64
            assert (low <= value + 1e-6).all()
            assert (value - 1e-6 <= high).all()
    assert found[0][0].tolist()[0] == pytest.approx([-2.0, -2.0, 3.0])
    assert found[0][1].tolist()[0] == pytest.approx([2.0, 2.0, 5.0])


def test_an_unknown_method_is_refused(module: nn.Module) -> None:
    with pytest.raises(InputError, match="wong_kolter"):
        verifier.bounds(module, **BOX, method="planet")


def test_threads_are_given_back(module: nn.Module) -> None:
    before = torch.get_num_threads()
    result = verifier.verify(module, **BOX, unsafe=[], threads=before + 1)
    assert result.threads == before + 1
    assert torch.get_num_threads() == before


def test_memory_that_runs_out_is_an_answer(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*args: Any, **named: Any) -> None:
        torch.empty(2**60)

    monkeypatch.setattr("verifier.run._bound", greedy)
    result = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.001])])
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.MEMORY)


def test_other_errors_are_not_hidden(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **named: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("verifier.run._bound", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.001])])


# ---------------------------------------------------------------- several processes

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

    def slow(task: Task, problem: Problem, ledger: Ledger, needless: Callable[[], bool]) -> ClauseBounds:
        end = time.monotonic() + PATIENCE
        while not needless():
            assert time.monotonic() < end
            time.sleep(0.01)
        asked.append(needless())
        return unbounded(problem)

    monkeypatch.setattr("verifier.run._bound", slow)
    with watched() as forks:
        result = verifier.verify(module, **BOX, unsafe=UNSAFE, threads=2)
    assert result.verdict is Verdict.SAT
    assert result.counterexample is not None
    assert asked == [True]
    assert len(forks.pairs) == 1


@FORKS
def test_the_bounds_hear_of_an_attack_that_succeeds(module: nn.Module) -> None:
    """`_bound` itself looks: what it has not begun by then, it leaves."""
    heard = []

    def late() -> bool:
        heard.append(True)
        return True

    loaded = load_problem(Task(from_arrays(module, *BOX.values(), SAFE), load_config("auto")), ledger_of())[0]
    found = verifier.run._bound(Task(lambda: None, load_config("auto"), threads=1), loaded, ledger_of(), late)  # type: ignore[attr-defined]
    assert heard
    assert not found.closed
    again = verifier.run._bound(Task(lambda: None, load_config("auto"), threads=1), loaded, ledger_of())  # type: ignore[attr-defined]
    assert again.closed


@FORKS
def test_bounds_that_close_everything_end_the_attack(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(task: Task, arena: Arena, clock: Clock) -> Counterexample | None:
        time.sleep(10 * PATIENCE)
        raise AssertionError("nobody waits so long")

    monkeypatch.setattr("verifier.run._falsify", slow)
    began = time.monotonic()
    with watched() as forks:
        result = verifier.verify(module, **BOX, unsafe=SAFE, threads=2)
    assert result.verdict is Verdict.UNSAT
    assert len(forks.pairs) == 1
    assert time.monotonic() - began < PATIENCE


@FORKS
def test_an_attack_that_is_not_done_is_waited_for(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that leave something open say nothing about what it will find."""
    usual = verifier.run._falsify  # type: ignore[attr-defined]

    def slow(task: Task, arena: Arena, clock: Clock) -> Counterexample | None:
        time.sleep(0.3)
        return usual(task, arena, clock)

    monkeypatch.setattr("verifier.run._falsify", slow)
    monkeypatch.setattr("verifier.run._refine", lambda *given: pytest.fail("there is a witness already"))
    with watched():
        assert verifier.verify(module, **BOX, unsafe=UNSAFE, threads=2).verdict is Verdict.SAT


@FORKS
@pytest.mark.parametrize("error", [ZeroDivisionError("in the attack"), MemoryError("full")])
def test_an_error_in_the_attack_is_no_answer(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(task: Task, arena: Arena, clock: Clock) -> Counterexample | None:
        raise error

    def open_(task: Task, problem: Problem, ledger: Ledger, needless: Callable[[], bool]) -> ClauseBounds:
        return unbounded(problem)

    monkeypatch.setattr("verifier.run._falsify", broken)
    monkeypatch.setattr("verifier.run._bound", open_)
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
    monkeypatch.setattr("verifier.search.engine.WORTHWHILE", 1)
    monkeypatch.setattr("verifier.bounding.intermediate.WORTH_A_FORK", -1)
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


def ledger_of() -> Ledger:
    return Ledger(Setting(None, None, None, load_config("auto").resolved(), 0), Clock.begin(PATIENCE))


def run(module: nn.Module, unsafe: list[Any], **named: Any) -> Result:
    load = from_arrays(module, BOX["lower"], BOX["upper"], unsafe)
    return decide(Task(load, load_config("auto"), **named), ledger_of())


@pytest.mark.parametrize("unsafe", [SAFE, UNSAFE, CLOSE])
def test_one_thread_or_a_trace_forks_nothing(module: nn.Module, unsafe: list[Any], tmp_path: Path) -> None:
    with watched() as forks:
        one = run(module, unsafe, threads=1)
        traced = run(module, unsafe, threads=3, trace=str(tmp_path / "tree.jsonl"))
    assert one.verdict is traced.verdict
    assert not forks.pairs


def test_how_many_processes_there_may_be(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(from_arrays(module, BOX["lower"], BOX["upper"], SAFE), load_config("auto"))
    problem = load_problem(task, ledger_of())[0]
    monkeypatch.setattr("verifier.run.forkable", lambda: True)
    assert processes(task, problem) == cores()
    assert processes(replace(task, threads=1), problem) == 1
    assert processes(replace(task, threads=7), problem) == 7
    assert processes(replace(task, threads=7, trace="tree.jsonl"), problem) == 1
    elsewhere = replace(problem, lower=problem.lower.to("meta"))
    assert processes(replace(task, threads=7), elsewhere) == 1
    monkeypatch.setattr("verifier.run.forkable", lambda: False)
    assert processes(replace(task, threads=7), problem) == 1


def test_the_test_family(benchmarks: Path) -> None:
    folder = benchmarks / "test"
    for network, prop, expected in (("test_sat", "test_prop", "sat"), ("test_tiny", "test_tiny", "unsat")):
        result = verifier.verify(folder / f"onnx/{network}.onnx", folder / f"vnnlib/{prop}.vnnlib", timeout=60)
        assert result.verdict.value == expected


def test_an_unknown_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = verifier.nothing
