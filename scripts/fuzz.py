"""Fuzzes verdicts: random instances whose exact answer is known, under many configurations.

    python scripts/fuzz.py --minutes 10 --seed 0

The journal build/fuzz/seed-0.jsonl lets the same command go on where it stopped; what is found lies minimised in
build/fuzz/findings.  Exit code 1 if anything was wrong, or too many easy
queries stayed undecided.
"""

from __future__ import annotations

import sys

from fuzzing.command import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
