"""Whole runs on a device that is not the CPU, attack, root, signs, boxes, leaves: the same trees, the same answers."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from verifier.config import load_config
from verifier.loading import given
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.result.result import Result

FEW = ("search.tiers.0.iterations=4", "search.look=0", "falsify.enabled=false")
"""Ascents that are short, so that there is something to split; and nothing that a clock decides."""


def decided(root: Path, names: tuple[str, str], device: object, *options: str) -> Result:
    network, prop = (str(root / "properties" / name) for name in names)
    config = load_config("auto", options)
    request = Request(given(network, prop, (None, None, None), None), config, Machine(str(device), 1, 600.0))
    return decide(request, request.status())


def told(result: Result) -> tuple[object, ...]:
    """What does not depend on how long things take."""
    witness, counts = result.counterexample, replace(result.statistics, peak_rss_mb=0.0)
    return result.verdict, counts, None if witness is None else witness.x.tolist()


INSTANCES = {
    "signs": ("onnx/digits_fc.onnx", "vnnlib/fc_branch_1442.vnnlib", "search.splitting=relus", *FEW),
    "signs behind convolutions": (
        "onnx/digits_conv.onnx",
        "vnnlib/conv_branch_1444.vnnlib",
        "search.splitting=relus",
        *FEW,
    ),
    "leaves": (
        "onnx/toy.onnx",
        "vnnlib/toy_positive.vnnlib",
        "search.splitting=relus",
        "search.tiers.0.iterations=1",
        "falsify.enabled=false",
    ),
    "boxes": ("onnx/toy.onnx", "vnnlib/toy_positive.vnnlib", "search.splitting=inputs", "falsify.enabled=false"),
    "an attack": ("onnx/digits_res.onnx", "vnnlib/res_sat_1443.vnnlib"),
    "an attack on few inputs": ("onnx/cart_controller.onnx", "vnnlib/cart_deviation_far.vnnlib"),
}


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", INSTANCES)
def test_a_run_is_the_same_on_the_stand_in(name: str, root: Path, device: torch.device) -> None:
    network, prop, *options = INSTANCES[name]
    here, there = (decided(root, (network, prop), place, *options) for place in ("cpu", device))
    assert there.device == str(device)
    assert told(here) == told(there)


def bundled(root: Path) -> list[tuple[str, str]]:
    with (root / "properties" / "instances.csv").open() as file:
        return [(network, prop) for network, prop, _ in csv.reader(file)]


@pytest.mark.slow
def test_all_bundled_instances_have_their_verdicts_there(root: Path, device: torch.device) -> None:
    """By every way to split; which one is taken when may depend on the time, verdicts do not."""
    with (root / "properties" / "expected.csv").open() as file:
        expected = {line["vnnlib"]: line["expected"] for line in csv.DictReader(file)}
    for names in bundled(root):
        assert decided(root, names, device).verdict.value == expected[names[1]], names
