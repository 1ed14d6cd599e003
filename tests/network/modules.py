"""What the tests of torch modules share: modules of a single function, and a comparison that allows no difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from verifier.errors import InputError
from verifier.network.models.module import ModuleModel

WEIGHT = torch.tensor([[1.0, -2.0, 3.0, 0.5], [2.0, 1.0, -1.0, 1.0]])


class Code(nn.Module):
    """A module that runs a function of itself and its input; it has a buffer to compute with, and a counter."""

    def __init__(self, function: Callable[[Any, torch.Tensor], Any], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.function = function
        self.calls = 0
        self.register_buffer("weight", WEIGHT.to(dtype).clone())

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def assert_same_function(module: nn.Module, shape: tuple[int, ...], count: int = 40, seed: int = 0) -> None:
    """The lowered network gives what the module gives, to the last bit.

    Requires a module whose numbers are small multiples of powers of two: then neither side rounds.
    """
    model = ModuleModel(module, shape)
    network = model.network()
    draw = np.random.default_rng(seed)
    for _ in range(count):
        point = draw.integers(-8, 9, size=model.n_in).astype(np.float64)
        expected = model.run(point).astype(np.float64)
        found = network.forward(torch.from_numpy(point)).numpy()
        np.testing.assert_array_equal(found, expected)


def refusal(module: Any, shape: tuple[int, ...] = (1, 4)) -> str:
    """The sentence by which a module is refused."""
    with pytest.raises(InputError) as caught:
        ModuleModel(module, shape).network()
    text = str(caught.value)
    assert "\n" not in text
    return text
