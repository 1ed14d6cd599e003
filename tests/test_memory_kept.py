"""While a run lasts, freed memory stays with the process."""

from __future__ import annotations

import ctypes
import platform
import resource

import pytest
import torch

from verifier.machine import memory_kept


def faults() -> int:
    """Pages that blocks of some megabytes ask the system for, when they are freed and made again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(2**20)
        torch.ones(3 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc's allocator")
def test_blocks_that_were_freed_need_no_new_pages_inside() -> None:
    with memory_kept():
        faults()
        assert faults() < 2000  # of 80,000 pages that are written


def test_a_system_without_such_an_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with memory_kept():
        assert torch.ones(3).sum() == 3
