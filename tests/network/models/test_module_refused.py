"""Modules that cannot be read: every one is refused by a sentence that says why, and where it can, the line."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from network.modules import Code, assert_same_function, refusal
from torch import nn
from torch.nn import functional as F

from verifier.errors import InputError, UnsupportedOperator
from verifier.network.models.module import ModuleModel

T = torch.Tensor


# -- values that leave torch ---------------------------------------------------------------------------------


def _swallowed(module: Any, x: T) -> T:
    try:
        return x if x.sum() > 0 else -x
    except Exception:
        return -x


def _scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


def _autocast(module: Any, x: T) -> T:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.linear(x, module.weight).float()


def _written(module: Any, x: T) -> T:
    found = torch.zeros(1, 4)
    found[:, :2] = x[:, 2:]
    return found


def _out(module: Any, x: T) -> T:
    found = torch.zeros(1, 4)
    torch.add(x, 1, out=found)
    return found


def _shifted(module: Any, x: T) -> T:
    x[:, 1:] = x[:, :-1]
    return x


def _twice(module: Any, x: T) -> T:
    x[:, [0, 0]] = x[:, 2:].clone()
    return x


def _replaced(module: Any, x: T) -> T:
    x.data = x + 1
    return x


def _gradient(module: Any, x: T) -> T:
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        return torch.autograd.grad((2 * y).sum(), y)[0]


def _script(module: Any, x: T) -> T:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        return torch.jit.script(_scripted)(x)


REFUSED: dict[str, tuple[Callable[[Any, T], Any], str]] = {
    "torch.tensor": (lambda m, x: torch.tensor(x) + x, "reads the values"),
    "torch.tensor of entries": (
        lambda m, x: torch.tensor([x[0, 0], x[0, 1]]) + x[:, :2],
        "of type item .* out of torch",
    ),
    "as_tensor of another type": (lambda m, x: torch.as_tensor(x, dtype=torch.float64), "reads the values"),
    "numpy": (lambda m, x: torch.from_numpy(x.numpy()), "of type numpy .* out of torch"),
    "asarray": (lambda m, x: torch.from_numpy(np.asarray(x)), "of type array .* out of torch"),
    "tolist": (lambda m, x: torch.tensor(x.tolist()), "of type tolist .* out of torch"),
    "item": (lambda m, x: x * x.sum().item(), "of type item .* out of torch"),
    "float()": (lambda m, x: x * float(x[0, 0]), "of type item .* out of torch"),
    "index": (lambda m, x: x[:, : x[0, 0]], "of type item .* out of torch"),
    "text": (lambda m, x: x * len(f"{x}"), "into text"),
    "branch": (lambda m, x: x if x.sum() else -x, "branches on a value"),
    "comparison": (lambda m, x: (x > 0).float(), "of type gt .* comparisons with"),
    "where": (lambda m, x: torch.where(x > 0, x, 0.5), "comparisons with"),
    "caught": (_swallowed, "comparisons with"),
    "vmap": (lambda m, x: torch.vmap(F.relu)(x), "reads the values"),
    "script": (_script, "reads the values"),
    "operator": (lambda m, x: torch.ops.aten.lgamma.default(x), "not known"),
    "gradient": (_gradient, "not known"),
    "half": (lambda m, x: x.half().float(), "of type half .* rounds"),
    "to half": (lambda m, x: x.to(torch.float16), "result is of type float16"),
    "double": (lambda m, x: x.double(), "result is of type float64, where the module computes in float32"),
    "double and back": (lambda m, x: x.double().float(), "result is of type float64"),
    "sum in double": (lambda m, x: x.sum(dtype=torch.float64), "result is of type float64"),
    "int": (lambda m, x: x.int(), "of type int .* rounds"),
    "bits": (lambda m, x: x.view(torch.int32), "result is of type int32"),
    "autocast": (_autocast, "of type linear .* result is of type bfloat16"),
    "double constant": (lambda m, x: x * torch.tensor(0.1, dtype=torch.float64), "rounds a constant of type float64"),
    "double vector": (lambda m, x: x + torch.ones(4, dtype=torch.float64), "result is of type float64"),
    "large integer": (lambda m, x: x + torch.tensor(2**24 + 1), "rounds a constant of type int64"),
    "out": (_out, "given as 'out'"),
    "into a constant": (_written, "into a constant tensor"),
    "constant copy_": (lambda m, x: torch.zeros(1, 4).copy_(x), "into a constant tensor"),
    "constant +=": (lambda m, x: torch.zeros(1, 4).add_(x), "into a constant tensor"),
    "overlap": (_shifted, "memory that it reads from"),
    "an index twice": (_twice, "an entry twice"),
    "data replaced": (_replaced, "'data' writes into a tensor"),
    "turned in place": (lambda m, x: x.t_(), "'t' writes into a tensor"),
    "new_tensor": (lambda m, x: x + x.new_tensor([x[0, 0]]), "arguments depend"),
    "full_like": (lambda m, x: torch.full_like(x, x[0, 0]), "arguments depend"),
    "index of a constant": (lambda m, x: m.weight[:, x.argmax()], "not known"),
    "keyword": (lambda m, x: torch.add(torch.ones(4), 1, alpha=x[0, 0]), "reads the values"),
}


@pytest.mark.filterwarnings("ignore")  # torch itself advises against some of them
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced(name: str) -> None:
    function, sentence = REFUSED[name]
    module = Code(function)
    with pytest.raises(UnsupportedOperator, match=sentence) as caught:
        ModuleModel(module, (1, 4)).network()
    assert caught.value.path == __file__
    assert caught.value.line is not None


def test_a_cast_to_float_in_a_double_module() -> None:
    module = Code(lambda m, x: x.float().double(), torch.float64)
    assert "result is of type float32, where the module computes in float64" in refusal(module)


def test_parameters_of_several_types() -> None:
    """What torch computes in the type of the activations is taken, everything else is refused."""
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).double())
    assert "must have the same dtype" in refusal(module)
    module = Code(lambda m, x: F.linear(x, m.weight) * m.scale)
    module.register_buffer("scale", torch.tensor([0.1, 0.2], dtype=torch.float64))
    assert "float64" in refusal(module)
    module.scale = torch.tensor(0.5, dtype=torch.float64)
    assert_same_function(module, (1, 4))


# -- modules that are not functions --------------------------------------------------------------------------


def _counts(module: Any, x: T) -> T:
    module.calls += 1
    return x


def _counts_and_scales(module: Any, x: T) -> T:
    module.calls += 1
    return x * module.calls


def _writes_its_buffer(module: Any, x: T) -> T:
    module.weight[0, 0] = 7.0  # the same at every call but the first
    return x


def _remembers(module: Any, x: T) -> T:
    module.last = x
    return x


def _looks_at_the_type(module: Any, x: T) -> T:
    return x if type(x) is torch.Tensor else -x


def _seeds_apart(module: Any, x: T) -> T:
    with torch.random.fork_rng():
        return x + torch.rand(())


CHANGING: dict[str, tuple[Callable[[Any, T], Any], str]] = {
    "torch.rand": (lambda m, x: x + torch.rand(4), "random"),
    "numpy.random": (lambda m, x: x + float(np.random.rand()), "random"),
    "random": (lambda m, x: x + random.random(), "random"),
    "a fresh generator": (lambda m, x: x + float(np.random.default_rng().random()), "second call"),
    "hidden randomness": (_seeds_apart, "second call"),
    "dropout": (lambda m, x: F.dropout(x, training=True), "random in training mode"),
    "counter": (_counts, "changes its 'calls'"),
    "factor": (_counts_and_scales, "second call"),
    "buffer": (_writes_its_buffer, "changes its 'weight'"),
    "memory": (_remembers, "changes its 'last'"),
    "type": (_looks_at_the_type, "second call"),
}


@pytest.mark.parametrize("name", CHANGING)
def test_modules_that_differ_between_calls(name: str) -> None:
    function, sentence = CHANGING[name]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]
    module = Code(function)
    with pytest.raises(InputError, match=sentence):
        ModuleModel(module, (1, 4)).network()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    assert module.calls == 0


def test_state_in_lists_closures_and_classes() -> None:
    seen: list[int] = []
    assert "second call" in refusal(Code(lambda m, x: x * (seen.append(1) or len(seen))))
    module = Code(lambda m, x: (m.log["sizes"].append(x.shape[0]), x)[1])
    module.log = {"sizes": []}
    assert "changes its 'log'" in refusal(module)

    class Counting(nn.Module):
        calls = 0

        def forward(self, x: T) -> T:
            Counting.calls += 1
            return x

    assert "changes its 'Counting.calls'" in refusal(Counting())


def test_values_of_an_earlier_run() -> None:
    kept: list[T] = []

    def function(module: Any, x: T) -> T:
        kept.append(x)
        return kept[0] + x

    assert "changes its 'function'" in refusal(Code(lambda m, x: (kept.append(x), x)[1]))  # what its closure holds
    assert "earlier run" in refusal(Code(function))


def test_training_is_over() -> None:
    """A module is evaluated, whatever it is given as; parts that hide from that are refused."""
    assert_same_function(Code(lambda m, x: -x if m.training else x).train(), (1, 4))
    module = Code(lambda m, x: m.hidden[0](x))
    module.hidden = [nn.Dropout()]
    assert "training mode" in refusal(module)
