"""Every network of the public families loads, lowers and agrees with onnxruntime; the count is part of the test."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pytest

import verifier
from verifier.config import load_config
from verifier.errors import UnsupportedOperator
from verifier.network.judge import check_against
from verifier.network.models.onnx import load_onnx
from verifier.property.vnnlib import load_property
from verifier.result.verdict import Reason, Verdict

LOWERED = {
    "acasxu": 45,
    "cersyve": 9,
    "cifar10_resnet": 2,
    "collins_rul_cnn": 3,
    "cora": 3,
    "dist_shift": 1,
    "eran_mnist": 1,
    "eran_sigmoid": 1,
    "linearizenn": 10,
    "lsnc_relu": 1,
    "malbeware": 2,
    "marabou_cifar10": 3,
    "mnist_fc": 3,
    "oval21": 3,
    "oval21_2021": 3,
    "oval_paper": 6,
    "reach_prob_density": 3,
    "relusplitter": 21,
    "rl_benchmarks": 3,
    "safenlp": 2,
    "sat_relu": 74,
    "sri_resnet_a": 1,
    "sri_resnet_b": 1,
    "test": 5,
    "tllverifybench": 24,
    "verivital": 2,
    "vnnlib2_samples": 2,
}
LARGE = {"cgan": (7, 0), "cifar_biasfield": (12, 0), "metaroom": (10, 0), "nn4sys_2021": (6, 0), "yolo": (1, 0)}
"""Families of large networks: how many are lowered, how many are refused."""
SMOOTH = {
    "carvana_unet": (0, 2),
    "cctsdb_yolo": (0, 2),
    "lsnc": (2, 0),
    "ml4acopf": (9, 0),
    "nn4sys": (9, 0),
    "traffic_signs": (3, 0),
    "vit": (2, 0),
}
"""Families with functions and products that have no pieces, and with integers."""
SLOW = {"tllverifybench", "ml4acopf"}


def box_of(folder: Path, network: Path, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The input box of the network's first property, or the unit box if it has none of its own."""
    name = network.name.removesuffix(".gz")
    if (folder / "instances.csv").exists() and folder.name != "vnnlib2_samples":
        for row in csv.reader((folder / "instances.csv").read_text().splitlines()):
            if row[0].endswith("/" + name):
                boxes = load_property(folder / row[1]).boxes
                return np.asarray(boxes.lower[0]), np.asarray(boxes.upper[0])
    return np.zeros(size), np.ones(size)


def files_of(folder: Path) -> list[Path]:
    """The networks of a family; which families lie beside the repository is no matter of its tests."""
    if not (folder / "onnx").is_dir():
        pytest.skip(f"the family {folder.name} is not here")
    return sorted((folder / "onnx").iterdir())


def first_instance(folder: Path, name: str) -> tuple[Path, Path]:
    """The first network of a family with that name in its path, and its property."""
    files_of(folder)
    rows = csv.reader((folder / "instances.csv").read_text().splitlines())
    network, prop, _ = next(row for row in rows if name in row[0])
    return folder / network, folder / prop


def families(names: Iterable[str], slow: Collection[str] = SLOW) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "family", [pytest.param(name, marks=pytest.mark.slow if name in slow else []) for name in names]
    )


@families(LOWERED)
def test_family(family, benchmarks):
    files = files_of(benchmarks / family)
    assert len(files) == LOWERED[family]
    for path in files:
        model = load_onnx(path)
        network = model.network()
        lower, upper = box_of(benchmarks / family, path, network.n_in)
        check_against(model, network, (lower, upper), seed=0, count=6)


@families(SMOOTH | LARGE, SLOW | set(LARGE))
def test_what_is_not_lowered_is_refused_by_name(family, benchmarks):
    lowered, refused = 0, []
    for path in files_of(benchmarks / family):
        model = load_onnx(path)
        try:
            network = model.network()
        except UnsupportedOperator as error:
            refused.append((error.node, error.op_type))
            continue
        check_against(model, network, box_of(benchmarks / family, path, network.n_in), seed=0, count=4)
        lowered += 1
    assert (lowered, len(refused)) == (SMOOTH | LARGE)[family]
    assert all(node and op_type for node, op_type in refused)


def test_every_family_is_in_one_of_the_tables(benchmarks):
    """All but four of the networks are lowered; those four count and cast, and are attacked and named."""
    present = {folder.name: len(files_of(folder)) for folder in benchmarks.iterdir() if (folder / "onnx").is_dir()}
    tables = LOWERED | {family: sum(counts) for family, counts in (SMOOTH | LARGE).items()}
    assert present == {family: tables[family] for family in present}
    counts = [*((n, 0) for n in LOWERED.values()), *SMOOTH.values(), *LARGE.values()]
    assert tuple(map(sum, zip(*counts, strict=True))) == (295, 4)


@pytest.mark.parametrize("name", ["unet_simp_small", "unet_upsample_small"])
def test_what_cannot_be_bounded_is_attacked_and_named(name, benchmarks):
    network, prop = first_instance(benchmarks / "carvana_unet", name)
    config = load_config("auto", ["falsify.seconds=0.05"])
    result = verifier.verify(network, prop, config=config, threads=1, timeout=60)
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.UNSUPPORTED)
    assert "of type ArgMax" in (result.message or "")
    found = [error.op_type for error in load_onnx(network).refusals()]
    assert found[0] == "ArgMax"
    assert {"ArgMax", "OneHot", "Equal"} <= set(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["patch-1", "patch-3"])
def test_what_reads_integers_is_tried_by_all_of_them(name, benchmarks):
    """Either every combination is looked at, or the answer names the operator that is in the way."""
    network, prop = first_instance(benchmarks / "cctsdb_yolo", name)
    result = verifier.verify(network, prop, threads=1, timeout=120)
    assert result.verdict in {Verdict.SAT, Verdict.UNSAT} or "of type" in (result.message or "")


RELUS = {"base": 3172, "wide": 6244, "deep": 6756}


@pytest.mark.parametrize("name", RELUS)
def test_relu_counts(name, benchmarks):
    (path,) = (benchmarks / "oval21" / "onnx").glob(f"*{name}*")
    network = load_onnx(path).network()
    assert network.relus == RELUS[name]
    kinds = {type(term).__name__ for layer in network.layers for _, term in layer.terms}
    assert kinds == {"Conv", "Dense"}
