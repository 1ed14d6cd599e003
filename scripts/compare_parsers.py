"""Times our VNN-LIB reader against the package `vnnlib` 0.0.1.post1, side by side.

That package cannot share an environment with its successor of the same name, so it lives in one of its own:

    python -m venv other && other/bin/pip install vnnlib==0.0.1.post1
    python scripts/compare_parsers.py --other other/bin/python FILE.vnnlib.gz ...

All readers run in fresh processes, in alternation.  A process reads the file a few times and reports the fastest;
imports are not counted, decompression is.  Printed per file: the medians over the rounds, also relative to ours.
Our reader goes all the way to boxes and rows; `vnnlib` is timed to its syntax tree, and to its arrays.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TIMER = """
import sys, time
best = float("inf")
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    read(sys.argv[1])
    best = min(best, time.perf_counter() - start)
print(best)
"""

OURS = "from verifier.property.vnnlib import load_property as read\n" + TIMER

TREE = "from vnnlib.parser import parse_file as read\n" + TIMER

ARRAYS = "import vnnlib.compat\nread = lambda path: vnnlib.compat.read_vnnlib_simple(path, None, None)\n" + TIMER


def seconds(python: str, program: str, path: Path, repeats: int) -> float:
    """The time that one process reports."""
    command = [python, "-c", program, str(path), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{python} failed on {path}:\n{done.stderr}")
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Times our VNN-LIB reader against vnnlib 0.0.1.post1.")
    parser.add_argument("files", nargs="+", type=Path, help="VNN-LIB 1.0 files, plain or .gz")
    parser.add_argument("--other", help="the Python that has vnnlib 0.0.1.post1; without it only ours is timed")
    parser.add_argument("--rounds", type=int, default=5, help="how often both run in turn")
    parser.add_argument("--repeats", type=int, default=3, help="readings per process, of which the fastest counts")
    options = parser.parse_args()
    for path in options.files:
        compare(path.resolve(), options)


def compare(path: Path, options: argparse.Namespace) -> None:
    """Runs all readers in turn and prints their medians."""
    readers = {"ours": (sys.executable, OURS)}
    if options.other:
        readers["vnnlib, tree only"] = (options.other, TREE)
        readers["vnnlib, arrays"] = (options.other, ARRAYS)
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(options.rounds):
        for name, (python, program) in readers.items():
            times[name].append(seconds(python, program, path, options.repeats))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(path.name)
    for name, median in medians.items():
        print(f"  {name:18s} {median * 1e3:9.1f} ms  {median / medians['ours']:6.1f} x ours")


if __name__ == "__main__":
    main()
