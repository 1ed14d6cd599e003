"""What to run first on a machine with a GPU: `make gpu-check`, and send the report that it prints.

    python scripts/gpu_check.py                     all visible GPUs: the first one
    python scripts/gpu_check.py --device cuda:1     another one
    python scripts/gpu_check.py --device standin    without a GPU: what can be checked on the stand-in (docs/gpu.md)

It compares bounds of every method between CPU and GPU on bundled networks, decides bundled instances in both places,
measures how many regions per second each method bounds there, and what memory it takes.  The exit code is 0 if all
agree, 1 if something differs or fails, 3 if there is no GPU.
"""

from __future__ import annotations

import argparse
import sys

from gpu.check import report

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", metavar="cuda[:i]|standin")
    parser.add_argument("--quick", action="store_true", help="one network, one search of each kind, few iterations")
    options = parser.parse_args()
    sys.exit(report(options.device, options.quick))
