"""The stand-in for a GPU lies beside the scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
if str(SCRIPTS) not in sys.path:
    sys.path.insert(0, str(SCRIPTS))


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU relies on float32 no more than a GPU does."""
    monkeypatch.setattr("verifier.bounding.relaxation.zonotope.direct_sums", lambda device: False)


@pytest.fixture(scope="session")
def device() -> torch.device:
    from gpu import standin

    if not standin.available():
        pytest.skip(f"torch {torch.__version__} has no devices that are written in Python")
    return standin.install()
