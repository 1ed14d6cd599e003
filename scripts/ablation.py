"""What each part of the search is worth alone: instances with all parts, and with one of them left out each time.

    .venv/bin/python scripts/ablation.py FOLDER/NET.onnx,FOLDER/PROP.vnnlib ... --timeout 60 --cores 0 1

Every run is a process of its own with one thread; with several cores so many run at a time, each on a core of its own.
A cell is the CPU time of the whole process if the instance was decided, else the worst bound in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import verifier
from verifier.config import load_config

OPTIONS: dict[str, list[str]] = {
    "all parts": [],
    "no trees for hidden neurons": ["search.sharpen.leaves=[]"],
    "no sharper hidden neurons at all": ["search.sharpen.after=null"],
    "no look at cheaper bounds": ["search.look=0"],
    "whole boxes climb to the end": ["search.tiers.0.scout.iterations=40", "search.tiers.0.root.iterations=100"],
    "masks stay as they were found": ["search.tiers.0.learn=false", "search.sharpen.learn=false"],
}
"""Parts that options switch off."""


def _no_patches() -> None:
    from verifier.bounding import frugal

    frugal.WORTH_PATCHES = float("inf")


def _all_groups() -> None:
    from verifier.bounding.solvers import propagated

    propagated.LEAST = -float("inf")


def _no_usual_slopes() -> None:
    from verifier.bounding.solvers.usual import UsualSlopes

    UsualSlopes.begin = lambda self, sweep, point: point  # type: ignore[method-assign]


def _in_order() -> None:
    from verifier.search.sharpen import Blunt

    Blunt._rations = lambda self, box: None  # type: ignore[method-assign]


def _nothing_in_common() -> None:
    from verifier.bounding.core import state

    state.is_repeated = lambda tensor: False


def _attack_first() -> None:
    from verifier.falsify.hunt import Hunt

    Hunt.turn = Hunt.rest  # type: ignore[method-assign]


def _no_contraction() -> None:
    from verifier.search import problem
    from verifier.search.boxes import space

    for module in (problem, space):
        module.contraction_of = lambda *given: None  # type: ignore[attr-defined]


CHANGES: dict[str, Callable[[], None]] = {
    "no sweeps over patches": _no_patches,
    "cuts at all groups": _all_groups,
    "no usual slopes": _no_usual_slopes,
    "hidden neurons in the order of groups": _in_order,
    "nothing shared by domains": _nothing_in_common,
    "whole attack before all else": _attack_first,
    "rows contract no boxes": _no_contraction,
}
"""Parts that are taken out of this process."""


def run(instance: str, without: str, timeout: float) -> dict[str, object]:
    """One instance in this process, without one part."""
    CHANGES.get(without, lambda: None)()
    network, prop = instance.split(",")
    config = load_config("auto", OPTIONS.get(without, []))
    result = verifier.verify(network, prop, config=config, timeout=timeout, threads=1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    decided = result.verdict.value in ("sat", "unsat")
    return {
        "verdict": result.verdict.value,
        "cpu": used.ru_utime + used.ru_stime,
        "bound": None if decided else result.lower_bound,
        "domains": result.statistics.domains,
    }


def table(instances: Sequence[str], timeout: float, cores: Sequence[int], variants: Sequence[str]) -> None:
    """All instances in all ways, printed as they come and then as a table."""
    free: queue.Queue[int] = queue.Queue()
    for core in cores:
        free.put(core)

    def one(task: tuple[str, str]) -> dict[str, object]:
        core = free.get()
        try:
            command = [sys.executable, __file__, task[0], "--timeout", str(timeout), "--without", task[1]]
            pin = lambda: os.sched_setaffinity(0, {core})  # noqa: E731
            told = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=pin)
            found: dict[str, object] = json.loads(told.stdout.splitlines()[-1])
        finally:
            free.put(core)
        print(f"{Path(task[0].split(',')[1]).name}, {task[1]}: {found}", file=sys.stderr, flush=True)
        return found

    tasks = [(instance, variant) for instance in instances for variant in variants]
    with ThreadPoolExecutor(len(cores)) as pool:
        found = dict(zip(tasks, pool.map(one, tasks), strict=True))
    print("| | " + " | ".join(Path(instance.split(",")[1]).stem for instance in instances) + " |")
    print("|---" * (1 + len(instances)) + "|")
    for variant in variants:
        print(f"| {variant} | " + " | ".join(_cell(found[instance, variant]) for instance in instances) + " |")


def _cell(found: dict[str, object]) -> str:
    if found["bound"] is None:
        return f"{found['cpu']:.1f}"
    return f"({found['bound']:.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="+", help="network and property, with a comma between them")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--cores", type=int, nargs="+", default=[0])
    parser.add_argument("--without", help="run one instance here, without this part")
    parser.add_argument("--only", nargs="+", help="some of the parts")
    options = parser.parse_args()
    if options.without is not None:
        print(json.dumps(run(options.instances[0], options.without, options.timeout)))
        os._exit(0)
    table(options.instances, options.timeout, options.cores, options.only or [*OPTIONS, *CHANGES])


if __name__ == "__main__":
    main()
