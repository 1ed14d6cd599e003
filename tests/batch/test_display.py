"""What is shown while a batch runs."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest
from batch.fakes import instance
from speed import PATIENCE

from verifier.batch.display import Live, display
from verifier.batch.engine import Observer
from verifier.batch.records import Record
from verifier.result.verdict import Verdict


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(verdict: Verdict, **more: str) -> Record:
    return Record("family", "n.onnx", "p.vnnlib", "/n.onnx", "/p.vnnlib", verdict, run_time=1.5, **more)


def test_without_a_terminal_each_result_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with display(10, 7, 2, quiet=False) as observer:
        observer.recorded(record(Verdict.SAT))
        observer.recorded(record(Verdict.UNKNOWN, reason="no more domains"))
    assert capsys.readouterr().err.splitlines() == [
        "[ 8/10] sat         1.50 s  family n.onnx p.vnnlib",
        "[ 9/10] unknown     1.50 s  family n.onnx p.vnnlib: no more domains",
    ]


def test_quiet_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with display(10, 7, 2, quiet=True) as observer:
        assert type(observer) is Observer
        observer.recorded(record(Verdict.SAT))
    assert stream.getvalue() == ""


def test_a_terminal_shows_a_bar_and_the_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    monkeypatch.setattr("verifier.batch.display.INTERVAL", 0.02)
    with display(10, 7, 2, quiet=False) as observer:
        assert isinstance(observer, Live)
        observer.began(1, instance(tmp_path / "family", "stuck"))
        observer.recorded(record(Verdict.SAT))
        limit = time.monotonic() + PATIENCE
        while "1 sat" not in stream.getvalue() or "stuck" not in stream.getvalue():
            assert time.monotonic() < limit
            time.sleep(0.01)
        observer.ended(1)
    shown = stream.getvalue()
    assert "8/10 |" in shown
    assert "1: waits" in shown
    assert " of 20 s  family net.onnx stuck.vnnlib" in shown
