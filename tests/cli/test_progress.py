"""The progress bar: on a terminal only, and with what the status knows."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import Any

from verifier.clock import Clock
from verifier.result.result import Statistics
from verifier.result.status import Status

SLOW = """
import sys, time, types
from verifier.__main__ import main
from verifier.result.verdict import Reason, Verdict
def slow(request, status):
    with status.phase("root"):
        status.lower_bound = -2.5
        time.sleep(1.5)
    return status.conclude(Verdict.UNKNOWN, Reason.LIMIT)
fake, loading = types.ModuleType("verifier.pipeline"), types.ModuleType("verifier.loading")
fake.decide, fake.Request = slow, lambda *a: None
loading.GivenFiles = lambda *a: None
sys.modules["verifier.pipeline"] = sys.modules["verifier"].pipeline = fake
sys.modules["verifier.loading"] = loading
main()
"""


def test_a_line_says_what_is_known() -> None:
    status = Status(clock=Clock.begin())
    assert "domains" not in str(status.snapshot())
    status.tier, status.lower_bound = "linear", -0.5
    with status.phase("root"):
        assert str(status.snapshot()).split(" | ")[1:] == ["root", "lower bound -0.5", "tier linear"]
    status.statistics = Statistics(domains=8, domains_by_tier={"big_m": 5, "active_set": 2}, leaves_lp=1)
    status.open, status.lower_bound = 3, -0.125
    with status.phase("search"):
        line = str(status.snapshot())
    known = ["search", "8 domains done, 3 open", "lower bound -0.125", "big_m 62 %, active_set 25 %"]
    assert line.split(" | ")[1:] == known


def on_a_terminal(*argv: str) -> tuple[str, str]:
    """stdout and what the terminal shows of stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))  # a new terminal has no size
    command = [sys.executable, "-c", SLOW, *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 1024)
            except OSError:  # Linux says so when the other side is closed
                break
            if not piece:
                break
            shown += piece
        os.close(ours)
        assert process.stdout is not None
        return process.stdout.read(), shown.decode()


def test_a_terminal_shows_the_bar_and_stdout_the_answer(tiny: Any) -> None:
    out, shown = on_a_terminal(tiny.net, tiny.sat)
    assert out == "unknown\n"
    assert "root | lower bound -2.5" in shown
    quiet, nothing = on_a_terminal(tiny.net, tiny.sat, "-q")
    assert (quiet, nothing) == ("unknown\n", "")
