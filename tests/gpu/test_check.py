"""`make gpu-check` on the stand-in, and where there is no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gpu import check

from verifier.bounding import BOUNDERS


def test_the_report_of_the_stand_in(device: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.report(device.type, quick=True) == 0
    text = capsys.readouterr().out
    assert "all agree" in text
    assert "WRONG" not in text
    assert torch.__version__ in text
    assert all(f"ok    {method} " in text for method in BOUNDERS.names())
    assert all(f"{name}, splitting {way}" in text for _, name, way in check.QUICK)


def test_what_differs_or_fails_is_told(device: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    """A bound that is off by a little, one that is no number, and one that mixes devices."""
    close = check._close
    found = check.Findings()
    here = torch.ones(2, 3)
    found.attempt("off", lambda: close([(here, (here + 1e-3).to(device))], check.TOLERANCE))
    found.attempt("lost", lambda: close([(here, (here * torch.nan).to(device))], check.TOLERANCE))
    found.attempt("fails", lambda: close([(here, here.to(device)[torch.tensor([0])])], check.TOLERANCE))
    found.attempt("fine", lambda: close([(here, (here + 1e-5).to(device))], check.TOLERANCE))
    assert found.wrong == 3
    text = capsys.readouterr().out
    assert text.count("WRONG") == 3
    assert "MixedDevices" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(root: Path) -> None:
    done = subprocess.run([sys.executable, root / "scripts" / "gpu_check.py"], capture_output=True, text=True, cwd=root)
    assert done.returncode == 3
    assert done.stdout.count("\n") == 1
    assert "no GPU was found" in done.stdout
    assert done.stderr == ""


def test_the_makefile_runs_it(root: Path) -> None:
    lines = (root / "Makefile").read_text()
    assert "scripts/gpu_check.py --device" in lines
    assert "# make gpu-check" in lines
