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
        assert str(status.snapshot()).split(" | ")[1:] == ["root", "bound -0.5", "linear"]
    status.statistics = Statistics(domains=8, domains_by_tier={"big_m": 5, "active_set": 2}, leaves_lp=1)
    status.open, status.lower_bound, status.threads = 3, -0.125, 2
    status.seconds = {"search": 4.0}
    with status.phase("search"):
        line = str(status.snapshot())
    known = ["search", "bound -0.125", "3 open, 8 done, 2/s", "2 cores", "big_m 62 %, active_set 25 %"]
    assert line.split(" | ")[1:] == known


def on_a_terminal(*argv: str) -> tuple[str, str]:
    """stdout and what the terminal shows of stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))  # a new terminal has no size
    command = [sys.executable, "-c", SLOW, *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = read_out(ours)
        assert process.stdout is not None
        return process.stdout.read(), shown


def read_out(terminal: int) -> str:
    """All that is shown until the other side is closed."""
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 1024)
        except OSError:  # Linux says so when the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    return shown.decode()


def test_a_terminal_shows_the_bar_and_stdout_the_answer(tiny: Any) -> None:
    out, shown = on_a_terminal(tiny.net, tiny.sat)
    assert out == "unknown\n"
    assert "root | bound -2.5" in shown
    assert shown.rindex("\r\x1b[K") > shown.rindex("bound -2.5")  # the line is erased before anything else is said
    after = shown[shown.rindex("\x1b[K") :]
    assert after.startswith("\x1b[Kundecided: ")
    quiet, nothing = on_a_terminal(tiny.net, tiny.sat, "-q")
    assert (quiet, nothing) == ("unknown\n", "")


STUCK_LINE = """
import os, sys, time
from verifier.output import LINE, say, tell
LINE.show("x" * 200)
tell("told")
LINE.show("again")
say("timeout")
LINE.show("too late")
os._exit(0)
"""


def test_a_line_fits_the_terminal_and_never_sticks_to_the_answer() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with subprocess.Popen([sys.executable, "-c", STUCK_LINE], stdout=theirs, stderr=theirs):
        os.close(theirs)
        shown = read_out(ours)
    erased = "\r\x1b[K"
    assert shown == f"\r{'x' * 79}\x1b[K{erased}told\r\n\ragain\x1b[K{erased}timeout\r\n"
