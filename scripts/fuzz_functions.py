"""Fuzzes networks of functions and products: bounds against values in many digits, verdicts against points.

    python scripts/fuzz_functions.py --networks 3000 --seed 0

Every hidden bound must enclose the values at 10,000 points, every bound of an output the extreme values that a local
search finds; no verdict may be `unsat` where a point is known, and witnesses must hold.  Exit code 1 if anything was
wrong.
"""

from __future__ import annotations

import sys

from fuzzing.program_command import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
