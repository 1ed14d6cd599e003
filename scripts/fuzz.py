"""Fuzzes verdicts: random instances whose exact answer is known, under many configurations.

    python scripts/fuzz.py --minutes 10 --seed 0

The journal build/fuzz/seed-0.jsonl lets the same command go on where it stopped; what is found lies minimised in
build/fuzz/findings.  Exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fuzzing.campaign import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="when to stop")
    parser.add_argument("--seed", type=int, default=0, help="which instances")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="the folder of journals and findings")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for making a finding smaller")
    parser.add_argument("--number", type=int, help="run this instance only, again if it has been run")
    options = parser.parse_args()
    campaign = Campaign(options.seed, options.out, patience=options.patience)
    journal = campaign.journal()
    if options.number is not None:
        campaign.run(journal, options.number)
    end = time.monotonic() + 60 * options.minutes
    number = 0
    while options.number is None and time.monotonic() < end:
        number = journal.next(number)
        campaign.run(journal, number)
        print(f"\r{len(journal.done)} instances, {journal.wrong} wrong", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(journal.summary())
    return 1 if journal.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
