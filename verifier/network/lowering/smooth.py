"""Functions that are not piecewise linear: each becomes a group of neurons of its own kind.

Which functions of torch these are, the functions themselves say (`verifier.functions.names`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verifier.functions import Function
from verifier.functions.names import known_to_torch
from verifier.network.lowering.expression import Expression
from verifier.network.lowering.tracing import Lowering, lowers
from verifier.shapes import Float, Tensor


def neurons(input: Float[Tensor, "*shape"], function: Function) -> Float[Tensor, "*shape"]:
    """A function of one number at every entry, as a function of torch: what converters of operators may call."""
    if torch.overrides.has_torch_function_unary(input):
        found: Tensor = torch.overrides.handle_torch_function(neurons, (input,), input, function)
        return found
    return function.value(input)


@lowers("neurons")
def _neurons(low: Lowering, input: Any, function: Function) -> Expression:
    return low.apply(function, low.value(input))


def elementwise(name: str) -> Callable[..., Expression] | None:
    """The rule for a function of torch that is one of ours."""
    maker = known_to_torch(name)
    if maker is None:
        return None

    def rule(low: Lowering, input: Any, *settings: Any, inplace: bool = False, **named: Any) -> Expression:
        return low.apply(maker(*settings, **named), low.value(input))

    return rule
