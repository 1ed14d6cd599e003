"""The script that kills searches: what it calls wrong, and whom it takes for a part of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from scripted import script

from verifier.processes import forkable

pytestmark = pytest.mark.skipif(not forkable(), reason="it reads /proc")

kill_check = script("kill_check")


def finished(**changed: Any) -> Any:
    """A run whose coordinator was killed once after a checkpoint, and which then answered as it should."""
    statistics = {"domains": 10, "domains_by_tier": {"big_m": 8}, "leaves_lp": 2, "earlier_runs": 1} | changed
    lives = [kill_check.Life(killed=True, wrote=True, code=-9), kill_check.Life(code=0, lost=1)]
    return kill_check.Run(0, kills=1, lives=lives, answer={"verdict": "unsat", "statistics": statistics})


def test_a_run_as_it_should_be_has_nothing_wrong() -> None:
    assert kill_check.judged(kill_check.CASES["unsat"], finished(), 10) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"domains": 9, "leaves_lp": 1}, "domains: 9, not 10"),
        ({"domains": 11, "leaves_lp": 3}, "domains: 11, not 10"),
        ({"leaves_lp": 1}, "domains of all tiers: 9, not 10"),
        ({"earlier_runs": 0}, "earlier runs: 0, not 1"),
    ],
)
def test_lost_domains_and_domains_that_count_twice_are_wrong(changed: dict[str, int], said: str) -> None:
    assert kill_check.judged(kill_check.CASES["unsat"], finished(**changed), 10) == [said]


def test_other_verdicts_codes_and_workers_that_vanish_by_themselves_are_wrong() -> None:
    wrong = kill_check.judged(kill_check.CASES["sat"], finished(), None)
    assert wrong == ["verdict: unsat, not sat", "exit code: 0, not 1"]
    run = finished()
    run.lives[-1].lost = 2
    assert kill_check.judged(kill_check.CASES["unsat"], run, 10) == ["2 workers were missed, 1 were killed"]


def test_processes_whose_parent_was_killed_still_belong_to_the_run() -> None:
    sleeper = f"{sys.executable} -c 'import time; time.sleep(60)'"
    parent = subprocess.Popen(["/bin/sh", "-c", f"{sleeper} & wait"])
    family = kill_check.Family(parent.pid)
    try:
        while len(family.alive()) < 2:
            family.look()
            time.sleep(0.01)
        parent.kill()
        parent.wait()
        (orphan,) = family.alive()
        os.kill(orphan, signal.SIGKILL)
        while family.alive():
            time.sleep(0.01)
    finally:
        parent.kill()
        parent.wait()
