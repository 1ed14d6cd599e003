"""Random straight-line programs on one input: views, writes, copies and arithmetic, by torch and by the lowering."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from network.modules import assert_same_function
from torch import nn
from torch.nn import functional as F

from verifier.errors import InputError

T = torch.Tensor


def _other(values: list[T], shape: torch.Size, k: int) -> T:
    """A tensor that can be broadcast to the shape: one of that shape if there is one."""
    fitting = [value for value in values if value.shape == shape]
    return fitting[k % len(fitting)] if fitting else values[0].reshape(-1)[0]


def _part(x: T, a: int, b: int) -> Any:
    """An index of the tensor: a slice or an entry of one axis."""
    axis = a % x.dim()
    size = x.shape[axis]
    inner: Any = slice(b % size, None, 1 + a % 2) if b % 3 else b % size
    return (slice(None),) * axis + (inner,)


NEW: dict[str, Callable[[list[T], T, int, int], T]] = {
    "part": lambda values, x, a, b: x[_part(x, a, b)],
    "flat": lambda values, x, a, b: x.reshape(-1),
    "view": lambda values, x, a, b: x.view(-1),
    "pairs": lambda values, x, a, b: x.reshape(2, -1) if a % 2 else x.reshape(-1, 2),
    "turned": lambda values, x, a, b: x.transpose(a % x.dim(), b % x.dim()),
    "axis": lambda values, x, a, b: x.unsqueeze(a % (x.dim() + 1)),
    "no axis": lambda values, x, a, b: x.squeeze(),
    "split": lambda values, x, a, b: x.chunk(2, a % x.dim())[b % 2],
    "row": lambda values, x, a, b: list(x)[b % len(x)],
    "expanded": lambda values, x, a, b: x.unsqueeze(0).expand(2, *x.shape),
    "detached": lambda values, x, a, b: x.detach() if a % 2 else x.data,
    "contiguous": lambda values, x, a, b: x.contiguous(),
    "typed": lambda values, x, a, b: x.to(x.dtype),
    "clone": lambda values, x, a, b: x.clone(),
    "flipped": lambda values, x, a, b: x.flip(a % x.dim()),
    "joined": lambda values, x, a, b: torch.cat([x, _other(values, x.shape, b)], a % x.dim()),
    "chosen": lambda values, x, a, b: x.index_select(a % x.dim(), torch.tensor([b % x.shape[a % x.dim()], 0])),
    "plus": lambda values, x, a, b: x + (a % 5 - 2),
    "sum": lambda values, x, a, b: x + _other(values, x.shape, b),
    "difference": lambda values, x, a, b: x - _other(values, x.shape, b),
    "negative": lambda values, x, a, b: -x,
    "relu": lambda values, x, a, b: F.relu(x),
    "abs": lambda values, x, a, b: x.abs(),
    "largest": lambda values, x, a, b: torch.maximum(x, _other(values, x.shape, b)),
}


def _assign(values: list[T], x: T, a: int, b: int) -> None:
    index = _part(x, a, b)
    x[index] = float(a % 7 - 3) if b % 2 else _other(values, x[index].shape, a)


def _increase(values: list[T], x: T, a: int, b: int) -> None:
    x += _other(values, x.shape, b)


WRITES: dict[str, Callable[[list[T], T, int, int], Any]] = {
    "assign": _assign,
    "increase": _increase,
    "add_": lambda values, x, a, b: x.add_(a % 5 - 2),
    "sub_": lambda values, x, a, b: x.sub_(_other(values, x.shape, b)),
    "mul_": lambda values, x, a, b: x.mul_((-1, 2, 0.5)[a % 3]),
    "relu_": lambda values, x, a, b: x.relu_(),
    "relu in place": lambda values, x, a, b: F.relu(x, inplace=True),
    "clamp_": lambda values, x, a, b: x.clamp_(-4, 4),
    "part zero_": lambda values, x, a, b: x[_part(x, a, b)].zero_(),
    "part fill_": lambda values, x, a, b: x[_part(x, a, b)].fill_(a % 3),
    "copy_": lambda values, x, a, b: x.copy_(_other(values, x.shape, b)),
    "masked_fill_": lambda values, x, a, b: x.masked_fill_(torch.arange(x.numel()).reshape(x.shape) % 2 == a % 2, 1.0),
}


class Program(nn.Module):
    """A random straight-line program.  What torch refuses, such as a view of the wrong strides, is left out."""

    def __init__(self, seed: int, steps: int = 9) -> None:
        super().__init__()
        draw = random.Random(seed)
        kinds = [draw.choice(list(NEW if draw.random() < 0.6 else WRITES)) for _ in range(steps)]
        self.steps = [(kind, *(draw.randrange(1000) for _ in range(3))) for kind in kinds]
        self.register_buffer("anchor", torch.zeros(1, dtype=torch.float64))

    def forward(self, x: T) -> T:
        values = [x]
        for kind, which, a, b in self.steps:
            chosen = values[which % len(values)]
            try:
                if kind in WRITES:
                    WRITES[kind](values, chosen, a, b)
                elif chosen.numel() <= 16 and chosen.dim():
                    values.append(NEW[kind](values, chosen, a, b))
            except (RuntimeError, IndexError, ZeroDivisionError):
                pass
        return torch.cat([value.reshape(-1) for value in values])


def accepted(seeds: range) -> int:
    """How many programs of these are accepted; all of them are lowered rightly."""
    count = 0
    for seed in seeds:
        try:
            assert_same_function(Program(seed), (1, 6), count=6, seed=seed)
        except InputError:
            continue
        except AssertionError as error:
            raise AssertionError(f"program {seed} is lowered wrongly: {Program(seed).steps}") from error
        count += 1
    return count


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    count = accepted(range(60 * part, 60 * part + 60))
    assert count >= 48  # four of five: refusing everything would prove nothing
