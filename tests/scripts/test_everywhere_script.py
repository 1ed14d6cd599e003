"""The script that repeats the tests under other settings: what it runs, counts and says."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import scripted


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripted.script("test_everywhere")


TESTS = """
import os

def test_threads():
    assert os.environ.get("OMP_NUM_THREADS") != "1"

def test_nothing():
    pass
"""


def test_no_failure_stops_the_other_settings(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "OUTPUT", tmp_path / "kept")
    (tmp_path / "test_some.py").write_text(TESTS)
    code = script.main(["--only", "one-thread", "two-threads", "--", "-c", "/dev/null", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert lines[2].split()[:5] == ["one-thread", "1", "passed", "1", "failed"]
    assert "test_threads" in lines[3]
    assert lines[4].split()[:5] == ["two-threads", "2", "passed", "0", "failed"]
    assert "test_threads" in (tmp_path / "kept" / "one-thread.txt").read_text()
    assert script.main(["--only", "two-threads", "--", "-c", "/dev/null", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("code", "last", "passed", "failed"),
    [
        (0, "12 passed, 3 skipped in 4.00s", 12, 0),
        (1, "2 failed, 12 passed, 1 error in 4.00s", 12, 3),
        (2, "1 error in 4.00s", 0, 1),
        (4, "no tests ran in 0.01s", 0, 1),
        (-9, "....", 0, 1),
    ],
)
def test_a_run_that_breaks_off_is_a_failure(script: ModuleType, code: int, last: str, passed: int, failed: int) -> None:
    run = script.Run.of(code, f"....\nFAILED tests/a.py::test_b\n{last}\n" if code == 1 else last, 1.0)
    assert (run.passed, run.failed) == (passed, failed)
    assert bool(run.failures) == (code in (1, 4, -9))


def test_settings_that_change_nothing_are_left_out(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "numbers", lambda environment: environment.get("ATEN_CPU_CAPABILITY", "usual"))
    names = [setting.name for setting in script.honoured(script.SETTINGS, None)]
    assert "aten-default" in names
    assert "seed-1" in names
    assert not {"mkl-sse42", "intel-avx2"} & set(names)
    assert capsys.readouterr().out.count("changes no number on this processor") == 6
