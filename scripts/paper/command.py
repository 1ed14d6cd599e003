"""The command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from paper.data import DataFolder
from paper.plan import FULL, QUICK
from paper.report import Report
from paper.run import STAGES, Runner, Start, in_process, run_cell
from paper.work import Work
from verifier.errors import InputError
from verifier.processes import cores


def main(description: str, arguments: Sequence[str] | None = None, start: Start = in_process) -> int:
    """Runs what is left of the stages and writes the report.  1 if a run failed, 2 if the data cannot be used."""
    options = _options(description, arguments)
    if not options.data:
        return _refuse("the folder of the paper's data is not given: make paper DATA=.../oval_paper")
    work = Work(DataFolder(Path(options.data)), options.out, QUICK if options.quick else FULL)
    try:
        work.data.check()
    except InputError as error:
        return _refuse(str(error))
    if options.cell:
        run_cell(work, options.cell)
        return 0
    runner = Runner(options.jobs, start)
    work.write()
    for ledger in (work.roots(), work.bounds(), work.peaks()):
        ledger.mend()
    again = [sys.executable, sys.argv[0], options.data, "--out", str(options.out), *_quick(options.quick)]
    for stage in options.only:
        runner.run(stage, STAGES[stage](work, again))
    Report(work).write(runner.failed)
    print(options.out / "report.md")
    return 1 if runner.failed else 0


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2


def _quick(quick: bool) -> list[str]:
    return ["--quick"] if quick else []


def _options(description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="the folder of the paper's data")
    parser.add_argument("--out", type=Path, default=Path("results/paper"), help="the folder of the results")
    parser.add_argument("--quick", action="store_true", help="a tenth of it: fewer problems, iterations and seconds")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes at a time, with one thread each")
    parser.add_argument("--only", nargs="*", choices=STAGES, default=list(STAGES), help="stages; none: the report only")
    parser.add_argument("--cell", nargs="+", help="one cell in this process; what the stages start")
    return parser.parse_args(arguments)
