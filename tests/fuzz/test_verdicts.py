"""Verdicts about random instances, judged by exact answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fuzzing.campaign import Campaign
from fuzzing.journal import Journal


def run(campaign: Campaign, first: int, count: int) -> Journal:
    journal = campaign.journal()
    for number in range(first, first + count):
        campaign.run(journal, number)
    return journal


def judge(journal: Journal, verdicts: int) -> None:
    """Nothing is wrong, there were enough verdicts, and what is easy is decided (or not in time: that says little)."""
    assert journal.wrong == 0, journal.summary()
    said = Counter(answer["verdict"] for record in journal.done.values() for answer in record["answers"])
    assert said.total() >= verdicts
    assert min(said["sat"], said["unsat"]) >= verdicts / 10
    assert not journal.weak(["unknown"]), journal.summary()


def test_a_few_hundred_verdicts(tmp_path: Path) -> None:
    judge(run(Campaign(2024, tmp_path, queries=3, patience=0.0), 0, 24), 200)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_verdicts(seed: int, tmp_path: Path) -> None:
    judge(run(Campaign(7000 + seed, tmp_path, patience=0.0), 0, 60), 600)
