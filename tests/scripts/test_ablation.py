"""The table of what each part of the search is worth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripted import SCRIPTS, script

ablation = script("ablation")
PROPERTIES = Path(__file__).resolve().parents[2] / "properties"
INSTANCE = f"{PROPERTIES / 'onnx/digits_fc.onnx'},{PROPERTIES / 'vnnlib/fc_branch_1438.vnnlib'}"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes are pinned on Linux only")
def test_a_table_has_a_row_for_each_part() -> None:
    core = str(min(os.sched_getaffinity(0)))
    command = [
        sys.executable,
        str(SCRIPTS / "ablation.py"),
        INSTANCE,
        "--cores",
        core,
        "--only",
        "all parts",
        "no second tier",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[:2] == ["| | fc_branch_1438 |", "|---|---|"]
    assert [line.split("|")[1].strip() for line in told[2:]] == ["all parts", "no second tier"]
    assert all(float(line.split("|")[2]) > 0 for line in told[2:])


def test_what_is_open_shows_its_bound() -> None:
    assert ablation._cell({"bound": None, "cpu": 3.21}) == "3.2"
    assert ablation._cell({"bound": -0.25, "cpu": 60.0}) == "(-0.25)"
