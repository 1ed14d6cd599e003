"""Many small searches."""

from __future__ import annotations

import pytest
from speed import one_thread, unchecked

__all__ = ["one_thread", "unchecked"]


@pytest.fixture(autouse=True)
def alone(one_thread: None) -> None:
    """Every test here runs in one thread."""
