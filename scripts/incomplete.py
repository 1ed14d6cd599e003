"""Incomplete verification on the paper's SGD network: bound and time of each method (docs/measured/bounding.md).

    .venv/bin/python scripts/incomplete.py oval_paper --results incomplete.jsonl
    .venv/bin/python scripts/incomplete.py oval_paper --results incomplete.jsonl --table

The folder holds onnx/cifar_sgd_8px.onnx and cifar_sgd_8px_images.npz.  Of each of the first 20 images the nine rows
label - other are bounded; intermediate bounds and hyper-parameters are the paper's, where it has them.

One thread; seconds are CPU seconds of this process.  Quick methods bound the nine rows of an image in one call, and a
row takes a ninth of the call.  All methods then bound one row of each image, one row per call: no batching helps, so
these seconds can be compared.  Linear programs go on with further rows until --lp-minutes are used up.

Every result is a line of the results file.  A run that is started again skips what is there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder, Objective, Region, Until
from verifier.bounding.cuts.masks import Form
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.solvers.active_set import ActiveSet, Additions, OraclePoint
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM, Start
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.network.models.onnx import load_onnx
from verifier.network.network import Network

NETWORK = "cifar_sgd_8px"
ROWS = 9
BLOCK = 6  # rows that all methods bound before any goes on
COARSE, FINE = Steps(1e-2, 1e-4, linear=True), Steps(1e-3, 1e-6, linear=True)
BIG_M = Ascent(500, COARSE)
NO_MASKS = ActiveSet(Ascent(0, FINE), BIG_M, Additions(most=0), Start.ZERO)


def active_set(iterations: int) -> ActiveSet:
    """The paper's: two masks every 450 iterations, after 500 of Big-M from zero."""
    return ActiveSet(Ascent(iterations, FINE), BIG_M, start=Start.ZERO)


QUICK: dict[str, Bounder] = {
    "CROWN": Linear(),
    "Wong-Kolter": Linear(Slope.PARALLEL),
    "alpha-CROWN, 100 it": AlphaCrown(),
    "Big-M, 850 it": BigM(Ascent(850, COARSE), Start.ZERO),
    "Big-M from CROWN, 850 it": BigM(Ascent(850, COARSE)),
    "Active Set, 80 it": active_set(80),
}
MIDDLE: dict[str, Bounder] = {
    "Active Set at averages, shared masks, 200 it": ActiveSet(
        Ascent(200, FINE), BIG_M, Additions(50, 1, 3), masks=Form.SHARED, point=OraclePoint.AVERAGE
    ),
    "Active Set, 600 it": active_set(600),
    "Active Set at averages, 600 it": ActiveSet(
        Ascent(600, FINE), BIG_M, Additions(100, 1, 3), point=OraclePoint.AVERAGE
    ),
}
PROGRAMS: dict[str, Bounder] = {"LP over M": PlanetLP(), "LP, one round of cuts": CutLP(1)}
SLOW: dict[str, Bounder] = {
    "Active Set, 1050 it": active_set(1050),
    "Active Set, 1650 it": active_set(1650),
    "Saddle Point, 4000 it": SaddlePoint(4000, initial=NO_MASKS),
    "AS-SP, 600 + 3000 it": SaddlePoint(3000, initial=active_set(600)),
}
ALL = {**QUICK, **MIDDLE, **SLOW, **PROGRAMS}

STAGES = {"Saddle Point, 4000 it": {"Saddle Point, 1000 it": 3000, "Saddle Point, 2000 it": 2000}}
"""Shorter runs that a longer one contains, with the iterations that then follow: its steps do not depend on them."""


@dataclass(frozen=True)
class Entry:
    """The bound of one row, and its share of the CPU seconds of a call with `together` rows."""

    method: str
    image: int
    row: int
    together: int
    lower: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Image:
    """One image: its box with bounds of all groups, and its nine rows."""

    number: int
    net: Network
    region: Region
    objective: Objective
    seconds: float  # for the intermediate bounds

    def bound(self, name: str, rows: range) -> list[Entry]:
        """Bound consecutive rows in one call: linear programs in float64, all others in float32."""
        method, part = ALL[name], self.objective.part(rows.start, rows.stop)
        begun, heard = time.process_time(), []
        method = method.watched(lambda lower: heard.append((lower.clone(), time.process_time())))
        if name in PROGRAMS:
            lower = method.bound(self.net, self.region, part, Until()).lower
        else:
            lower = method.bound(self.single, self.region.to(torch.float32), part.to(torch.float32), Until()).lower
        found = {name: (lower, time.process_time())}
        found |= {stage: heard[-1 - following] for stage, following in STAGES.get(name, {}).items()}
        return [
            Entry(stage, self.number, r, len(rows), float(lower[0, i]), (ended - begun) / len(rows))
            for stage, (lower, ended) in found.items()
            for i, r in enumerate(rows)
        ]

    @cached_property
    def single(self) -> Network:
        return self.net.to(dtype=torch.float32)


