"""The command line of the fuzzer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fuzzing.campaign import Campaign
from fuzzing.journal import Journal


def main(description: str, arguments: Sequence[str] | None = None) -> int:
    """Runs instances until the time is over; 1 if anything was wrong, or too much undecided, now or before."""
    options = _options(description, arguments)
    campaign = Campaign(options.seed, options.out, options.queries, options.settings, options.patience)
    journal = campaign.journal()
    if options.number is not None:
        campaign.run(journal, options.number)
    else:
        _run(campaign, journal, time.monotonic() + 60 * options.minutes)
    print(journal.summary())
    return 1 if journal.wrong or journal.weak() else 0


def _run(campaign: Campaign, journal: Journal, end: float) -> None:
    number = 0
    while time.monotonic() < end:
        number = journal.next(number)
        campaign.run(journal, number)
        print(f"\r{len(journal.done)} instances, {journal.wrong} wrong", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _options(description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="when to stop")
    parser.add_argument("--seed", type=int, default=0, help="which instances")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="the folder of journals and findings")
    parser.add_argument("--queries", type=int, default=4, help="about each network")
    parser.add_argument("--settings", type=int, default=3, help="configurations that are asked each query")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for making a finding smaller")
    parser.add_argument("--number", type=int, help="run this instance only, again if it has been run")
    return parser.parse_args(arguments)
