"""Speed of the bounding loops against the raw network: `make bench`.

The unit is one forward pass plus one backward pass with respect to the input of the torch module, in float32, at the
same batch and with the same threads.  Every figure is the median of alternating rounds, so that a change of the
machine's mood hits both sides.  Networks come from the benchmark families beside the repository if they are there,
else from properties/.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from verifier.bounding.core.ascent import Average, Climb, Dual, Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import CutMasks, Form, Threshold, find_masks
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.alpha_crown import SlopeDual
from verifier.bounding.solvers.bdd_plus import Blocks
from verifier.bounding.solvers.big_m import Start
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.decomposition import Decomposition
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import cuts_of
from verifier.bounding.solvers.propagated import PropagatedDual, find
from verifier.bounding.solvers.saddle import Caps, Primal, Saddle
from verifier.bounding.solvers.solver import Task
from verifier.network.lowering.convert import to_graph_module
from verifier.network.models.onnx import load_onnx
from verifier.network.network import Network
from verifier.property.vnnlib import load_property

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "benchmarks"
CUTS: tuple[tuple[Threshold, ...], ...] = ((0.5,), (0.4, 0.6), (0.3, 0.5, 0.7), (None,))
STEPS = Steps(1e-3, 1e-4)


@dataclass(frozen=True, eq=False)
class Case:
    """A network with the worst row of a property, as `batch` equal subproblems in float32."""

    name: str
    module: torch.nn.Module
    input_shape: tuple[int, ...]
    net: Network
    region: Region
    objective: Objective

    @classmethod
    def load(cls, name: str, network: Path, prop: Path, batch: int) -> Case:
        model, unsafe = load_onnx(network), load_property(prop)
        net = model.network()
        box = [torch.from_numpy(side[:1]) for side in (unsafe.boxes.lower, unsafe.boxes.upper)]
        region = RootBounds().region(net, box[0], box[1], Until())
        rows = torch.from_numpy(np.concatenate([clause.rows.A for clause in unsafe.clauses]))
        objective = Objective(len(net.layers), rows.unsqueeze(0))
        worst = int(Linear().bound(net, region, objective, Until()).lower.argmin())
        kinks = Sweep.prepare(net, region, objective.layer).kinks
        region = replace(region, kinks=tuple(k.index for k in kinks))
        return cls(
            f"{name} ({sum(len(k.index) for k in kinks)} of {net.relus} neurons ambiguous)",
            to_graph_module(model.proto),
            model.input_shape,
            net.to(dtype=torch.float32),
            _single(region, batch),
            Objective(objective.layer, rows[worst].float().reshape(1, 1, -1)),
        )

    @property
    def batch(self) -> int:
        return self.region.count

    def first(self, count: int) -> Case:
        """The same with a smaller batch."""
        return replace(self, region=self.region.select(slice(0, count)))

    def on(self, device: torch.device) -> Case:
        """The same on another device; the torch module stays where it is."""
        region, objective = self.region.to(device), self.objective.to(device)
        return replace(self, net=self.net.to(device), region=region, objective=objective)

    def unit(self) -> None:
        """Forward and backward of the torch module on the whole batch."""
        x = torch.rand(self.batch, *self.input_shape[1:], requires_grad=True)
        self.module(x).sum().backward()


def _single(region: Region, batch: int) -> Region:
    """The region repeated, in float32."""

    def repeated(values: torch.Tensor) -> torch.Tensor:
        return values.float().repeat(batch, 1)

    return replace(
        region,
        lower=repeated(region.lower),
        upper=repeated(region.upper),
        l_hat=tuple(map(repeated, region.l_hat)),
        u_hat=tuple(map(repeated, region.u_hat)),
    )


def loops(case: Case) -> dict[str, Callable[[], None]]:
    """One iteration of each solver, state carried over."""
    sweep = Sweep.prepare(case.net, case.region, case.objective.layer)
    task = Task(sweep, case.objective)
    slopes, plain = SlopeDual(sweep, case.objective), Lagrangian(sweep, case.objective)
    start = Start.LINEAR.point(plain)
    found: dict[str, Callable[[], None]] = {
        "alpha_crown": _iteration(slopes, slopes.start()),
        "big_m": _iteration(plain, start),
    }
    average = Average(torch.arange(case.batch, device=case.region.lower.device))
    at = plain.evaluate(start)
    average.add(plain.primal(at)[0], at.z)
    for name, masks in _propagated(task, average).items():
        bent = PropagatedDual.of(task.geometries, case.objective, masks)
        point = bent.start()
        point[..., slopes.variables :] = 0.3  # as if some weight were on every cut, and in every learned mask
        bent.project(point)
        found[f"propagated, {name}"] = _iteration(bent, point)
    for form in (Form.ROWS, Form.SHARED):
        dual = plain.with_cuts(cuts_of(task.geometries, find_masks(task.geometries, average, form)))
        wide = torch.nn.functional.pad(start, (0, dual.variables - start.shape[-1]))
        found[f"active_set, 1 mask ({form.value})"] = _iteration(dual, wide)
    found["saddle_point"] = _frank_wolfe(task, plain, start)
    found["bdd_plus"] = _by_blocks(task)
    return found


def _propagated(task: Task, average: Average) -> dict[str, CutMasks]:
    """Cuts with masks that are given, by their thresholds, and one cut whose masks are learned."""
    given = {
        _named(thresholds): CutMasks(tuple(find(task, average, threshold).cuts[0] for threshold in thresholds))
        for thresholds in CUTS
    }
    return {"learned": find(task, average, 0.5, learned=True), **given}


def _named(thresholds: tuple[Threshold, ...]) -> str:
    return " ".join("exact" if t is None else f"{t:g}" for t in thresholds)


def _iteration(dual: Dual, start: torch.Tensor) -> Callable[[], None]:
    climb = Climb(dual, start, Until())
    return lambda: climb.step(climb.record(), 1e-3, 0)


def _frank_wolfe(task: Task, dual: Lagrangian, point: torch.Tensor) -> Callable[[], None]:
    saddle = Saddle.of(dual, point, task.geometries.rows())
    prices = saddle.start(dual, point, CutMasks())
    caps = [Caps.of(p) for p in prices]
    at = saddle.answer(prices)
    primal = Primal(at.x0, at.x, at.z)

    def step() -> None:
        replies = saddle.reply(primal, caps, with_cuts=True)
        saddle.answer([p.towards(reply, 0.1) for p, reply in zip(prices, replies, strict=True)])

    return step


def _by_blocks(task: Task) -> Callable[[], None]:
    dual = Decomposition.of(task)
    blocks = Blocks(dual, dual.start(), momentum=0.3)

    def step() -> None:
        blocks.visit(10.0)
        blocks.move(10.0)

    return step


def seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ratios(case: Case, rounds: int) -> None:
    """Print the cost of one iteration in units, and what it adds to the peak memory."""
    work = loops(case)
    case.unit()
    times: dict[str, list[float]] = {name: [] for name in ("unit", *work)}
    for _ in range(rounds):
        times["unit"].append(seconds(case.unit))
        for name, step in work.items():
            times[name].append(seconds(step))
    unit = statistics.median(times["unit"])
    print(f"\n{case.name}, batch {case.batch}: unit {1000 * unit:.1f} ms")
    print(f"  {'one iteration of':34s} {'units':>6s} {'ms':>8s}")
    for name in work:
        middle = statistics.median(times[name])
        print(f"  {name:34s} {middle / unit:6.2f} {1000 * middle:8.1f}")


def cases(batch: int) -> list[Case]:
    """Base, Deep and a fully connected network, or what the clone brings along."""
    if not SHARED.is_dir():
        folder = ROOT / "properties"
        lines = [line.split(",") for line in (folder / "instances.csv").read_text().split()]
        chosen = {line[0]: line[1] for line in reversed(lines)}
        return [Case.load(net, folder / net, folder / prop, batch) for net, prop in list(chosen.items())[:2]]
    found = []
    for name, family, network, key in (
        ("Base", "oval21", "onnx/cifar_base_kw.onnx", "base_kw-img8194"),
        ("Deep", "oval21", "onnx/cifar_deep_kw.onnx", "deep_kw-img4325"),
        ("mnist_fc 256x4", "mnist_fc", "onnx/mnist-net_256x4.onnx", "prop_0_0.03"),
    ):
        folder = SHARED / family
        prop = next(p for p in sorted((folder / "vnnlib").iterdir()) if key in p.name)
        found.append(Case.load(name, folder / network, prop, batch))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for case in cases(options.batch):
        ratios(case, options.rounds)


if __name__ == "__main__":
    main()
