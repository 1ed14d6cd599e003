"""Makes properties/: networks, VNN-LIB files, verdicts.

    python scripts/make_properties.py train      networks, trained anew (about a minute)
    python scripts/make_properties.py write      VNN-LIB files, instances.csv, digits.npz and README.md
    python scripts/make_properties.py confirm    exact verdicts: expected.csv and witnesses/ (a few minutes)
    python scripts/make_properties.py all        the three in this order

Needs scikit-learn besides the dependencies of the package. Uses nothing from package `verifier`.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from exact import enumerated_minimum, milp_minimum, planet_minimum, tightened_bounds
from exact_network import Bounds, Dag, crown_bounds, crown_rows, interval_bounds, interval_rows
from exact_onnx import load_dag
from property_instances import INSTANCES, Instance
from property_networks import N_TRAIN, NETWORKS, digits, train_all
from property_text import Clause, Dialect, clauses, vnnlib

FOLDER = Path(__file__).resolve().parents[1] / "properties"
MARGIN = 1e-3  # no optimum is closer to zero than this
ENUMERATE = 8  # up to so many ambiguous ReLUs
SECONDS = 120.0  # per mixed-integer program
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "digits_fc": {"X": (1, 64), "Y": (1, 10)},
    "digits_conv": {"X": (1, 1, 8, 8), "Y": (1, 10)},
    "digits_res": {"X": (1, 1, 8, 8), "Y": (1, 10)},
    "digits_pool": {"X": (1, 1, 8, 8), "Y": (1, 10)},
    "cart_controller": {"X": (1, 4), "Y": (1, 1)},
    "pendulum_lyapunov": {"X": (1, 2), "Y": (1, 2)},
    "toy": {"X": (1, 2), "Y": (1, 1)},
}


def sizes(instance: Instance) -> tuple[int, int]:
    shapes = SHAPES[instance.network]
    return int(np.prod(shapes["X"])), int(np.prod(shapes["Y"]))


def paths(instance: Instance) -> tuple[str, str]:
    """Network and property, relative to the folder."""
    return f"onnx/{instance.network}.onnx", f"vnnlib/{instance.name}.vnnlib"


# ---------------------------------------------------------------- write


def write(folder: Path) -> None:
    """Everything that follows from the table alone; no network is read."""
    (folder / "vnnlib").mkdir(parents=True, exist_ok=True)
    for instance in INSTANCES:
        dialect = Dialect(instance.version, SHAPES[instance.network])
        text = vnnlib(instance.formula(), dialect, f"{instance.network}: {instance.purpose}")
        (folder / paths(instance)[1]).write_text(text)
    lines = [f"{','.join(paths(instance))},{instance.timeout}" for instance in INSTANCES]
    (folder / "instances.csv").write_text("\n".join(lines) + "\n")
    images, labels = (part[N_TRAIN:] for part in digits())
    np.savez_compressed(
        folder / "digits.npz", images=images.reshape(-1, 8, 8).astype(np.float32), labels=labels.astype(np.uint8)
    )
    (folder / "README.md").write_text(readme())


def readme() -> str:
    about = {name: (build.__doc__ or "").splitlines()[0].replace("|", "\\|") for name, build in NETWORKS.items()}
    networks = "".join(f"| `{name}` | {line} |\n" for name, line in about.items())
    table = "".join(f"| `{i.name}` | `{i.network}` | {i.expected} | {i.purpose} |\n" for i in INSTANCES)
    return README.format(networks=networks, table=table, margin=MARGIN)


README = """# Small instances of our own

Made by `scripts/make_properties.py` from scikit-learn's digits (8 x 8 images) and from data it draws itself. This page
is written by that script. A property describes the *unsafe* set: `unsat` means that the network is safe.

- `instances.csv`: `onnx,vnnlib,timeout`, as `verify batch` reads it.
- `expected.csv`: the verdict of each, the exact method that confirmed it, and the cheapest bound that decides it.
- `witnesses/`: a counterexample for each `sat`, confirmed by onnxruntime.
- `digits.npz`: the 360 images (8 x 8, in [0, 1]) that no network was trained on, and their labels, for `verify dataset`
  and `verify radius`.

