"""Many small searches."""

from __future__ import annotations

import pytest
from speed import one_thread

__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def alone(one_thread: None) -> None:
    """Every test here runs in one thread."""
