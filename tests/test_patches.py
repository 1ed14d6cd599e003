"""Patches decided: the exact law on affine networks, and witnesses that are the image outside of a patch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import verifier
from verifier.cli.main import run

HEIGHT, WIDTH = 3, 4
PLACES = [(i, j) for i in range(HEIGHT - 1) for j in range(WIDTH - 1)]


def affine(weight: np.ndarray[Any, Any], bias: float) -> nn.Module:
    """y = (w x + bias, 0) of images: class 0 wins where w x > -bias."""
    linear = nn.Linear(weight.size, 2).double()
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(np.stack([weight.reshape(-1), np.zeros(weight.size)])))
        linear.bias.copy_(torch.tensor([bias, 0.0]))
    return nn.Sequential(nn.Flatten(), linear)


def inside(x: np.ndarray[Any, Any], image: np.ndarray[Any, Any], place: tuple[int, int]) -> bool:
    """Whether x, of channels x HEIGHT x WIDTH, is the image but for a patch of 2 x 2 there."""
    other = np.abs(x - image).max(axis=0) > 0
    other[place[0] : place[0] + 2, place[1] : place[1] + 2] = False
    return not other.any()


@pytest.mark.parametrize("seed", range(2))
def test_the_least_value_of_an_affine_network_is_exact(seed: int) -> None:
    """A patch takes every pixel to the end that its weight has: w x falls by the sum of what these give."""
    rng = np.random.default_rng(seed)
    weight, x = rng.normal(size=(2, HEIGHT, WIDTH)), rng.uniform(0.25, 0.75, (2, HEIGHT, WIDTH))
    gain = np.minimum(-weight * x, weight * (1 - x)).sum(axis=0)
    least = {(i, j): float((weight * x).sum() + gain[i : i + 2, j : j + 2].sum()) for i, j in PLACES}
    worst = min(least, key=lambda place: least[place])
    best = max(least, key=lambda place: least[place])
    for at, value in ((None, least[worst]), (best, least[best])):
        for offset, expected in ((1e-7, "unsat"), (-1e-4, "sat")):
            module = affine(weight, offset - value)
            found = verifier.robust(module, x, label=0, patch=(2, 2), at=at, clip=(0, 1), threads=1)
            assert found.verdict.value == expected
            if expected == "sat":
                witness = found.counterexample.x.reshape(x.shape)
                assert inside(witness, x, worst if at is None else at)
                assert witness.min() >= 0
                assert witness.max() <= 1


def test_a_patch_from_the_command_line(asked: list[str], tmp_path: Path) -> None:
    from verifier.property.vnnlib import load_property

    out, witness = tmp_path / "p.vnnlib", tmp_path / "r"
    assert run([*asked, "--patch", "3", "3", "--clip", "0", "1", "-o", str(out), "--verify", "--result", str(witness)])
    assert len(load_property(out).boxes) == 36
    assert witness.read_text().startswith("sat\n")
    assert run([*asked, "--patch", "1", "1", "--at", "0", "7", "--clip", "0", "1", "-o", str(out)]) == 0
    boxes = load_property(out).boxes
    assert np.flatnonzero(boxes.upper[0] > boxes.lower[0] + 0.5).tolist() == [7]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ([], "Give --eps, --patch, or --brightness and --contrast"),
        (["--at", "0", "0", "--eps", "1"], "--at is the place of a patch"),
        (["--patch", "1", "1"], "--patch needs --clip"),
        (["--patch", "1", "1", "--clip", "0", "1", "--eps", "1"], "--eps and --patch are two kinds of change"),
        (["--patch", "1", "1", "--clip", "0", "1", "--norm", "2"], "--norm is that of a ball"),
        (["--patch", "0", "1", "--clip", "0", "1"], "--patch"),
        (["--patch", "9", "1", "--clip", "0", "1"], "patch: 9 x 1 pixels do not fit into an image of 8 x 8"),
        (["--patch", "2", "2", "--at", "7", "0", "--clip", "0", "1"], "at: a patch of 2 x 2 pixels at row 7"),
    ],
)
def test_refusals_name_the_flag(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], how: list[str], words: str
) -> None:
    assert run([*asked, *how, "-o", str(tmp_path / "p.vnnlib")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "p.vnnlib").exists()