Methods: `milp` (no point of the box comes below {margin} in a mixed-integer program with one binary per ambiguous
ReLU, solved by HiGHS), `enumeration` (one LP per activation pattern), `witness` (a float32 point in the box; all
atoms hold exactly on onnxruntime's output, and no row is closer to zero than {margin}).

| network | what it is |
|---|---|
{networks}
| property | network | verdict | what it is for |
|---|---|---|---|
{table}
## Regenerate

    python scripts/make_properties.py write      # VNN-LIB files, instances.csv, digits.npz, this page
    python scripts/make_properties.py confirm    # expected.csv and witnesses/, a few minutes
    python scripts/make_properties.py train      # the networks; about a minute, then run the other two

Training is deterministic on one machine. With other library versions the weights may change, and a radius that was
chosen for the old ones may no longer fit: `confirm` then stops and names the instance.
"""


# ---------------------------------------------------------------- confirm


@dataclass(frozen=True, slots=True, eq=False)
class Confirmation:
    """What is known about one instance; x, y only for `sat`."""

    expected: str
    method: str
    note: str
    x: np.ndarray | None = None
    y: np.ndarray | None = None


def replay(path: Path, x: np.ndarray) -> np.ndarray:
    """Output of the ONNX file at one float32 point, flat."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    declared = session.get_inputs()[0]
    shape = [d if isinstance(d, int) else 1 for d in declared.shape]
    return np.asarray(session.run(None, {declared.name: x.astype(np.float32).reshape(shape)})[0]).ravel()


def inside(clause: Clause, x: np.ndarray) -> np.ndarray:
    """The nearest float32 point of the box, as far as float32 has one."""
    point = np.clip(x, clause.lower, clause.upper).astype(np.float32)
    point = np.where(point.astype(float) < clause.lower, np.nextafter(point, np.float32(np.inf)), point)
    return np.where(point.astype(float) > clause.upper, np.nextafter(point, np.float32(-np.inf)), point)


def descend(dag: Dag, clause: Clause, seed: int, restarts: int = 64, steps: int = 100) -> np.ndarray:
    """Projected signed descent on max_i g_i from random points; the best point seen."""
    rng, rows = np.random.default_rng(seed), clause.rows
    width = clause.upper - clause.lower
    x = clause.lower + width * rng.random((restarts, len(width)))
    best, best_value = x[0], np.inf
    for step in range(steps):
        values = dag.values(x)
        g = rows.value(x, dag.output(values))
        worst = g.argmax(axis=1)
        i = int(g.max(axis=1).argmin())
        if g[i].max() < best_value:
            best, best_value = x[i].copy(), float(g[i].max())
        slope = dag.pull_back(values, rows.A[worst])
        slope = slope if rows.B is None else slope + rows.B[worst]
        x = np.clip(x - 0.25 * 0.95**step * width * np.sign(slope), clause.lower, clause.upper)
    return best


def find_witness(dag: Dag, network: Path, problem: list[Clause]) -> Confirmation | None:
    """Descent on every clause first, then the mixed-integer program's own minimiser."""
    for source in ("gradient descent", "milp"):
        for seed, clause in enumerate(problem):
            x: np.ndarray | None = descend(dag, clause, seed)
            if source == "milp":
                x = milp_minimum(dag, clause.box, clause.rows, cutoff=-MARGIN, seconds=SECONDS).x
            if x is None:
                continue
            point = inside(clause, x)
            y = replay(network, point)
            if clause.holds(point, y) and clause.rows.value(point.astype(float), y.astype(float)).max() <= -MARGIN:
                return Confirmation("sat", "witness", f"found by {source}", point, y)
    return None


LEVELS = ("interval", "crown", "planet lp", "branching")


def level(dag: Dag, clause: Clause) -> int:
    """Index in LEVELS of the cheapest bound that proves this clause empty; branching if none of the three."""
    if interval_rows(dag, clause.box, clause.rows).max() > 0:
        return 0
    bounds = crown_bounds(dag, clause.box)
    if crown_rows(dag, clause.box, clause.rows, bounds).max() > 0:
        return 1
    return 2 if planet_minimum(dag, clause.box, clause.rows, bounds) > 0 else 3


def prove(dag: Dag, problem: list[Clause]) -> Confirmation | None:
    """Every clause has a minimum above MARGIN, by enumeration if that is cheap, else by mixed-integer programs.

    The descent must not contradict it: that would show a wrong program, so it is asked too.
    """
    tight: dict[bytes, Bounds] = {}
    methods = set()
    for seed, clause in enumerate(problem):
        x = descend(dag, clause, seed)
        if clause.rows.value(x, dag.forward(x)).max() < MARGIN:
            return None
        ambiguous = sum(int(((low < 0) & (high > 0)).sum()) for low, high in interval_bounds(dag, clause.box))
        if ambiguous <= ENUMERATE:
            minimum = enumerated_minimum(dag, clause.box, clause.rows)
            methods.add("enumeration")
        else:
            key = clause.lower.tobytes() + clause.upper.tobytes()
            if key not in tight:
                tight[key] = tightened_bounds(dag, clause.box)
            minimum = milp_minimum(dag, clause.box, clause.rows, bounds=tight[key], cutoff=MARGIN, seconds=SECONDS)
            methods.add("milp")
        if minimum.lower < MARGIN:
            return None
    hardest = LEVELS[max(level(dag, clause) for clause in problem)]
    note = f"{len(problem)} clause{'s' if len(problem) > 1 else ''}; hardest needs {hardest}"
    return Confirmation("unsat", " and ".join(sorted(methods)), note)


def confirm(instance: Instance, folder: Path) -> Confirmation:
    """The expected verdict, confirmed; ValueError if it cannot be."""
    network = folder / paths(instance)[0]
    dag = load_dag(network)
    problem = clauses(instance.formula(), *sizes(instance))
    result = find_witness(dag, network, problem) if instance.expected == "sat" else prove(dag, problem)
    if result is None:
        raise ValueError(f"{instance.name}: {instance.expected} could not be confirmed")
    return result


def witness_text(x: np.ndarray, y: np.ndarray) -> str:
    """The form of VNN-COMP; float32 values printed so that they read back exactly."""
    pairs = [(f"X_{i}", v) for i, v in enumerate(x)] + [(f"Y_{i}", v) for i, v in enumerate(y)]
    return "(" + "\n".join(f"({name} {float(v):.9g})" for name, v in pairs) + ")\n"


def confirm_all(folder: Path, pattern: str) -> None:
    """Confirms the matching instances; the files are written only if all of them were meant."""
    rows, witnesses = [], {}
    for instance in INSTANCES:
        if not fnmatch.fnmatch(instance.name, pattern):
            continue
        start = time.monotonic()
        result = confirm(instance, folder)
        print(
            f"{instance.name}: {result.expected} ({result.method}; {result.note}) {time.monotonic() - start:.1f} s",
            flush=True,
        )
        rows.append([*paths(instance), result.expected, result.method, result.note])
        if result.x is not None and result.y is not None:
            witnesses[instance.name] = witness_text(result.x, result.y)
    if len(rows) < len(INSTANCES):
        return
    (folder / "witnesses").mkdir(exist_ok=True)
    for name, text in witnesses.items():
        (folder / "witnesses" / f"{name}.txt").write_text(text)
    with open(folder / "expected.csv", "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["onnx", "vnnlib", "expected", "method", "note"])
        writer.writerows(rows)


def main(arguments: Iterable[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["train", "write", "confirm", "all"])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", default="*", help="confirm: names to look at (glob); then nothing is written")
    options = parser.parse_args(list(arguments))
    if options.step in ("train", "all"):
        train_all(options.folder / "onnx")
    if options.step in ("write", "all"):
        write(options.folder)
    if options.step in ("confirm", "all"):
        confirm_all(options.folder, options.only)


if __name__ == "__main__":
    main(sys.argv[1:])
