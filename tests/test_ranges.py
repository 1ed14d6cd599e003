"""Certified ranges against exact ones: enumerated small networks, boxes and balls, files and the command line."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import ball_oracle
import numpy as np
import oracle
import pytest
import torch
from ball_oracle import BallCase, Layer
from torch import nn

import verifier
from verifier.cli.main import run
from verifier.cli.ranges_session import Shown
from verifier.config import load_config
from verifier.errors import InputError
from verifier.falsify.lowest import Lowest
from verifier.ranging.sides import Side
from verifier.ranging.turns import SideSearch
from verifier.result.ranges import End, Range, Ranges
from verifier.search.loop import Search


def random_layers(seed: int, sizes: tuple[int, ...]) -> list[Layer]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(m, k)) / np.sqrt(k), 0.5 * rng.normal(size=m)) for k, m in itertools.pairwise(sizes)]


def module_of(layers: list[Layer]) -> nn.Module:
    parts: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(*reversed(weight.shape)).double()
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy())
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def check(end: End, exact: float, sign: int, gap: float) -> None:
    """Outside of the exact end by no more than the gap, and the point not beyond it."""
    assert end.inner is not None
    assert sign * (exact - end.outer) >= -1e-9
    assert sign * (end.inner - exact) >= -1e-6
    assert end.gap <= gap * max(1.0, abs(end.inner))


@pytest.mark.parametrize("seed", range(4))
def test_ranges_of_boxes_are_the_exact_ones(seed: int) -> None:
    layers = random_layers(seed, (3, 6, 5, 2))
    box = oracle.random_box(np.random.default_rng(seed), 3)
    found = verifier.ranges(module_of(layers), lower=box[0], upper=box[1], gap=1e-3, threads=1)
    assert found.closed
    for one, row in zip(found.ranges, np.eye(2), strict=True):
        least, most = (sign * oracle.minimum(oracle.chain(layers), box, sign * row) for sign in (1, -1))
        check(one.lower, least, 1, 1e-3)
        check(one.upper, most, -1, 1e-3)
        for end in (one.lower, one.upper):
            assert end.point is not None
            assert ((box[0] <= end.point) & (end.point <= box[1])).all()


@pytest.mark.parametrize(
    "options",
    [["search.splitting=relus"], ["search.splitting=relus", "search.sharpen.after=0"], ["search.splitting=inputs"]],
    ids=["signs", "sharpened", "boxes"],
)
@pytest.mark.parametrize("seed", range(2))
def test_every_bound_on_the_way_is_valid(seed: int, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descents thresholds are far too high at first: the tree goes on, and bounds rise to the exact ends."""
    layers = random_layers(seed + 20, (3, 8, 8, 1))
    box = oracle.random_box(np.random.default_rng(seed), 3)
    middle = (box[0] + box[1]) / 2
    exact = {sign: oracle.minimum(oracle.chain(layers), box, np.array([float(sign)])) for sign in (1, -1)}
    steps: list[tuple[Side, float, float]] = []
    learn = SideSearch._learn

    def noted(self: SideSearch, search: Search) -> None:
        learn(self, search)
        steps.append((self.side, self.side.proved, self.at))

    monkeypatch.setattr(SideSearch, "_learn", noted)
    monkeypatch.setattr(Lowest, "points", lambda *_: torch.from_numpy(np.stack([middle, middle]))[:, None])
    monkeypatch.setattr(Lowest, "lowered", lambda self, target, x, *_: x)
    config = load_config("auto", options)
    found = verifier.ranges(module_of(layers), lower=box[0], upper=box[1], gap=1e-3, threads=1, config=config)
    check(found[0].lower, exact[1], 1, 1e-3)
    check(found[0].upper, -exact[-1], -1, 1e-3)
    assert max(at - exact[side.sign] for side, _, at in steps) > 1e-2  # at least one threshold was too high
    for side, proved, _ in steps:
        assert proved <= exact[side.sign] + 1e-9
    assert found.domains == sum({side: side.domains for side, _, _ in steps}.values())


