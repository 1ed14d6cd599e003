"""A stored matrix, applied to the whole vector or block by block."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from verifier.operators.base import LinearMap
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Dense(LinearMap):
    """`weight` applied to each of `repeats` consecutive blocks of the vector.

    `repeats > 1` is a matrix product along the last axis of a tensor of higher rank: the block-diagonal matrix
    with `repeats` copies of `weight`.
    """

    weight: Float[Tensor, "m k"]
    repeats: int = 1
    roundings: int = 0

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.repeats * self.weight.shape[1]

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.repeats * self.weight.shape[0]

    @property
    def depth(self) -> int:  # type: ignore[override]
        return max(self.weight.shape) + 1 + self.roundings

    @property
    def parameters(self) -> int:
        return self.weight.numel()

    def _apply(self, x: Tensor, matrix: Tensor) -> Tensor:
        if self.repeats == 1:
            return x @ matrix
        blocks = x.reshape(*x.shape[:-1], self.repeats, matrix.shape[0])
        return (blocks @ matrix).flatten(-2)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self._apply(x, self.weight.T)

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return self._apply(y, self.weight)

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self._apply(r, self.weight.abs().T)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Dense:
        return replace(self, weight=self.weight.to(device=device, dtype=dtype))

    def describe(self) -> str:
        blocks = "" if self.repeats == 1 else f" x{self.repeats}"
        return f"dense {self.weight.shape[1]}->{self.weight.shape[0]}{blocks}"
