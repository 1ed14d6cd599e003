"""Operators of ONNX and functions of torch find the functions that stand for them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from verifier.errors import InputError
from verifier.functions import FUNCTIONS
from verifier.functions.names import known_to_torch
from verifier.functions.powers import Power, PowerOptions
from verifier.network.lowering.run import lower
from verifier.network.lowering.smooth import neurons

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "expit": torch.special.expit,
    "tanh": torch.tanh,
    "atan": torch.atan,
    "softsign": F.softsign,
    "erf": torch.erf,
    "exp": torch.exp,
    "log": lambda x: torch.log(torch.exp(x)),
    "sqrt": lambda x: torch.sqrt(torch.exp(x)),
    "rsqrt": lambda x: torch.rsqrt(torch.exp(x)),
    "reciprocal": lambda x: torch.reciprocal(torch.exp(x)),
    "square": torch.square,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "gelu with tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "silu in place": lambda x: F.silu(x + 1, inplace=True),
    "mish": F.mish,
    "hardswish": F.hardswish,
    "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.4),
    "sin": torch.sin,
    "cos": torch.cos,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
}


class Calls(nn.Module):
    """Runs one function between two layers."""

    def __init__(self, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.call = nn.Linear(3, 5), nn.Linear(5, 2), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.call(self.first(x)))


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_torch_are_lowered(name: str) -> None:
    torch.manual_seed(0)
    module = Calls(CALLS[name]).double().eval()
    network = lower(module, (1, 3), {})
    assert not network.piecewise_linear
    x = 2 * torch.randn(50, 3, dtype=torch.float64)
    assert torch.allclose(network.forward(x), module(x), rtol=1e-12, atol=1e-12)


OPERATORS = {
    "Sigmoid": ({}, torch.sigmoid),
    "Elu": ({"alpha": 0.5}, lambda t: F.elu(t, 0.5)),
    "Celu": ({"alpha": 0.5}, lambda t: F.celu(t, 0.5)),
    "Selu": ({"alpha": 2.0, "gamma": 1.5}, lambda t: 1.5 * F.elu(t, 2.0)),
    "Gelu": ({"approximate": "tanh"}, lambda t: F.gelu(t, approximate="tanh")),
    "Pow": ({"exponent": 3.0}, lambda t: t**3),
    "Swish": ({"alpha": 1.0}, F.silu),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_attributes_of_operators_are_options(name: str) -> None:
    attributes, expected = OPERATORS[name]
    t = torch.linspace(-3, 3, 31, dtype=torch.float64)
    assert torch.allclose(FUNCTIONS.build(name, attributes).value(t), expected(t), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", FUNCTIONS.names())
def test_unknown_attributes_are_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="beta"):
        FUNCTIONS.build(name, {"beta": 2.0})


@pytest.mark.parametrize("call", [lambda x: F.softplus(x, beta=2), lambda x: torch.round(x, decimals=1)])
def test_other_forms_are_refused(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(InputError, match="is known"):
        lower(Calls(call).eval(), (1, 3), {})
    with pytest.raises(InputError, match="alpha = 1"):
        FUNCTIONS.build("Swish", {"alpha": 2.0})


@pytest.mark.parametrize("exponent", [0.0, 1.0, float("nan"), float("inf")])
def test_powers_that_are_none_are_refused(exponent: float) -> None:
    with pytest.raises(InputError, match="exponent"):
        Power(PowerOptions(exponent))


def test_softplus_of_torch_is_enclosed_where_it_is_cut_off() -> None:
    maker = known_to_torch("softplus")
    assert maker is not None
    t = torch.tensor([19.9, 20.1, 25.0], dtype=torch.float64)
    low, high = maker().image(t, t)
    assert bool((low <= F.softplus(t)).all())
    assert bool((F.softplus(t) <= high).all())
    assert bool((high - low < 5e-9).all())


def test_converters_may_call_a_function_by_its_value() -> None:
    function = FUNCTIONS.build("Tanh")
    network = lower(Calls(lambda x: neurons(x, function)).eval(), (1, 3), {})
    assert network.groups[0].function == function
