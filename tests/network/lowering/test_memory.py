"""Modules that share and overwrite memory: the lowered network is what the module computes, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from network.modules import Code, assert_same_function
from torch import nn
from torch.nn import functional as F

from verifier.network.models.module import ModuleModel

T = torch.Tensor


def write_through_a_slice(module: Any, x: T) -> T:
    y = x[:, :2]
    y.add_(1)
    return x * 2


def assign_an_entry(module: Any, x: T) -> T:
    x[:, 0] = 0
    return x


def assign_to_a_clone(module: Any, x: T) -> T:
    y = x.clone()
    y[:, 0] = 0
    return x - 2 * y


def assign_a_part_of_itself(module: Any, x: T) -> T:
    x = x.clone()
    x[:, :2] = x[:, 2:]
    return x


def assign_by_positions(module: Any, x: T) -> T:
    x[:, [3, 0]] = F.linear(x, module.weight)
    return x


def assign_by_a_mask(module: Any, x: T) -> T:
    x[torch.tensor([[True, False, False, True]])] = torch.tensor([5.0, 7.0])
    return x


def relu_of_a_view(module: Any, x: T) -> T:
    x.view(-1).relu_()
    return x


def write_into_a_clone(module: Any, x: T) -> T:
    y = x.clone()
    y.add_(1)
    return x + 2 * y


def write_into_the_data(module: Any, x: T) -> T:
    x.data.mul_(2)
    return x.detach().sub_(1) + x


def write_into_what_is_contiguous(module: Any, x: T) -> T:
    y = x.contiguous()  # the same tensor
    y.add_(1)
    z = x.view(2, 2).t().contiguous()  # a copy
    z.mul_(3)
    return x + z.reshape(1, 4)


def write_after_a_view_was_read(module: Any, x: T) -> T:
    y = x[:, 1:]
    before = y + 0
    x.mul_(-2)
    return before - y


def reshape_copies_or_not(module: Any, x: T) -> T:
    view, copy = x.reshape(2, 2), x.view(2, 2).t().reshape(4)
    view.add_(1)
    copy.mul_(0)
    return x + copy


def strides_survive_functions(module: Any, x: T) -> T:
    """The result of relu keeps the strides of its operand, so the reshape of it is a copy."""
    y = F.relu(x.view(2, 2).t())
    z = y.reshape(4)
    z.add_(1)
    return y.reshape(1, 4) + 10 * z


def rows_of_a_tensor(module: Any, x: T) -> T:
    first, second = x.view(2, 2)
    first += second
    return x


def parts_of_a_split(module: Any, x: T) -> T:
    left, right = x.chunk(2, dim=1)
    left.copy_(right)
    right.zero_()
    return x


def fill_a_diagonal(module: Any, x: T) -> T:
    x.view(2, 2).diagonal().fill_(3)
    return x


def fill_by_a_mask(module: Any, x: T) -> T:
    mask = torch.tensor([True, False, False, True])
    return x.masked_fill(mask, 3.0) + x.masked_fill_(~mask, -1.0)


def add_in_place(module: Any, x: T) -> T:
    y = F.linear(x, module.weight)
    alias = y
    y += x[:, :2]
    y -= 1
    y *= 2
    y /= 4
    return alias


def functions_in_place(module: Any, x: T) -> T:
    y = x - 1
    F.relu(y, inplace=True)
    F.hardtanh(y[:, :2], -1, 2, inplace=True)
    F.leaky_relu(x, 0.5, True)
    F.relu6(x, True)
    F.dropout(x, 0.5, False, True)
    return x + y


def a_constant_that_changes_later(module: Any, x: T) -> T:
    shift = torch.ones(4)
    y = x + shift
    shift.zero_()
    return y + shift


def a_double_constant_that_changes_later(module: Any, x: T) -> T:
    shift, matrix = torch.ones(4, dtype=x.dtype), module.weight.clone()
    y = F.linear(x + shift, matrix)
    shift.zero_()
    matrix.zero_()
    return y


def an_error_that_is_expected(module: Any, x: T) -> T:
    turned = x.view(2, 2).t()
    try:
        return turned.view(1, 4)
    except RuntimeError:
        return turned.reshape(1, 4)


def values_of_a_maximum(module: Any, x: T) -> T:
    return x.view(2, 2).max(dim=1).values


def where_as_a_method(module: Any, x: T) -> T:
    return x.where(torch.tensor([True, False, True, False]), -x)


def batch_norm_of_torch(module: Any, x: T) -> T:
    gain, shift, mean, variance = (torch.full((4,), v, dtype=x.dtype) for v in (2.0, 1.0, 0.5, 4.0))
    return torch.batch_norm(x, gain, shift, mean, variance, False, 0.1, 0.0, False)


def constants_like_the_input(module: Any, x: T) -> T:
    return x + torch.ones(4, dtype=torch.float16).to(x) + torch.full_like(x, 2.0) + torch.zeros(1).expand_as(x)


def inference_mode(module: Any, x: T) -> T:
    with torch.inference_mode():
        y = x * 2
        y += 1
        return y.relu_()


def view_of_the_input(module: Any, x: T) -> T:
    return x.view(2, 2).t()[0]


def same_tensor_as_tensor(module: Any, x: T) -> T:
    y = torch.as_tensor(x)  # torch returns the tensor itself
    y.add_(1)
    return x


TRAPS: dict[str, Callable[[Any, T], T]] = {
    function.__name__: function
    for function in (
        write_through_a_slice,
        assign_an_entry,
        assign_to_a_clone,
        assign_a_part_of_itself,
        assign_by_positions,
        assign_by_a_mask,
        relu_of_a_view,
        write_into_a_clone,
        write_into_the_data,
        write_into_what_is_contiguous,
        write_after_a_view_was_read,
        reshape_copies_or_not,
        strides_survive_functions,
        rows_of_a_tensor,
        parts_of_a_split,
        fill_a_diagonal,
        fill_by_a_mask,
        add_in_place,
        functions_in_place,
        a_constant_that_changes_later,
        a_double_constant_that_changes_later,
        an_error_that_is_expected,
        values_of_a_maximum,
        where_as_a_method,
        constants_like_the_input,
        inference_mode,
        view_of_the_input,
        same_tensor_as_tensor,
    )
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TRAPS)
def test_memory_is_followed(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.float64 and name in {"assign_by_a_mask", "a_constant_that_changes_later"}:
        pytest.skip("its constants are float32")
    assert_same_function(Code(TRAPS[name], dtype), (1, 4))


def test_batch_norm_of_torch_itself() -> None:
    """It names its arguments in another order than torch.nn.functional, and rounds a root."""
    model = ModuleModel(Code(batch_norm_of_torch), (1, 4))
    point = np.arange(4.0)
    np.testing.assert_allclose(model.network().forward(torch.from_numpy(point)), model.run(point)[:], rtol=1e-6)


def test_layers_in_place() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(4, 6),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5, inplace=True),
        nn.Linear(6, 2),
        nn.Hardtanh(inplace=True),
    )
    for parameter in module.parameters():
        parameter.data = (parameter.data * 8).round() / 4
    assert_same_function(module, (1, 4))


def test_a_run_does_not_change_its_input() -> None:
    model = ModuleModel(Code(assign_an_entry), (1, 4))
    points = np.ones((3, 4), np.float32)
    model.run(points)
    model.run(points[0])
    assert (points == 1).all()