class Images:
    """The images of a folder, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.net = load_onnx(folder / "onnx" / f"{NETWORK}.onnx").network()
        self.data = dict(np.load(folder / f"{NETWORK}_images.npz"))
        self._last: Image | None = None

    def at(self, number: int) -> Image:
        if self._last is None or self._last.number != number:
            self._last = self._load(number)
        return self._last

    def _load(self, number: int) -> Image:
        x = torch.from_numpy(self.data["images"][number].astype(np.float64)).reshape(1, -1)
        eps, (low, high) = float(self.data["eps_input"]), self.data["clip"].tolist()
        begun = time.process_time()
        box = (x - eps).clamp(low, high), (x + eps).clamp(low, high)
        region = RootBounds(Slope.PARALLEL).region(self.net, *box, Until())
        seconds = time.process_time() - begun
        unit, label = torch.eye(self.net.n_out, dtype=torch.float64), int(self.data["labels"][number])
        others = [k for k in range(self.net.n_out) if k != label]
        objective = Objective(len(self.net.layers), (unit[label] - unit[others]).unsqueeze(0))
        return Image(number, self.net, region, objective, seconds)


class Results:
    """What is known, and the file that keeps it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.entries = [Entry(**json.loads(line)) for line in lines]
        self._known = {(e.method, e.image, e.row, e.together) for e in self.entries}

    def fill(self, images: Images, name: str, number: int, rows: range) -> None:
        """Bound these rows unless they are known."""
        if (name, number, rows.start, len(rows)) in self._known:
            return
        found = images.at(number).bound(name, rows)
        with self.path.open("a") as file:
            file.writelines(json.dumps(asdict(entry)) + "\n" for entry in found)
        self.entries += found
        self._known |= {(e.method, e.image, e.row, e.together) for e in found}
        seconds = sum(e.seconds for e in found if e.method == name)
        print(f"image {number:2d} {name:44s} {found[0].lower:9.4f} {seconds:8.1f} s", flush=True)

    def spent(self, names: Iterable[str]) -> float:
        return sum(e.seconds for e in self.entries if e.method in names)

    def of(self, name: str, together: int) -> dict[tuple[int, int], Entry]:
        return {(e.image, e.row): e for e in self.entries if e.method == name and e.together == together}


def spread(count: int) -> list[tuple[int, range]]:
    """One row of each image, in an order whose every beginning is spread over all images and rows."""
    order = sorted(range(count), key=lambda i: f"{i:08b}"[::-1])
    return [(i, range(7 * i % ROWS, 7 * i % ROWS + 1)) for i in order]


def run(images: Images, results: Results, count: int, lp_minutes: float) -> None:
    """All stages, the most telling ones first."""
    for number in range(count):
        for name in QUICK:
            results.fill(images, name, number, range(ROWS))
    single = spread(count)
    for block in (single[i : i + BLOCK] for i in range(0, count, BLOCK)):
        for names in ((*QUICK, *MIDDLE, *PROGRAMS), SLOW):
            for number, rows in block:
                for name in names:
                    results.fill(images, name, number, rows)
    for number in range(count):
        for name in MIDDLE:
            results.fill(images, name, number, range(ROWS))
    for number, rows in further(count):
        if results.spent(PROGRAMS) > 60 * lp_minutes:
            break
        for name in PROGRAMS:
            results.fill(images, name, number, rows)


def further(count: int) -> Iterator[tuple[int, range]]:
    """All rows, one of each image after the other."""
    for step in range(1, ROWS):
        for number, rows in spread(count):
            row = (rows.start + step) % ROWS
            yield number, range(row, row + 1)


def table(results: Results, together: int, names: Iterable[str], only: set[tuple[int, int]] | None = None) -> None:
    """Mean bound and mean CPU seconds per row; `only` names the rows that count."""
    print(f"\n| {together} rows per call | rows | mean bound | s per row |\n|---|---|---|---|")
    for name in names:
        found = [e for key, e in results.of(name, together).items() if only is None or key in only]
        if found:
            lower, seconds = statistics.mean(e.lower for e in found), statistics.mean(e.seconds for e in found)
            print(f"| {name} | {len(found)} | {lower:.4f} | {seconds:.2f} |")


def tables(results: Results) -> None:
    """Quick methods on all rows; all methods on the rows that all have bounded; linear programs on theirs."""
    table(results, ROWS, (*QUICK, *MIDDLE))
    common = set.intersection(*(set(results.of(name, 1)) for name in ALL))
    stages = [stage for contained in STAGES.values() for stage in contained]
    table(results, 1, (*ALL, *stages), common)
    programs = set.intersection(*(set(results.of(name, 1)) for name in PROGRAMS))
    table(results, ROWS, (*QUICK, *MIDDLE), programs)
    table(results, 1, PROGRAMS, programs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=Path("incomplete.jsonl"))
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--lp-minutes", type=float, default=30.0)
    parser.add_argument("--table", action="store_true", help="only print the tables of what is known")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(options.results)
    if not options.table:
        run(Images(options.folder), results, options.images, options.lp_minutes)
    tables(results)


if __name__ == "__main__":
    main()