def test_claims_are_no_bounds(root: Path) -> None:
    """What the root proves is left, and the reason is told."""
    net, box = root / "properties/onnx/toy.onnx", {"lower": [-1.0, -1.0], "upper": [1.0, 2.0]}
    found = verifier.ranges(net, **box, config=load_config("auto", ["search.splitting=mip"]), threads=1)
    assert found.reason is verifier.Reason.CLAIMED
    assert "is not proved" in str(found)
    assert found.upper[0] > 2.1


def test_forks_find_the_same_ranges(root: Path) -> None:
    files = root / "properties/onnx/cart_controller.onnx", root / "properties/vnnlib/cart_range.vnnlib"
    alone, forked = (verifier.ranges(*files, gap=0.05, threads=threads) for threads in (1, 2))
    assert alone.closed
    assert forked.closed
    assert forked.domains > 0
    assert forked.lower == pytest.approx(alone.lower, abs=0.05)
    assert forked.upper == pytest.approx(alone.upper, abs=0.05)


def test_rows_that_would_be_scaled_are_refused() -> None:
    """Their bounds would be those of another function."""
    module = module_of([(np.array([[1.0]]), np.array([0.0]))])
    for value in (1e30, 1e-30):
        with pytest.raises(InputError, match=re.escape(f"row 0 has the largest coefficient {value:g}: scale it")):
            verifier.ranges(module, lower=[-1], upper=[1], rows=[[value]])
    found = verifier.ranges(module, lower=[-1], upper=[1], rows=[[1e15]], gap=1e-3, threads=1)
    assert found.lower[0] <= -1e15
    assert found.lower[0] >= -1.001e15


@pytest.mark.parametrize("norm", [1, 2])
def test_ranges_of_balls_are_the_exact_ones(norm: int) -> None:
    layers = random_layers(norm, (3, 4, 1))
    centre = np.array([0.1, -0.3, 0.2])
    case = BallCase(norm, centre, np.ones(3), 0.7, centre - 0.7, centre + 0.7)
    found = verifier.ranges(module_of(layers), around=verifier.Around(centre, 0.7, norm), gap=1e-3, threads=1)
    least = ball_oracle.minimum(layers, case, np.ones(1))
    most = -ball_oracle.minimum(layers, case, -np.ones(1))
    check(found[0].lower, least, 1, 1e-3)
    check(found[0].upper, most, -1, 1e-3)


def test_other_functions_than_outputs() -> None:
    """Y_0 - Y_1 and 3 Y_0 of an affine network, by hand."""
    module = module_of([(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([0.5, -1.0]))])
    found = verifier.ranges(module, lower=[0, 0], upper=[1, 1], rows=[[1, -1], [3, 0]], gap=1e-6, threads=1)
    assert [str(one) for one in found.ranges] == ["row 0 in [1.5, 3.5]", "row 1 in [1.5, 10.5]"]
    assert found.lower.tolist() == pytest.approx([1.5, 1.5], abs=2e-5)
    with pytest.raises(InputError, match=r"rows have the shape \(1, 3\); a matrix with 2 columns is expected"):
        verifier.ranges(module, lower=[0, 0], upper=[1, 1], rows=[[1, -1, 0]])
    with pytest.raises(InputError, match="gap is 0; it must be a positive number"):
        verifier.ranges(module, lower=[0, 0], upper=[1, 1], gap=0)


def test_no_time_is_an_answer_too(root: Path) -> None:
    """Whatever is known by then is certified: it contains what points reach."""
    files = root / "properties/onnx/digits_fc.onnx", root / "properties/vnnlib/fc_branch_1438.vnnlib"
    found = verifier.ranges(*files, timeout=0.0, threads=1)
    assert not found.closed
    assert found.reason is verifier.Reason.TIMEOUT
    known = verifier.ranges(*files, gap=100.0, threads=1)
    assert known.domains == 0
    for one in known.ranges:
        assert one.lower.inner is not None
        assert one.upper.inner is not None
        assert one.lower.outer <= one.lower.inner <= one.upper.inner <= one.upper.outer


