"""Functions that are not piecewise linear: each becomes a group of neurons of its own kind."""

from __future__ import annotations

from typing import Any

from verifier.functions.sigmoids import Sigmoid, Tanh
from verifier.network.lowering.expression import Expression
from verifier.network.lowering.tracing import Lowering, lowers


@lowers("sigmoid")
def sigmoid(low: Lowering, input: Any) -> Expression:
    return low.apply(Sigmoid(), low.value(input))


@lowers("tanh")
def tanh(low: Lowering, input: Any) -> Expression:
    return low.apply(Tanh(), low.value(input))
