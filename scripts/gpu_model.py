"""How fast a GPU could be, from what is counted: launches, bytes, products, and how often the host waits.

    python scripts/gpu_model.py                       the networks of `make bench`, batches of 200 to 10,000
    python scripts/gpu_model.py --gpu 300e9 9e12      bytes and float32 operations per second of another GPU

Each method makes one iteration on the stand-in (docs/gpu.md) with two sizes of the batch.  Launches and waits must not
depend on it; bytes and products grow with it along a line, which gives those of any batch.  The model of a GPU:

    seconds = max(launches x 5 us, bytes / bandwidth, products / rate) + waits x 20 us

No launch overlaps with another one, and no cache helps: what a kernel reads comes from memory each time.  Beside it is
what one core of this machine makes of a batch of 200: the median of five.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass

import torch
from bench import Case, cases, loops, seconds
from gpu import standin
from gpu.tally import Tally, counted

LAUNCH, WAIT = 5e-6, 20e-6
"""Seconds between the starts of two kernels, and for the host to hear from the device and to fill its queue again."""

BATCHES = (200, 1000, 3000, 10000)
SMALL = (4, 8)


@dataclass(frozen=True)
class Gpu:
    """A round one, somewhat below what current cards for data centres can do."""

    bandwidth: float = 1e12  # bytes per second
    rate: float = 15e12  # float32 operations per second

    def seconds(self, cost: Cost, batch: int) -> float:
        moved, products = cost.moved.at(batch), cost.products.at(batch)
        return max(cost.launches * LAUNCH, moved / self.bandwidth, products / self.rate) + cost.waits * WAIT


@dataclass(frozen=True)
class Line:
    """What grows with the batch, measured twice."""

    first: tuple[int, float]
    second: tuple[int, float]

    def at(self, batch: int) -> float:
        (few, low), (many, high) = self.first, self.second
        return low + (high - low) / (many - few) * (batch - few)


@dataclass(frozen=True)
class Cost:
    """Of one iteration."""

    launches: int
    waits: int
    moved: Line
    products: Line


def iteration(case: Case, name: str) -> Tally:
    """What the second iteration of a method does: the first one may still set something up."""
    step = loops(case)[name]
    step()
    with counted() as tally:
        step()
    return tally


def costs(name: str, small: Case, large: Case) -> Cost:
    """Raises ValueError if launches or waits depend on the batch."""
    few, many = iteration(small, name), iteration(large, name)
    if (few.launches, few.waits) != (many.launches, many.waits):
        raise ValueError(f"{name}: {few.launches} launches and {few.waits} waits, {many.launches} and {many.waits}")
    moved = Line((small.batch, few.read_and_written), (large.batch, many.read_and_written))
    products = Line((small.batch, few.products), (large.batch, many.products))
    return Cost(few.launches, few.waits, moved, products)


def on_cpu(case: Case, name: str, rounds: int = 5) -> float:
    """Seconds of one iteration here."""
    step = loops(case)[name]
    step()
    return statistics.median(seconds(step) for _ in range(rounds))


def table(case: Case, gpu: Gpu, timed: bool) -> None:
    """Thousands of regions that go through one iteration per second, by the model, and here."""
    small, large = (case.first(count).on(standin.install()) for count in SMALL)
    print(f"\n{case.name}")
    header = "".join(f"{batch:>9d}" for batch in BATCHES) + (f"{f'CPU, {case.batch}':>11s}" if timed else "")
    print(f"  {'thousands of regions per second':34s} {'launches':>8s} {'waits':>6s} {'kB each':>8s}{header}")
    for name in loops(small):
        cost = costs(name, small, large)
        each = (cost.moved.at(2) - cost.moved.at(1)) / 1e3
        speeds = "".join(f"{batch / gpu.seconds(cost, batch) / 1e3:9.0f}" for batch in BATCHES)
        mine = f"{case.batch / on_cpu(case, name) / 1e3:11.2f}" if timed else ""
        print(f"  {name:34s} {cost.launches:8d} {cost.waits:6d} {each:8.0f}{speeds}{mine}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", nargs=2, type=float, metavar=("BANDWIDTH", "RATE"), default=(Gpu.bandwidth, Gpu.rate))
    parser.add_argument("--untimed", action="store_true", help="counts only")
    options = parser.parse_args()
    if not standin.available():
        print(f"torch {torch.__version__} has no devices that are written in Python: nothing can be counted")
        return 1
    torch.set_num_threads(1)
    gpu = Gpu(*options.gpu)
    print(f"a GPU with {gpu.bandwidth / 1e9:.0f} GB/s and {gpu.rate / 1e12:.1f} Tflop/s; torch {torch.__version__}")
    for case in cases(BATCHES[0]):
        table(case, gpu, timed=not options.untimed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
