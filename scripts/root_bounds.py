"""Root bounds of the worst output row by every method, beside each other: the table of docs/measured/bounding.md.

    .venv/bin/python scripts/root_bounds.py oval21 img8194 img3161 img4325

The arguments are a family folder and parts of property names.  Intermediate bounds are the better of interval and
CROWN; iterative methods run in float32.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder, Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Form
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.solvers.active_set import ActiveSet, Additions, OraclePoint
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM, Start
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.network.models.onnx import load_onnx
from verifier.network.network import Network
from verifier.property.vnnlib import load_property

PAPER, FINE = Steps(1e-2, 1e-4, linear=True), Steps(1e-3, 1e-6, linear=True)


def methods(long: bool) -> dict[str, Bounder]:
    """Every method with the iteration counts of the paper."""
    zero = Start.ZERO
    found: dict[str, Bounder] = {
        "CROWN": Linear(),
        "Wong-Kolter": Linear(Slope.PARALLEL),
        "LP over M (HiGHS)": PlanetLP(),
        "alpha-CROWN, 100 it": AlphaCrown(Ascent(100, Steps(0.2, 0.01))),
        "Propagated, 1 shared cut, 100+150 it": Propagated.in_rounds(),
        "Propagated, 1 learned cut, 100+150 it": Propagated.in_rounds().learned(),
        "Propagated, 1 exact cut, 100+150 it": Propagated.in_rounds(thresholds=(None,)),
        "Propagated, cuts .4 .6, 100+150 it": Propagated.in_rounds(thresholds=(0.4, 0.6)),
        "Propagated, cuts .3 .5 .7, 100+150 it": Propagated.in_rounds(thresholds=(0.3, 0.5, 0.7)),
        "Propagated, 3 rounds of exact cuts, 100+3x150 it": Propagated.in_rounds(thresholds=(None,), rounds=3),
        "Big-M from zero, 180 it": BigM(Ascent(180, PAPER), zero),
        "Big-M from zero, 850 it": BigM(Ascent(850, PAPER), zero),
        "Big-M from CROWN, 180 it": BigM(Ascent(180, PAPER)),
        "Active Set from zero, 500+100 it": ActiveSet(Ascent(100, FINE), start=zero),
        "Active Set from zero, 500+600 it": ActiveSet(Ascent(600, FINE), start=zero),
        "Active Set from CROWN, 500+100 it": ActiveSet(Ascent(100, FINE)),
        "Active Set, shared masks, 500+100 it": ActiveSet(Ascent(100, FINE), masks=Form.SHARED),
        "Active Set, averaged point, 500+600 it": ActiveSet(
            Ascent(600, FINE), additions=Additions(100, 1, 3), point=OraclePoint.AVERAGE
        ),
        "LP, one round of cuts (HiGHS)": CutLP(1),
        "Saddle Point, 1000 it": SaddlePoint(1000),
    }
    if long:
        found["Saddle Point, 4000 it"] = SaddlePoint(4000)
        found["AS-SP, 600+3000 it"] = SaddlePoint(3000, initial=ActiveSet())
    return found


def worst_row(folder: Path, key: str) -> tuple[Network, Region, Objective]:
    """The network, its root region and the output row with the lowest CROWN bound."""
    with (folder / "instances.csv").open(newline="") as file:
        network, prop = next((row[0], row[1]) for row in csv.reader(file) if key in row[1])
    net, unsafe = load_onnx(folder / network).network(), load_property(folder / prop)
    box = [torch.from_numpy(side[:1]) for side in (unsafe.boxes.lower, unsafe.boxes.upper)]
    region = RootBounds().region(net, box[0], box[1], Until())
    rows = torch.from_numpy(np.concatenate([clause.rows.A for clause in unsafe.clauses])).unsqueeze(0)
    offsets = -torch.from_numpy(np.concatenate([clause.rows.c for clause in unsafe.clauses])).unsqueeze(0)
    objective = Objective(len(net.layers), rows, None, offsets)
    worst = int(Linear().bound(net, region, objective, Until()).lower.argmin())
    kinks = tuple(k.index for k in Sweep.prepare(net, region, objective.layer).kinks)
    return net, replace(region, kinks=kinks), objective.part(worst, worst + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("keys", nargs="+")
    parser.add_argument("--long", action="store_true", help="also 4000 iterations of Saddle Point, and AS-SP")
    parser.add_argument("--only", default="", metavar="TEXT", help="only methods whose name contains this")
    options = parser.parse_args()
    cases = [worst_row(options.folder, key) for key in options.keys]
    print(f"| lower bound of the worst row (seconds) | {' | '.join(options.keys)} |")
    print(f"|---|{'---|' * len(cases)}")
    for name, method in methods(options.long).items():
        if options.only not in name:
            continue
        cells = []
        for net, region, objective in cases:
            begun = time.perf_counter()
            if isinstance(method, Linear | PlanetLP | CutLP):
                lower = method.bound(net, region, objective, Until()).lower
            else:
                single = net.to(dtype=torch.float32)
                lower = method.bound(single, region.to(torch.float32), objective.to(torch.float32), Until()).lower
            cells.append(f"{float(lower):.5f} ({time.perf_counter() - begun:.1f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
