"""Kinds of modules, the sentences about those that cannot be read, and what the user of a module has set."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from network.modules import Code, assert_same_function, refusal
from torch import nn
from torch.nn import functional as F

import verifier
from verifier.errors import InputError
from verifier.network.models.module import ModuleModel

T = torch.Tensor


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


class Compiled(nn.Module):
    """Stands for what torch.compile returns; making one costs half a minute."""

    def forward(self, x: T) -> T:
        return x


Compiled.__name__ = "OptimizedModule"


def _holds_nan() -> nn.Module:
    module = small()
    nn.init.constant_(module[0].bias, float("nan"))
    return module


def _quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(small(), {nn.Linear})


def _bound() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(4, 2))


KINDS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "bfloat16": (lambda: small().bfloat16(), "parameter '0.weight' is of type bfloat16; only float32 and float64"),
    "half": (lambda: small().half(), "parameter '0.weight' is of type float16"),
    "complex": (lambda: nn.Linear(4, 2).to(torch.complex64), "parameter 'weight' is of type complex64"),
    "meta": (lambda: small().to("meta"), "parameter '0.weight' is on the device 'meta'"),
    "nan": (_holds_nan, "parameter '0.bias' holds values that are not finite"),
    "scripted": (lambda: torch.jit.script(small()), "the module is compiled by torch.jit"),
    "traced": (lambda: torch.jit.trace(small(), torch.zeros(1, 4)), "the module is compiled by torch.jit"),
    "scripted part": (lambda: nn.Sequential(torch.jit.script(nn.ReLU())), "submodule '0' is compiled by torch.jit"),
    "compiled": (Compiled, "compiled by torch.compile"),
    "quantised": (_quantised, "submodule '0' is quantised"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(2)), "parameter '0.weight' has no values yet"),
    "parallel": (
        lambda: nn.Sequential(nn.DataParallel(small())),
        "wrapped in DataParallel; give its attribute",
    ),
    "no copy": (_bound, "the module cannot be copied to the CPU: Only Tensors created explicitly"),
    "wrong size": (lambda: nn.Linear(5, 2), "cannot be run on an input of shape .* cannot be multiplied"),
    "two outputs": (lambda: nn.LSTM(4, 2), "must return one tensor, not a tuple"),
    "integers": (lambda: Code(lambda m, x: torch.zeros(2, dtype=torch.int64)), "must return numbers of type float32"),
    "raises": (lambda: Code(lambda m, x: {}["key"]), r"test_module_state.py:\d+: the module cannot be run .* 'key'"),
    "exits": (lambda: Code(lambda m, x: [].pop()), "pop from empty list"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_modules(name: str) -> None:
    make, sentence = KINDS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make()
    with pytest.raises(InputError, match=sentence) as caught:
        verifier.verify(module, lower=[0.0] * 4, upper=[1.0] * 4, unsafe=[([[1.0, -1.0]], [0.0])])
    assert "\n" not in str(caught.value)


def test_hooks_and_parametrizations_are_part_of_a_module() -> None:
    module = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    module[0].weight.data = torch.tensor([[1.0, -2.0, 3.0, 0.5], [2.0, 1.0, -1.0, 1.0]])
    module[0].bias.data = torch.tensor([1.0, -2.0])
    module.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    module[0].register_forward_hook(lambda module, args, result: 2 * result)
    module[1].register_full_backward_hook(lambda *ignored: None)
    nn.utils.parametrize.register_parametrization(module[0], "bias", nn.ReLU())
    assert_same_function(module, (1, 4))


# -- messages ------------------------------------------------------------------------------------------------


NET = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.LogSigmoid()

    def forward(self, x):
        return self.act(x)  # line 11

class Net(nn.Module):
    def __init__(self, late):
        super().__init__()
        self.late = late
        self.first = nn.Linear(4, 4)
        self.block = Block()

    def forward(self, x):
        x = self.first(x)
        x = torch.relu(x)
        if self.late == "lgamma":
            return torch.lgamma(x)  # line 24
        if self.late == "modulus":
            return x % x  # line 26
        if self.late == "error":
            return self.missing(x)  # line 28
        if self.late == "shapes":
            return x + torch.ones(3)  # line 30
        return self.block(x)
"""


@pytest.mark.parametrize(
    ("late", "line", "sentence"),
    [
        ("lgamma", 24, "node 'forward' of type lgamma is not supported: the function 'lgamma'"),
        ("modulus", 26, "node 'forward' of type remainder is not supported: the function 'remainder'"),
        ("error", 28, "'Net' object has no attribute 'missing'"),
        ("shapes", 30, "must match the size of tensor"),
        ("block", 11, "node 'block.act' of type LogSigmoid is not supported: the function 'log_sigmoid'"),
    ],
)
def test_messages_name_the_operation_and_its_line(tmp_path: Path, late: str, line: int, sentence: str) -> None:
    path = tmp_path / "net.py"
    path.write_text(NET)
    space: dict[str, Any] = {"__name__": "net"}
    exec(compile(NET, str(path), "exec"), space)
    text = refusal(space["Net"](late))
    assert text.startswith(f"{path}:{line}: ")
    assert sentence in text


def test_messages_of_modules_without_own_code() -> None:
    text = refusal(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.LogSigmoid())))
    assert text.startswith("node '1.1' of type LogSigmoid is not supported: the function 'log_sigmoid'")


# -- what the user has set -----------------------------------------------------------------------------------


def test_defaults_of_the_user() -> None:
    """A module means what it means to its user: its default type counts, its default device does not."""

    def shifted(module: Any, x: T) -> T:
        return F.linear(x, module.weight) + torch.full((2,), 0.1)

    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        model = ModuleModel(Code(shifted, torch.float64), (1, 4))
        network = model.network()
        assert "float64" in refusal(Code(shifted))
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(before)
    assert network.output.bias.tolist() == model.network().output.bias.tolist() == [0.1, 0.1]
    assert model.run(np.zeros(4)).tolist() == [0.1, 0.1]


def test_points_of_a_double_module_are_not_rounded() -> None:
    model = ModuleModel(Code(lambda m, x: x + 0, torch.float64), (1, 4))
    point = np.array([0.1, 1e300, -1e-300, 1 / 3])
    assert model.dtype == np.float64
    assert (model.run(point) == point).all()
    assert (model.run(point[None]) == point).all()


def test_the_digest_covers_what_a_module_holds() -> None:
    def made(**attributes: Any) -> str:
        module = Code(lambda m, x: x)
        for name, value in attributes.items():
            setattr(module, name, value)
        return ModuleModel(module, (1, 4)).sha256

    plain = made()
    assert plain == made()
    others = [
        made(scale=1.0),
        made(scale=2.0),
        made(shift=torch.zeros(2)),
        made(shift=torch.ones(2)),
        made(parts=[1, 2]),
        made(parts=[1, (2, np.ones(2))]),
        made(hidden=[nn.Linear(1, 1, bias=False)]),
    ]
    assert len({plain, *others}) == len(others) + 1
