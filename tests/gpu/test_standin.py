"""The stand-in itself: it computes what the CPU computes, refuses what a GPU refuses, and counts."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gpu.standin import MixedDevices
from gpu.tally import counted

from verifier.precision import direct_sums
from verifier.processes import Forked, Send


@pytest.fixture
def x(device: torch.device) -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).to(device)


def test_tensors_say_where_they_are(x: torch.Tensor, device: torch.device) -> None:
    made = [x, x + 1, x[1:], x.new_zeros(2), torch.zeros_like(x), torch.arange(3, device=device), x > 2, x.double()]
    made += [torch.tensor([1.0], device=device), torch.full((2,), 3.0, device=device), torch.cat([x, x]), x.max()]
    assert {tensor.device for tensor in made} == {device}
    assert x.cpu().device.type == "cpu"


def test_results_are_those_of_the_cpu(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    image, kernel = torch.randn(2, 3, 8, 8, generator=generator), torch.randn(4, 3, 3, 3, generator=generator)

    def work(image: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        found = torch.nn.functional.conv2d(image, kernel, padding=1).relu().flatten(1)
        found = (found @ found.T).softmax(dim=-1)
        found[found > 0.5] = -1.0
        found[:, 0].add_(2.0)
        torch.maximum(found, found.T.clone(), out=found)
        return found.sort(dim=1).values

    assert torch.equal(work(image, kernel), work(image.to(device), kernel.to(device)).cpu())


def test_writing_through_a_view_reaches_the_whole(x: torch.Tensor) -> None:
    x[1, 1:3] = -5.0
    x.T[0].zero_()
    assert x.tolist() == [[0, 1, 2, 3], [0, -5, -5, 7], [0, 9, 10, 11]]


MIXED: dict[str, tuple[str, Callable[[torch.Tensor], object]]] = {
    "sum": ("add", lambda x: x + torch.ones(4)),
    "the other way round": ("mul", lambda x: torch.ones(3, 4) * x),
    "a product": ("mm", lambda x: x @ torch.ones(4, 2)),
    "put together": ("cat", lambda x: torch.cat([x, torch.ones(1, 4)])),
    "an index": ("index", lambda x: x[torch.tensor([0, 2])]),
    "a mask": ("index", lambda x: x[torch.ones(3, dtype=torch.bool)]),
    "indices of a selection": ("index_select", lambda x: x.index_select(0, torch.tensor([0]))),
    "written at an index": ("index_put", lambda x: x.__setitem__(torch.tensor([0]), 1.0)),
    "written values": ("index_put", lambda x: x.__setitem__(x > 5, torch.ones(6))),
    "where": ("where", lambda x: torch.where(torch.ones(4, dtype=torch.bool), x, 0.0)),
    "result": ("add", lambda x: torch.add(x, 1.0, out=torch.ones(3, 4))),
    "an index of the CPU's": ("index", lambda x: torch.ones(12)[x[0].long()]),
    "a single number in a sum over rows": ("mv", lambda x: torch.ones(2, 3) @ x[:, 0]),
}


@pytest.mark.parametrize("case", MIXED)
def test_mixing_devices_is_an_error_that_names_the_operator(case: str, x: torch.Tensor) -> None:
    operator, work = MIXED[case]
    with pytest.raises(MixedDevices, match=operator):
        work(x)


def test_single_numbers_may_come_from_main_memory(x: torch.Tensor) -> None:
    """As with CUDA: they are handed to the kernel as numbers."""
    number = torch.tensor(2.0)
    found = torch.where(x > number, x * number, number)
    found[0] = number
    assert found.cpu().min() == 2.0


def test_there_is_no_array_of_a_tensor(x: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="standin"):
        x.numpy()
    with pytest.raises((TypeError, RuntimeError)):
        np.asarray(x)


def test_a_fork_cannot_use_it(x: torch.Tensor) -> None:
    def work(send: Send) -> float:
        return float((x + 1).sum())

    with Forked(work) as there, pytest.raises(RuntimeError, match="forked"):
        there.wait()
    assert os.getpid() > 0
    assert float((x + 1).sum()) == 78.0


def test_shapes_cannot_change_in_place(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="another shape"):
        x.t_()


def test_float32_is_not_relied_on_there(device: torch.device) -> None:
    """On a GPU convolutions may be transforms, whose errors nobody has counted."""
    assert not direct_sums(device)


COSTS: dict[str, tuple[int, int, Callable[[torch.Tensor], object]]] = {
    # launches, waits
    "views": (0, 0, lambda x: x.T[1:].unsqueeze(0).expand(5, -1, -1).reshape(5, 3, 3).detach()),
    "arithmetic": (3, 0, lambda x: (2 * x + 1).relu()),
    "a product": (1, 0, lambda x: x @ x.T),
    "item": (1, 1, lambda x: x.sum().item()),
    "float": (1, 1, lambda x: float(x.max())),
    "bool": (2, 1, lambda x: bool((x > 3).any())),
    "if": (1, 1, lambda x: 1 if x[0, 0] > 3 else 2),
    "nonzero": (1, 1, torch.nonzero),
    "a mask": (2, 1, lambda x: x[x > 3]),
    "written at a mask": (2, 1, lambda x: x.index_put_((x > 3,), x.new_zeros(()))),
    "an index": (1, 0, lambda x: x[x.new_zeros(2, dtype=torch.long)]),
    "unique": (1, 1, lambda x: x.unique()),
    "equal": (1, 1, lambda x: torch.equal(x, x)),
    "repeated by counts": (2, 1, lambda x: x.flatten().repeat_interleave(x.flatten().long() * 0)),
    "to the host": (0, 1, lambda x: x.cpu()),
    "a list": (0, 1, lambda x: x.tolist()),
    "from the host": (0, 1, lambda x: torch.ones(3).to(x.device)),
    "made from a list": (0, 1, lambda x: torch.tensor([1.0, 2.0], device=x.device)),
    "made there": (2, 0, lambda x: (torch.zeros(3, device=x.device), torch.arange(3, device=x.device))),
    "another precision": (1, 0, lambda x: x.double()),
}
EXTRA = {"an index": 1, "written at a mask": 1, "repeated by counts": 2}
"""What making the arguments launches besides."""


@pytest.mark.parametrize("case", COSTS)
def test_what_is_launched_and_what_the_host_waits_for(case: str, x: torch.Tensor) -> None:
    launches, waits, work = COSTS[case]
    with counted() as tally:
        work(x)
    assert (tally.launches, tally.waits) == (launches + EXTRA.get(case, 0), waits), tally.places
    with counted() as nothing:
        pass
    assert (nothing.launches, nothing.waits) == (0, 0)


def test_a_wait_names_its_line(x: torch.Tensor) -> None:
    with counted() as tally:
        x.sum().item()
    ((place, times),) = tally.places.items()
    assert "test_standin.py:" in place
    assert "_local_scalar_dense" in place
    assert times == 1


def test_bytes_and_products_are_counted(x: torch.Tensor) -> None:
    with counted() as tally:
        x @ x.T
    assert tally.products == 2 * 3 * 4 * 3
    assert tally.read_and_written == 4 * (12 + 12 + 9)
    with counted() as tally:
        x[:1].expand(100, -1).cpu()
    assert tally.moved == 4 * 100 * 4


def test_random_state_can_be_set_aside(device: torch.device) -> None:
    before = torch.get_rng_state()
    with torch.random.fork_rng(device_type=device.type):
        torch.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), before)
