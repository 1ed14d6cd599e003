"""Regenerates the experiments of the paper: `make paper DATA=... OUT=...`, or a tenth of them: `make paper-quick`.

    python scripts/reproduce.py oval_paper --out results/paper
    python scripts/reproduce.py oval_paper --out results/paper --only          the report of what is known
    python scripts/reproduce.py oval_paper --out results/paper --only memory   one stage

Stages: `roots` (CROWN's bounds, by which problems are chosen), `bounds` (incomplete verification and ablations),
`complete` (branch and bound, by `verify batch`), `memory`.  Every result is a line of a .jsonl file as soon as it is
known, and the same command goes on where it was stopped.  Results of another version of the program belong into
another folder.  report.md, tables/ and figures/ are written at the end.
"""

from __future__ import annotations

import sys

from paper.command import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
