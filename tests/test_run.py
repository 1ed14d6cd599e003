"""The entry points for Python: files and modules take the same path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import verifier
from verifier.config import load_config
from verifier.errors import InputError
from verifier.result.verdict import Reason, Verdict


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
    np.testing.assert_array_equal(y, witness.y)
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


def test_the_test_family(benchmarks: Path) -> None:
    folder = benchmarks / "test"
    for network, prop, expected in (("test_sat", "test_prop", "sat"), ("test_tiny", "test_tiny", "unsat")):
        result = verifier.verify(folder / f"onnx/{network}.onnx", folder / f"vnnlib/{prop}.vnnlib", timeout=60)
        assert result.verdict.value == expected


def test_an_unknown_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = verifier.nothing
