"""max(t, 0).  Its faces, kinks and cuts are those of `bounding/relaxation/relu` and `bounding/cuts`."""

from __future__ import annotations

from dataclasses import dataclass

from verifier.functions.base import Function
from verifier.shapes import Bool, Float, Tensor


@dataclass(frozen=True)
class Relu(Function):
    """The derivative at 0 is 0."""

    name = "Relu"

    @property
    def is_relu(self) -> bool:
        return True

    @property
    def nonnegative(self) -> bool:
        return True

    def bends(self, low: Float[Tensor, "*batch n"], high: Float[Tensor, "*batch n"]) -> Bool[Tensor, "*batch n"]:
        return (low < 0) & (high > 0)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return t.clamp(min=0)

    def pull(self, t: Float[Tensor, "*batch n"], cotangent: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return cotangent * (t > 0)

    def image(
        self, low: Float[Tensor, "*batch n"], high: Float[Tensor, "*batch n"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        return low.clamp(min=0), high.clamp(min=0)


RELU = Relu()
