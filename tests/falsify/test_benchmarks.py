"""The presets on public instances with known verdicts."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from falsify.instances import search

from verifier.clock import Clock
from verifier.falsify.pgd import quick
from verifier.loading import GivenFiles
from verifier.network.models.onnx import load_onnx
from verifier.pipeline import problem_of
from verifier.property.heads import without_head
from verifier.property.problem import canonicalise
from verifier.property.vnnlib import load_property

# Families of which the quick preset found every known counterexample when this was written.
FOUND = (
    "cersyve collins_rul_cnn malbeware oval21_2021 rl_benchmarks safenlp sat_relu sri_resnet_b tllverifybench".split()
)
SAFE = "acasxu cersyve collins_rul_cnn cora mnist_fc oval21 rl_benchmarks safenlp sat_relu".split()
EACH = 3


def instances(folder: Path, verdict: str) -> list[tuple[Path, Path]]:
    """The first instances of a family with a verdict."""
    with (folder / "expected.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["expected"] == verdict]
    return [(folder / row["onnx"], folder / row["vnnlib"]) for row in rows[:EACH]]


@pytest.mark.slow
@pytest.mark.parametrize("family", FOUND)
def test_known_counterexamples_are_found_quickly(benchmarks: Path, family: str) -> None:
    for onnx, vnnlib in instances(benchmarks / family, "sat"):
        model = load_onnx(onnx)
        problem = canonicalise(model.network(), load_property(vnnlib))
        found = search(quick(), problem, model, Clock.begin())
        assert found is not None, f"{onnx.name} {vnnlib.name}"
        np.testing.assert_array_equal(model.run(found.x), found.y)
        clause = problem.property.clauses[found.clause]
        x, y = [Fraction(v) for v in found.x.tolist()], [Fraction(v) for v in found.y.tolist()]
        assert all(row.holds(x, y) for row in clause.rows.exact)
        boxes = problem.property.boxes
        # Where a box holds no float32 value (collins_rul_cnn has such points) the nearest one is taken.
        reach = np.zeros_like(found.x) if found.exact else np.spacing(np.abs(found.x))
        assert (boxes.lower[clause.box] - reach <= found.x).all()
        assert (found.x <= boxes.upper[clause.box] + reach).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", SAFE)
def test_nothing_is_found_where_the_property_holds(benchmarks: Path, family: str) -> None:
    for onnx, vnnlib in instances(benchmarks / family, "unsat"):
        model = load_onnx(onnx)
        problem = canonicalise(model.network(), load_property(vnnlib))
        assert search(quick(), problem, model, Clock.begin()) is None, f"{onnx.name} {vnnlib.name}"


@pytest.mark.slow
@pytest.mark.parametrize("number", [10, 21, 29])
def test_counterexamples_of_binarised_networks_are_found(benchmarks: Path, number: int) -> None:
    """Small boxes and large networks of signs: gradients must tell which neurons can be made to jump."""
    folder = benchmarks / "traffic_signs"
    with (folder / "expected.csv").open() as file:
        row = [row for row in csv.DictReader(file) if row["expected"] == "sat"][number]
    onnx, vnnlib = (next(folder.glob(f"{row[kind]}*")) for kind in ("onnx", "vnnlib"))
    loaded = GivenFiles(str(onnx), str(vnnlib)).load()
    problem = problem_of(loaded, seed=0, restate=without_head)
    assert search(quick(), problem, loaded.model, Clock.begin()) is not None
