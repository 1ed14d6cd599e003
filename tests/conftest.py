"""What all tests share: checked shapes, and the way to the benchmark material."""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import hypothesis
import pytest
import torch
from jaxtyping import install_import_hook
from speed import unchecked

__all__ = ["unchecked"]

# Must come before the first import of the package: annotations are checked in the tests, never for users.
# The tower: an int serves as a float, as for every other type checker.
# Checking costs a factor of five on tiny tensors, so `make test` does it (SHAPES=1) for a part of the tests only.
if os.environ.get("SHAPES") == "1":
    # Of a list it checks one member, drawn by chance: not from the generator that a module is forbidden to draw from.
    usual, random.getrandbits = random.getrandbits, random.Random(0).getrandbits
    importlib.import_module("beartype")
    random.getrandbits = usual
    install_import_hook("verifier", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

# Shared machines make timings useless as a criterion, and a test that fails must fail again on the next run: the
# examples are always the same ones, or those of the seed that was asked for (--hypothesis-seed=7).
CLOCKS = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("strata", deadline=None, derandomize=True, suppress_health_check=CLOCKS)
hypothesis.settings.register_profile(
    "strata-seed", hypothesis.settings.get_profile("strata"), derandomize=False, database=None
)
hypothesis.settings.load_profile("strata")

torch.set_num_threads(1)  # the networks of the tests are too small to share out

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Settings that derive their examples from the test itself would ignore a seed."""
    if config.getoption("hypothesis_seed", None) is not None:
        hypothesis.settings.load_profile("strata-seed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where shapes are checked, tests that are not to be checked have nothing to show."""
    if os.environ.get("SHAPES") != "1":
        return
    left = [item for item in items if "unchecked" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session", autouse=True)
def order_of_sums() -> Iterator[None]:
    """REORDERED=1 stands for another processor."""
    from reordered import Reordered

    with Reordered() if os.environ.get("REORDERED") == "1" else nullcontext():
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def benchmarks() -> Path:
    """The folder with the public benchmark families; it lies beside the repository, if at all."""
    folder = ROOT.parent / "shared" / "benchmarks"
    if not folder.is_dir():
        pytest.skip("the benchmark families are not here (../shared/benchmarks)")
    return folder


@pytest.fixture
def asked(root: Path, tmp_path: Path) -> list[str]:
    """An image of 8 x 8 for a network that takes 64 numbers."""
    import numpy as np

    with np.load(root / "properties/digits.npz") as data:
        np.save(tmp_path / "x.npy", data["images"][3])
        label = str(data["labels"][3])
    net = str(root / "properties/onnx/digits_fc.onnx")
    return ["robust", net, "--input", str(tmp_path / "x.npy"), "--label", label, "--threads", "1"]
