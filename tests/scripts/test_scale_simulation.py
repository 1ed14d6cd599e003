"""The simulation of many workers: it ends, and every domain of the tree is bounded once."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def simulation(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale_simulation", root / "scripts/scale_simulation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A complete tree of ten levels; one line stands twice, as that of a domain which is closed later."""
    lines = [{"id": k, "parent": k // 2 if k > 1 else None} for k in range(1, 2**11)]
    path = tmp_path / "tree.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, lines[-1]]))
    return path


def test_trees_are_read_and_copied(simulation: ModuleType, trace: Path) -> None:
    tree = simulation.Tree.read(trace)
    assert (tree.size, tree.roots) == (2**11 - 2, (1,))
    many = tree.copied(3)
    assert (many.size, len(many.roots)) == (3 * tree.size, 3)
    assert len({c for some in many.children.values() for c in some}) == many.size


def test_one_worker_takes_as_long_as_its_domains(simulation: ModuleType, trace: Path) -> None:
    tree = simulation.Tree.read(trace)
    costs = simulation.Costs(rate=100.0, batch=16, latency=0.0, message=0.0, domain=0.0)
    found = simulation.simulate(tree, 1, costs)
    assert found.seconds == pytest.approx(tree.size / 100)
    assert found.efficiency == pytest.approx(1.0)


@pytest.mark.parametrize("lost", [0.0, 60.0])
def test_many_workers_are_faster_and_lose_nothing(simulation: ModuleType, trace: Path, lost: float) -> None:
    tree = simulation.Tree.read(trace).copied(20)
    costs = simulation.Costs(rate=100.0, batch=16, lost=lost, start=1.0)
    seconds = [simulation.simulate(tree, workers, costs).seconds for workers in (1, 4, 40)]
    assert seconds[0] > 3 * seconds[1] > 6 * seconds[2]
    assert bool(simulation.simulate(tree, 40, costs).kills) == bool(lost)


def test_a_slow_coordinator_is_what_limits(simulation: ModuleType, trace: Path) -> None:
    tree = simulation.Tree.read(trace).copied(10)
    quick = simulation.simulate(tree, 50, simulation.Costs(rate=100.0, batch=16))
    slow = simulation.simulate(tree, 50, simulation.Costs(rate=100.0, batch=16, message=1.0))
    assert slow.seconds > 2 * quick.seconds
    assert slow.coordinating / slow.seconds > 0.8


def test_the_plot_is_a_picture(simulation: ModuleType, trace: Path, tmp_path: Path, capsys: object) -> None:
    simulation.main(
        [str(trace), "--workers", "1", "8", "--copies", "4", "--batch", "16", "-o", str(tmp_path / "s.svg")]
    )
    assert (tmp_path / "s.svg").read_text().startswith("<svg ")
