"""The checker's networks and properties are those of the search: same groups, same neurons, same clauses."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from verifier.checker.graph import read_network
from verifier.checker.network import Network as Checked
from verifier.checker.vnnlib import read_property
from verifier.network.models.onnx import load_onnx
from verifier.property.vnnlib import load_property

BUNDLED = Path(__file__).resolve().parents[2] / "properties"
FAMILIES = """acasxu cersyve cifar10_resnet collins_rul_cnn cora linearizenn malbeware metaroom mnist_fc nn4sys oval21
    reach_prob_density relusplitter rl_benchmarks safenlp sat_relu sri_resnet_a tllverifybench verivital
    dist_shift eran_sigmoid""".split()


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def preactivations(net: Checked, x: np.ndarray) -> list[np.ndarray]:
    values, found = {0: x[None]}, []
    for k, layer in enumerate(net.layers, start=1):
        found.append(layer.moved(layer.forward(values)))
        values[k] = layer.function.value(found[-1])
    return found


def require_same(path: Path) -> None:
    mine, _ = read_network(unpacked(path))
    theirs = load_onnx(path).network()
    assert [layer.size for layer in mine.layers] == [layer.size for layer in theirs.layers]
    kinds = [layer.function.name for layer in mine.layers[:-1]]
    assert kinds == ["Relu" if group.function.is_relu else group.function.name for group in theirs.groups]
    assert [layer.sources for layer in mine.layers] == [[s for s, _ in layer.terms] for layer in theirs.layers]
    rng = np.random.default_rng(0)
    for _ in range(2):
        x = rng.normal(size=mine.n_in)
        for ours, t in zip(preactivations(mine, x), theirs.preactivations(torch.from_numpy(x)), strict=True):
            assert np.abs(ours[0] - t.numpy()).max() <= 1e-12 * (1 + np.abs(ours).max())


@pytest.mark.parametrize("name", sorted(path.name for path in (BUNDLED / "onnx").iterdir()))
def test_bundled_networks_have_the_same_neurons(name: str) -> None:
    require_same(BUNDLED / "onnx" / name)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_benchmark_networks_have_the_same_neurons(benchmarks: Path, family: str) -> None:
    for path in sorted((benchmarks / family / "onnx").iterdir())[:2]:
        require_same(path)


@pytest.mark.parametrize("name", sorted(path.name for path in (BUNDLED / "vnnlib").iterdir()))
def test_bundled_properties_have_the_same_clauses(name: str) -> None:
    mine, theirs = read_property((BUNDLED / "vnnlib" / name).read_text()), load_property(BUNDLED / "vnnlib" / name)
    assert len(mine) == len(theirs.clauses)
    for ours, clause in zip(mine, theirs.clauses, strict=True):
        assert np.array_equal(ours.low, theirs.boxes.lower[clause.box])
        assert np.array_equal(ours.high, theirs.boxes.upper[clause.box])
        a, b, c = ours.exact
        assert len(c) == len(clause.rows.exact)
        for i, row in enumerate(clause.rows.exact):
            assert {j: v for j, v in enumerate(a[i]) if v} == dict(row.y)
            assert {j: v for j, v in enumerate(b[i]) if v} == dict(row.x)
            assert c[i] == row.bound


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        (
            "(assert (or (and (<= Y_0 1) (or (<= Y_1 2) (<= Y_1 3))) (<= Y_0 4)))(assert (or (<= X_0 0.5) (>= X_0 2)))",
            3,
        ),
        ("(assert (or (<= X_0 -0.5) (<= 1 0) (<= Y_0 0)))", 1),
        ("(assert (< X_0 0))(assert (<= Y_0 0))", 0),
        ("(assert (>= (+ Y_0 (* 2 Y_1) (- X_0)) (- 3 0.5)))", 1),
    ],
)
def test_clauses_are_counted_as_the_search_does(tmp_path: Path, text: str, clauses: int) -> None:
    declared = "".join(f"(declare-const {name} Real)" for name in ("X_0", "Y_0", "Y_1"))
    path = tmp_path / "p.vnnlib"
    path.write_text(declared + "(assert (>= X_0 0))(assert (<= X_0 1)); a comment\n" + text)
    mine, theirs = read_property(path.read_text()), load_property(path)
    assert len(mine) == len(theirs.clauses) == clauses
    for ours, clause in zip(mine, theirs.clauses, strict=True):
        assert [dict(row.y) for row in clause.rows.exact] == [
            {j: v for (kind, j), v in row.items() if kind == "Y" and v} for row in ours.rows
        ]
