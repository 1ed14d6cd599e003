"""The figure of bound against time."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.bounding import BOUNDERS
from verifier.errors import InputError
from verifier.report import curves
from verifier.report.curves import COLOURS, draw
from verifier.result.lower_bounds import LowerBounds, RowBound
from verifier.result.result import Setting

PNG = b"\x89PNG\r\n\x1a\n"


def result(method: str, *values: float) -> LowerBounds:
    """A method whose bound took those values, one every tenth of a second."""
    curve = tuple(((i + 1) / 10, value) for i, value in enumerate(values))
    row = RowBound(0, 0, values[-1] if values else None)
    return LowerBounds(method, (row,), 1, curve=curve, setting=Setting("a/net.onnx", "b/p.vnnlib"))


def test_a_figure_of_every_kind_of_method(tmp_path: Path) -> None:
    found = [result("interval", -90.0), result("crown", -1.0), result("big_m", -1.0, -0.8, -0.5), result("lp", -0.4)]
    draw(found, str(tmp_path / "f.png"))
    assert (tmp_path / "f.png").read_bytes().startswith(PNG)
    draw(found, str(tmp_path / "f.svg"))
    text = (tmp_path / "f.svg").read_text()
    for word in ("net.onnx, p.vnnlib", "big_m", "crown", "lp", "(below)"):
        assert f"<!-- {word}" in text or word in text


@pytest.mark.parametrize(
    "found",
    [
        [result("crown")],
        [result("crown", 0.0)],
        [result("crown", 1e-9), result("big_m", 1e-9, 1e-9)],
        [result("alpha_crown", -1e30, 1e30)],
        [LowerBounds("crown")],
    ],
)
def test_figures_of_little_are_figures(tmp_path: Path, found: list[LowerBounds]) -> None:
    draw(found, str(tmp_path / "f.png"))
    assert (tmp_path / "f.png").read_bytes().startswith(PNG)


def test_every_method_has_a_colour_of_its_own() -> None:
    assert {*BOUNDERS.names()} <= set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_the_final_bounds_are_seen_and_outliers_do_not_squeeze_them() -> None:
    low, high = curves._levels([result("interval", -500.0), result("crown", -2.0), result("lp", -1.0)])
    assert -5 < low < -2
    assert -1 < high < 1


def test_without_matplotlib_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install matplotlib"):
        draw([result("crown", 0.0)], str(tmp_path / "f.png"))
