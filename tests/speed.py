"""What tests that run whole searches or look at the clock share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import torch

PATIENCE = 120.0
"""Seconds after which a test gives up waiting, also on a busy machine; only a test that fails takes so long."""

ATTEMPTS = 8

Found = TypeVar("Found")


def soon(
    run: Callable[[], Found], limit: float, begun: Callable[[Found], bool] = lambda found: True
) -> tuple[Found, float]:
    """What a run finds and the seconds it takes, of the first attempt within the limit, else of the last one.

    Other programs may hold up any single run, but hardly each of several; what is always late is late.  An attempt that
    was held up before it had `begun` does not count either.
    """
    for _ in range(ATTEMPTS):
        began = time.monotonic()
        found = run()
        seconds = time.monotonic() - began
        if seconds <= limit and begun(found):
            break
    return found, seconds


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tensors are tiny here; more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unchecked() -> None:
    """Left out where annotations are checked, at five times the work of a small search; the other tests check them."""
