"""The entry points for Python: files and modules take the same path."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from forks import PATIENCE, watched
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import verifier
from verifier.bounding.clauses import ClauseBounds
from verifier.clock import Clock
from verifier.config import Config, load_config
from verifier.defaults import default_dtype
from verifier.errors import InputError
from verifier.falsify.target import Target
from verifier.loading import from_arrays
from verifier.processes import cores, forkable
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample
from verifier.result.ledger import Ledger
from verifier.result.result import Result, Setting
from verifier.result.verdict import Reason, Verdict
from verifier.run import Task, decide, load_problem, processes


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


def test_a_limit_of_zero_seconds(module: nn.Module) -> None:
    result = verifier.verify(module, **BOX, unsafe=[([[1.0, 0.0]], [1.0])], timeout=0.0)
    assert (result.verdict, result.reason) == (Verdict.TIMEOUT, Reason.TIMEOUT)


ROW = [([[1.0, 0.0]], [-9.0])]
"""Unsafe outputs that cannot be: whoever does not look at the other arguments answers `unsat`."""


class Hostile:
    """Whatever is asked of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __array__(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError("no array")


WRONG: list[dict[str, Any]] = [
    {"lower": [1, 0], "upper": [0, 1]},  # swapped in one entry
    {"lower": [1.0, 1.0], "upper": [-1.0, -1.0]},
    {"lower": [0.0, 0.0], "upper": [1.0]},
    {"lower": [0.0], "upper": [1.0]},
    {"lower": 0.0, "upper": 1.0},
    {"lower": [0.0, 0.0, 0.0], "upper": [1.0, 1.0, 1.0]},
    {"lower": [[0.0], [0.0]], "upper": [[1.0], [1.0]]},
    {"lower": [0.0, np.nan]},
    {"upper": [1.0, np.inf]},
    {"upper": None},
    {"lower": [], "upper": []},
    {"lower": "ab"},
    {"lower": ["0", "0"]},
    {"lower": [[0.0], [0.0, 1.0]]},
    {"lower": [0.0, None]},
    {"lower": np.zeros(2) + 0j},
    {"lower": np.ma.masked_array([0.0, 0.0], [True, False])},
    {"lower": np.array([2**53 + 1, 0]), "upper": np.array([2**60, 1])},
    {"upper": torch.ones(2, device="meta")},
    {"upper": torch.ones(2, dtype=torch.complex64)},
    {"lower": Hostile()},
    {"unsafe": []},
    {"unsafe": ()},
    {"unsafe": None},
    {"unsafe": 3},
    {"unsafe": "Y_0 <= 1"},
    {"unsafe": {0: ROW[0]}},
    {"unsafe": ROW[0]},  # without a list around it
    {"unsafe": (np.eye(2), np.zeros(2))},
    {"unsafe": [([[1.0, 0.0]], [0.0], [0.0])]},
    {"unsafe": [None]},
    {"unsafe": [(None, None)]},
    {"unsafe": [([[1.0]], [0.0])]},
    {"unsafe": [([[1.0, 0.0]], [0.0, 1.0])]},
    {"unsafe": [([[1.0, 0.0]], [[0.0]])]},
    {"unsafe": [([[[1.0, 0.0]]], [0.0])]},
    {"unsafe": [(1.0, 0.0)]},
    {"unsafe": [(np.zeros((0, 2)), [])]},
    {"unsafe": [([["a", "b"]], [0.0])]},
    {"unsafe": [([[np.nan, 0.0]], [0.0])]},
    {"prop": "p.vnnlib"},
    {"prop": 5},
    *({"device": d} for d in ("tpu", "cuda:77", "cuda:99999999999", "", None, 0, "meta", torch.device("meta"))),
    *({"seed": s} for s in (-1, 2**64, 0.5, "0", None, Hostile())),
    *({"timeout": t} for t in (-1, "60", np.nan, -np.inf, 1j, [1], True, -(10**400), Hostile())),
    *({"threads": n} for n in (0, -1, 1.5, "2", True, 10**30, Hostile())),
    *({"config": c} for c in ("nothing", None, 5, {}, b"auto", "a\0b", "", ["auto"], verifier.verify)),
    {"config": Config(search=5)},  # type: ignore[arg-type]
    {"config": Config(search=Hostile())},  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: " ".join(f"{k}={v!s:.30}" for k, v in wrong.items()))
def test_arguments_that_make_no_sense(module: nn.Module, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        verifier.verify(module, **{**BOX, "unsafe": ROW, **wrong})
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        verifier.lower_bounds(module, method="interval", **{**BOX, "unsafe": ROW, **wrong})
    if wrong.keys() <= {"lower", "upper", "prop"}:
        with pytest.raises(InputError):
            verifier.bounds(module, **{**BOX, **wrong})


@pytest.mark.parametrize("network", [None, 5, b"net.onnx", "", "a\0b", "\ud800", "none.onnx", nn.Linear, [nn.ReLU()]])
def test_networks_that_are_none(network: Any) -> None:
    for call in (verifier.verify, verifier.lower_bounds):
        with pytest.raises(InputError):
            call(network, **BOX, unsafe=ROW)
        with pytest.raises(InputError):
            call(network, "p.vnnlib")
    with pytest.raises(InputError):
        verifier.bounds(network, **BOX)


def test_an_exported_program_is_refused(module: nn.Module) -> None:
    exported = torch.export.export(module, (torch.zeros(1, 2),))
    with pytest.raises(InputError, match=r"an ONNX file or a torch module is expected, not .*ExportedProgram"):
        verifier.verify(exported, **BOX, unsafe=ROW)  # type: ignore[arg-type]


def test_incomplete_arguments(module: nn.Module) -> None:
    for arguments in ({}, {"lower": [0.0, 0.0]}, BOX, {"unsafe": ROW}):
        with pytest.raises(InputError, match="lower, upper and unsafe"):
            verifier.verify(module, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lower and upper"):
        verifier.bounds(module, lower=[0.0, 0.0])
    with pytest.raises(InputError, match="not both"):
        verifier.verify("net.onnx", "p.vnnlib", unsafe=[])


@pytest.mark.parametrize(
    "meaningful",
    [
        {"lower": np.array([False, False]), "upper": np.array([True, True])},
        {"lower": (0, 0), "upper": (1, 1)},
        {"lower": np.zeros(2, np.float16), "upper": np.ones(2, np.longdouble)},
        {"lower": torch.zeros(2, dtype=torch.bfloat16), "upper": torch.ones(2).to_sparse()},
        {"lower": [np.float32(0), 0], "upper": torch.ones(2, dtype=torch.uint8)},
        {"unsafe": (([1.0, 0.0], -9.0),)},
        {"unsafe": [[np.array([[1, 0]]), torch.tensor([-9])]]},
        {"timeout": np.float32(60), "seed": np.int64(3), "threads": np.uint8(1)},
        {"timeout": np.inf},
        {"timeout": 10**400},
        {"device": torch.device("cpu")},
        {"config": Config()},
        {"config": Path("auto")},
    ],
    ids=str,
)
def test_arguments_in_other_words(module: nn.Module, meaningful: dict[str, Any]) -> None:
    result = verifier.verify(module, **{"lower": [0, 0], "upper": [1, 1], "unsafe": ROW, **meaningful})
    assert result.verdict is Verdict.UNSAT
    limit, seed = meaningful.get("timeout"), meaningful.get("seed", 0)
    assert result.setting.timeout == (60.0 if limit == 60 else None)
    assert (type(result.setting.seed), result.setting.seed) == (int, seed)
    assert result.as_json()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file whose input has the shape [1, 3, 2, 2] and whose output is its first entry plus ten times its second."""
    path = tmp_path_factory.mktemp("image") / "image.onnx"
    weight = np.zeros((12, 1), np.float32)
    weight[:2, 0] = 1.0, 10.0
    nodes = [helper.make_node("Flatten", ["X"], ["F"]), helper.make_node("MatMul", ["F", "W"], ["Y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "image",
        [info("X", TensorProto.FLOAT, [1, 3, 2, 2])],
        [info("Y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(weight, "W")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return str(path)


@pytest.mark.parametrize("shape", [(1, 3, 2, 2), (3, 2, 2), (1, 1, 3, 2, 2), (12,), (1, 12)])
def test_a_box_in_the_shape_of_the_network(image: str, shape: tuple[int, ...]) -> None:
    x = np.arange(12.0).reshape(shape)
    (low, high) = verifier.bounds(image, lower=x, upper=x)[-1]
    assert (low.item(), high.item()) == (pytest.approx(10.0), pytest.approx(10.0))
    result = verifier.verify(Path(image), lower=x, upper=x, unsafe=[([[1.0]], [9.0])])
    assert result.verdict is Verdict.UNSAT


@pytest.mark.parametrize("shape", [(2, 2, 3), (1, 2, 2, 3), (3, 4), (2, 6), (12, 1), (3, 2, 2, 1), (3, 1, 2, 2), (11,)])
def test_a_box_in_another_shape_is_refused(image: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    for call in (verifier.verify, verifier.lower_bounds):
        with pytest.raises(InputError, match=r"shape \(1, 3, 2, 2\), or flat of shape \(12,\), not"):
            call(image, lower=x, upper=x, unsafe=[([[1.0]], [-9.0])])
    with pytest.raises(InputError, match=r"\(1, 3, 2, 2\)"):
        verifier.bounds(image, lower=x, upper=x)


def test_a_module_takes_samples_with_and_without_a_batch_axis() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    x = torch.rand(3, 3, 3)
    alone, batched = (verifier.bounds(module, lower=y, upper=y)[-1] for y in (x, x[None]))
    torch.testing.assert_close(alone, batched)
    for shape in ((27,), (1, 27), (9, 3)):
        with pytest.raises(InputError, match="shape"):
            verifier.bounds(module, lower=x.reshape(shape), upper=x.reshape(shape))
    with pytest.raises(InputError, match="shape"):
        verifier.bounds(module, lower=x[:, :, :2].permute(1, 2, 0), upper=x[:, :, :2].permute(1, 2, 0))


def test_what_the_user_has_told_torch_changes_no_answer(module: nn.Module) -> None:
    def answers() -> list[Verdict]:
        found = [verifier.verify(module, **BOX, unsafe=u, threads=n).verdict for u in (SAFE, UNSAFE) for n in (1, 2)]
        low, high = verifier.bounds(module, **BOX)[0]
        assert low.dtype is high.dtype is torch.float64
        return found

    usual = answers()
    assert usual == [Verdict.UNSAT, Verdict.UNSAT, Verdict.SAT, Verdict.SAT]
    with default_dtype(torch.float64):
        assert answers() == usual
        assert torch.get_default_dtype() is torch.float64
    for context in (torch.device("meta"), torch.autocast("cpu"), torch.no_grad(), torch.inference_mode()):
        with context:
            assert answers() == usual


def test_a_module_runs_with_the_users_type() -> None:
    class Tenth(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor([0.1])

    box = {"lower": [0.0], "upper": [0.0]}
    with default_dtype(torch.float64):
        assert verifier.bounds(Tenth(), **box)[-1][0].item() == pytest.approx(0.1, abs=1e-12)
    assert verifier.bounds(Tenth(), **box)[-1][0].item() == pytest.approx(float(np.float32(0.1)), abs=1e-12)


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
    result = verifier.verify(module, **BOX, unsafe=SAFE, threads=before + 1)
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
    def slow(task: Task, arena: Target, clock: Clock) -> Counterexample | None:
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

    def slow(task: Task, arena: Target, clock: Clock) -> Counterexample | None:
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
    def broken(task: Task, arena: Target, clock: Clock) -> Counterexample | None:
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
    monkeypatch.setattr("verifier.search.loop.WORTHWHILE", 1)
    monkeypatch.setattr("verifier.bounding.hidden.WORTH_A_FORK", -1)
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
