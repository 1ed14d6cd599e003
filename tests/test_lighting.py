"""Brightness and contrast decided: exact laws on affine networks, witnesses that are images, files that are kept."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import verifier
from verifier.cli.main import run
from verifier.errors import InputError
from verifier.property.lighting import Lighting
from verifier.property.vnnlib import parse
from verifier.result.counterexample import replay

Array = np.ndarray[Any, Any]


def affine(weight: Array, bias: float) -> nn.Module:
    """y = (w x + bias, 0) of images: class 0 wins where w x > -bias."""
    linear = nn.Linear(weight.size, 2).double()
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(np.stack([weight.reshape(-1), np.zeros(weight.size)])))
        linear.bias.copy_(torch.tensor([bias, 0.0]))
    return nn.Sequential(nn.Flatten(), linear)


def decided(weight: Array, x: Array, least: float, **how: Any) -> None:
    """`unsat` just above the least value of w x, `sat` just below it, with an image as it was asked about."""
    for offset, expected in ((1e-7, "unsat"), (-1e-4, "sat")):
        found = verifier.robust(affine(weight, offset - least), x, label=0, threads=1, **how)
        assert found.verdict.value == expected
        if found.counterexample is None:
            continue
        (b, c), image = found.counterexample.x, found.counterexample.image
        assert image is not None
        assert abs(b) <= how.get("brightness", 0)
        assert abs(c) <= how.get("contrast", 0)
        wanted = (1 + c) * x + b
        assert image == pytest.approx(np.clip(wanted, *how["clip"]) if "clip" in how else wanted, abs=1e-9)
        assert image.shape == x.shape
        assert found.as_dict()["counterexample"]["image"] == image.tolist()
        assert "data:image/png" in found._repr_html_()


@pytest.mark.parametrize("seed", range(2))
def test_the_least_value_of_an_affine_network_is_exact(seed: int) -> None:
    """w ((1 + c) x + b) falls by C |w x| and by B |sum w|."""
    rng = np.random.default_rng(seed)
    weight, x = rng.normal(size=(4, 5)), rng.uniform(0, 1, (4, 5))
    value = float((weight * x).sum())
    least = value - 0.2 * abs(value) - 0.1 * abs(float(weight.sum()))
    decided(weight, x, least, brightness=0.1, contrast=0.2)
    decided(weight, x, value - 0.2 * abs(value), contrast=0.2)


def test_what_is_cut_off_is_exact() -> None:
    """Without contrast a function of b with a kink wherever a pixel meets an end of the range."""
    x = np.random.default_rng(3).uniform(0, 1, (4, 5))
    weight = np.where(x > 0.6, -2.0, 1.0)  # falls until bright pixels are white, then rises
    kinks = [-0.5, 0.5, *[k for k in np.concatenate([-x.reshape(-1), 1 - x.reshape(-1)]) if abs(k) <= 0.5]]
    values = {b: float((weight * np.clip(x + b, 0, 1)).sum()) for b in kinks}
    least = min(values.values())
    assert least != pytest.approx(min(values[-0.5], values[0.5]), abs=1e-3)  # the ends alone would be wrong
    decided(weight, x, least, brightness=0.5, clip=(0, 1))


def test_normalisation_is_part_of_the_network() -> None:
    """(image - mean) / std per channel, after the change and after it is cut off."""
    weight = np.zeros((3, 4, 4))
    weight[0, 0, 0], weight[1, 0, 0] = 1.0, -2.0
    x = np.full((3, 4, 4), 0.5)
    how = {"brightness": 0.1, "clip": (0, 1), "mean": [0.25, 0.5, 0], "std": [0.5, 0.25, 1]}
    value = {b: (0.5 + b - 0.25) / 0.5 - 2 * (b / 0.25) for b in (-0.1, 0.1)}
    decided(weight, x, min(value.values()), **how)


def test_a_witness_needs_the_network_behind_the_layer() -> None:
    """An answer of the whole that the network itself does not give to the image is no counterexample."""
    x = np.full((4, 4), 0.5)
    task = Lighting(x, 0, 2, brightness=0.1)

    class Front:
        def __init__(self, y: list[float]) -> None:
            self.y = np.array(y)

        def answer(self, p: Array) -> Array:
            return self.y

        def image(self, p: Array) -> Array:
            return x

    class Whole:
        def __init__(self, behind: list[float]) -> None:
            self.front = Front(behind)

        def run(self, p: Array) -> Array:
            return np.array([0.0, 1.0])

    assert replay(np.zeros(2), Whole([1.0, 0.0]), task.property(), 0) is None
    assert replay(np.zeros(2), Whole([np.nan, 1.0]), task.property(), 0) is None
    found = replay(np.zeros(2), Whole([0.0, 0.5]), task.property(), 0)
    assert found is not None
    assert found.image is x


def test_balls_take_images_too_where_the_network_is_flat(asked: list[str], tmp_path: Path) -> None:
    """The same property as of the flat array; a column is no image."""
    flat = np.load(tmp_path / "x.npy").reshape(-1)
    assert run([*asked, "--eps", "1/16", "-o", str(tmp_path / "image.vnnlib")]) == 0
    np.save(tmp_path / "x.npy", flat)
    assert run([*asked, "--eps", "1/16", "-o", str(tmp_path / "flat.vnnlib")]) == 0
    assert (tmp_path / "image.vnnlib").read_text() == (tmp_path / "flat.vnnlib").read_text()
    np.save(tmp_path / "x.npy", flat.reshape(64, 1))
    assert run([*asked, "--eps", "1/16", "-o", str(tmp_path / "column.vnnlib")]) == 2


@pytest.mark.parametrize(("share", "code"), [("0.05", 0), ("0.9", 1)])
def test_files_that_are_kept_ask_the_same(asked: list[str], tmp_path: Path, share: str, code: int) -> None:
    files = [str(tmp_path / name) for name in ("p.vnnlib", "n.onnx", "out.json", "w.npy")]
    how = ["--brightness", share, "--contrast", share, "--clip", "0", "1"]
    outputs = ["-o", files[0], "--composed", files[1]]
    assert run([*asked, *how, *outputs, "--verify", "--json", files[2], "--image", files[3]]) == code
    found = json.loads(Path(files[2]).read_text())
    assert found["network_sha256"] == hashlib.sha256(Path(files[1]).read_bytes()).hexdigest()
    kept = [Path(path).read_bytes() for path in files[:2]]
    assert run([*asked, *how, *outputs]) == 0
    assert [Path(path).read_bytes() for path in files[:2]] == kept
    assert run([files[1], files[0], "--threads", "1"]) == code
    assert Path(files[3]).exists() == bool(code)
    if code:
        image = np.load(files[3])
        b, c = found["counterexample"]["x"]
        assert image == pytest.approx(np.clip((1 + c) * np.load(tmp_path / "x.npy") + b, 0, 1), abs=1e-5)
        assert run([*asked, *how, "--verify", "--image", str(tmp_path / "w.png")]) == 1
        assert (tmp_path / "w.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (["--brightness", "-1"], "brightness is -1, it must not be negative"),
        (["--contrast", "x"], "contrast is 'x', which is not a finite number"),
        (["--brightness", "1", "--eps", "1"], "--eps and --brightness are two kinds of change"),
        (["--contrast", "1", "--patch", "1", "1"], "--patch and --contrast are two kinds of change"),
        (["--contrast", "1", "--norm", "2"], "--norm is that of a ball"),
        (["--brightness", "1", "--clip", "0", "0.5"], "is not in the clipping range"),
        (["--eps", "1", "--image", "w.npy"], "--image needs --brightness or --contrast"),
        (["--brightness", "1", "--image", "w.jpg"], "a file that ends in .npy or .png"),
        (["--brightness", "1", "-o", "p.vnnlib"], "-o P.vnnlib and --composed N.onnx go together"),
    ],
)
def test_refusals_name_the_flag(
    asked: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    how: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*asked, *how, "--verify"]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_the_property_is_about_two_inputs() -> None:
    prop = parse(Lighting(np.full((4, 4), 0.5), 1, 3, "1/3", 0.25).vnnlib())
    assert (prop.n_x, prop.n_y, len(prop.clauses)) == (2, 3, 2)
    assert prop.boxes.lower[0].tolist() == pytest.approx([-1 / 3, -0.25])
    assert prop.boxes.upper[0].tolist() == pytest.approx([1 / 3, 0.25])
    assert prop.boxes.upper[0][0] >= 1 / 3


@pytest.mark.parametrize("how", [{"eps": 0.1}, {"patch": (1, 1)}, {"brightness": 0.1}])
def test_a_range_is_a_pair(how: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="clip is a pair of numbers, the range of valid inputs, not 5"):
        verifier.robust(affine(np.ones((4, 4)), 0.0), np.full((4, 4), 0.5), label=0, clip=5, **how)