def test_several_boxes_count_together(root: Path, tmp_path: Path) -> None:
    """|x0| + |x1| - |x0 + x1| is zero where signs agree, and 2 min(|x0|, |x1|) elsewhere."""
    prop = tmp_path / "two.vnnlib"
    prop.write_text(
        "(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n(assert (or\n"
        "(and (>= X_0 0) (<= X_0 1) (>= X_1 0) (<= X_1 1) (>= Y_0 0))\n"
        "(and (>= X_0 -1) (<= X_0 -0.5) (>= X_1 0.5) (<= X_1 1) (>= Y_0 0))))\n"
    )
    found = verifier.ranges(root / "properties/onnx/toy.onnx", prop, threads=1)
    check(found[0].lower, 0.0, 1, 1e-3)
    check(found[0].upper, 2.0, -1, 1e-3)


def test_the_command(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "l.npy", np.array([-1.0, -1.0]))
    np.save(tmp_path / "u.npy", np.array([1.0, 2.0]))
    box = ["--lower", str(tmp_path / "l.npy"), "--upper", str(tmp_path / "u.npy")]
    out = tmp_path / "out.json"
    net = str(root / "properties/onnx/toy.onnx")
    assert run(["ranges", net, *box, "--json", str(out), "--threads", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["output", "certified", ">=", "reached", "reached", "certified", "<=", "gap"]
    assert printed[1].startswith("Y_0")
    assert printed[-1].startswith("2 of 2 ends within 0.001; ")
    (found,) = json.loads(out.read_text())["ranges"]
    assert found["upper"]["inner"] == pytest.approx(2.0, abs=1e-2)
    assert 2.0 <= found["upper"]["outer"] <= 2.003
    np.save(tmp_path / "u.npy", np.array([1.0, 2.0, 3.0]))
    assert run(["ranges", net, *box]) == 2
    assert f"--lower {tmp_path / 'l.npy'} --upper {tmp_path / 'u.npy'}: lower has the shape" in capsys.readouterr().err
    np.save(tmp_path / "l.npy", np.zeros((8, 8)))
    np.save(tmp_path / "u.npy", np.ones((8, 8)))
    assert run(["ranges", str(root / "properties/onnx/digits_fc.onnx"), *box]) == 2
    assert "takes an input of shape (1, 64), or flat of shape (64,), not (8, 8)" in capsys.readouterr().err
    assert run(["ranges", net]) == 2
    assert "either by PROP or by both --lower and --upper" in capsys.readouterr().err


def test_a_table_is_written_over_itself(capsys: pytest.CaptureFixture[str]) -> None:
    ranges = tuple(Range(f"Y_{j}", End(0.0, 0.1), End(1.0, 0.9)) for j in range(30))
    shown = Shown()
    shown.update(Ranges(ranges, 0.5))
    first = capsys.readouterr().err
    assert "and 10 more" in first
    assert "\x1b" not in first
    shown.update(Ranges(ranges, 0.5))
    assert capsys.readouterr().err.startswith(f"\x1b[{first.count(chr(10))}A\x1b[J")
    shown.clear()
    shown.clear()
    assert capsys.readouterr().err == f"\x1b[{first.count(chr(10))}A\x1b[J"


@pytest.mark.parametrize("method", ["alpha_crown", "propagated", "big_m"])
def test_bounds_of_layers_by_methods_with_iterations(method: str) -> None:
    """Never looser than those that they begin with, tighter at the output, and valid at points."""
    layers = random_layers(7, (4, 10, 10, 2))
    low, high = oracle.random_box(np.random.default_rng(7), 4)
    module = module_of(layers)
    plain = verifier.bounds(module, lower=low, upper=high)
    found = verifier.bounds(module, lower=low, upper=high, method=method)
    for (l_hat, u_hat), (first, last) in zip(found, plain, strict=True):
        assert (l_hat >= first - 1e-9).all()
        assert (u_hat <= last + 1e-9).all()
    assert float((found[-1][1] - found[-1][0]).sum()) < 0.99 * float((plain[-1][1] - plain[-1][0]).sum())
    x = torch.from_numpy(low + (high - low) * np.random.default_rng(0).random((500, 4)))
    y = module(x)
    assert ((y >= found[-1][0]) & (y <= found[-1][1])).all()
