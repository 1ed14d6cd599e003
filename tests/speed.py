"""Fixtures for tests that run whole searches: one thread, and without checked shapes."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import pytest
import torch


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tensors are tiny here; more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Annotations cost five times the work of a small search; the other tests check them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
