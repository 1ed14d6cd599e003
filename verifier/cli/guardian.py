"""A process that waits for the one that does the work, and answers for it if that dies.

Libraries end the process when their memory runs out, and so does the system: nothing inside can answer then.  So the
work is done by a fork, which is made before anything large is loaded.  The guardian passes signals and exit codes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

from verifier.clock import process_start
from verifier.errors import Undelivered
from verifier.output import all_of, clear_named, say, tell, unanswered, write_file

COMMANDS = (
    "attack",
    "batch",
    "bounds",
    "check",
    "config",
    "dataset",
    "radius",
    "ranges",
    "report",
    "robust",
    "show",
    "template",
    "verify",
)
"""Each is a function of this name in a file of this name."""

WITHOUT_VERDICT = tuple(command for command in COMMANDS if command not in ("attack", "verify"))
"""Commands that do not answer with a verdict."""
OUTPUTS = ("--json", "--result", "--counterexample")
_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1  # prctl(2)


def guarded(argv: Sequence[str]) -> int | None:
    """Forks.  In the fork None; in this process, when the fork has ended, the exit code.

    Also None, without a fork, where processes cannot be guarded.  Guarantees: older answers in the output files are
    gone before the fork begins, and it dies with this process.
    """
    clear_named(argv, OUTPUTS)
    if sys.platform != "linux":
        return None
    process_start()  # is kept: the fork's time limit counts from the start of this process
    parent = os.getpid()
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGTSTP})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever ignores it does not hear how a process ended
    try:
        child = os.fork()
    except OSError:  # no further process can be started: work without a guardian
        child = -1
    if child > 0:
        return _guard(child, usual, argv)
    if child == 0:
        _belong_to(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, usual)
    return None


def _belong_to(parent: int) -> None:
    """Dies with its parent, and hears signals from nobody else: those of a terminal go to the parent's group."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(4)


def _guard(child: int, usual: set[int | signal.Signals], argv: Sequence[str]) -> int:
    heard: dict[int, float] = {}

    def pass_on(number: int, frame: object) -> None:
        # `timeout` and others send a signal to this process and to its group: the fork is to hear it once.
        if time.monotonic() - heard.get(number, -math.inf) > 1.0:
            heard[number] = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    def pause(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.killpg(child, signal.SIGCONT)  # when this process goes on

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, pause)
    signal.pthread_sigmask(signal.SIG_SETMASK, usual)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    ended = os.WTERMSIG(status)
    if ended in heard:  # before it was ready to answer
        return interrupted(argv)
    return _died(signal.Signals(ended).name, argv)


def interrupted(argv: Sequence[str]) -> int:
    """Answers for work that an interrupt has ended before it could answer itself; the exit code."""
    if argv[:1] and argv[0] in WITHOUT_VERDICT:
        return 3
    note(argv, "unknown", "interrupted")
    try:
        say("unknown")
    except Undelivered as error:
        tell(f"error: {error}")
        return 4
    return 3


def _died(how: str, argv: Sequence[str]) -> int:
    text = f"the process was ended by {how}; most likely the memory did not suffice"
    tell(f"error: {text}")
    note(argv, "error", text)
    return 4


def note(argv: Sequence[str], verdict: str, reason: str) -> None:
    """Writes a verdict to the files of a command line that have no answer, as far as they can be written."""
    texts = {"result": verdict, "json": json.dumps({"verdict": verdict, "reason": reason})}
    files = unanswered(argv)
    for failed in all_of(partial(write_file, path, texts[option] + "\n") for option, path in files.items()):
        tell(f"error: {failed}")
