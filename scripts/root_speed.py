"""Root bounds of hidden neurons over patches beside those over whole images or tiles: CPU seconds, in turns.

    .venv/bin/python scripts/root_speed.py cifar10_resnet resnet_2b resnet_4b

The arguments are a family folder and parts of network names; the first property of each network is taken.  Of each way
the least CPU time of some rounds is told, how many neurons stay ambiguous, by how much bounds of these differ, and how
much memory each way needs at most beyond what was held before.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from pathlib import Path

import torch

from verifier.bounding import frugal
from verifier.bounding.core.base import Region, Until
from verifier.bounding.frugal import with_crown
from verifier.network.models.onnx import load_onnx
from verifier.network.network import Network
from verifier.processes import Forked
from verifier.property.vnnlib import load_property

WAYS = {"before": float("inf"), "patches": frugal.WORTH_PATCHES}


def instance(folder: Path, key: str) -> tuple[Network, torch.Tensor, torch.Tensor]:
    """The network whose name contains the key, and the box of its first property."""
    with (folder / "instances.csv").open(newline="") as file:
        network, prop = next((row[0], row[1]) for row in csv.reader(file) if key in row[0])
    net, unsafe = load_onnx(folder / network).network(), load_property(folder / prop)
    return net, torch.from_numpy(unsafe.boxes.lower[:1]), torch.from_numpy(unsafe.boxes.upper[:1])


def bounded(net: Network, box: tuple[torch.Tensor, torch.Tensor], way: str) -> tuple[Region, float]:
    """The bounds, and the CPU seconds that they took."""
    frugal.WORTH_PATCHES = WAYS[way]
    began = time.process_time()
    return with_crown().region(net, *box, Until()), time.process_time() - began


def peak(net: Network, box: tuple[torch.Tensor, torch.Tensor], way: str) -> float:
    """Megabytes that a process of its own needs besides those that it begins with."""

    def work(send: object) -> float:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        bounded(net, box, way)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    with Forked(work) as beside:
        return beside.wait()


def compared(first: Region, second: Region) -> tuple[int, int, float]:
    """Ambiguous neurons of both, and by how much the second one is looser at most where the first one is ambiguous."""
    counts, looser = [0, 0], 0.0
    for k in range(1, first.known + 1):
        bent = first.ambiguous(k)
        counts = [counts[0] + int(bent.sum()), counts[1] + int(second.ambiguous(k).sum())]
        below = (first.l_hat[k - 1] - second.l_hat[k - 1])[bent]
        above = (second.u_hat[k - 1] - first.u_hat[k - 1])[bent]
        looser = max([looser, *torch.cat([below, above]).tolist()])
    return counts[0], counts[1], looser


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("keys", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | before, CPU s | over patches | ratio | ambiguous | looser by | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for key in options.keys:
        net, *sides = instance(options.folder, key)
        box = sides[0], sides[1]
        megabytes = [f"{peak(net, box, way):.0f}" for way in WAYS]
        runs = [[bounded(net, box, way) for way in WAYS] for _ in range(options.rounds)]
        before, after = (min(seconds for _, seconds in column) for column in zip(*runs, strict=True))
        first, second, looser = compared(*(region for region, _ in runs[-1]))
        cells = f"{before:.2f} | {after:.2f} | {before / after:.1f} | {first}, {second} | {looser:.0e}"
        print(f"| {key} | {cells} | {', '.join(megabytes)} |", flush=True)


if __name__ == "__main__":
    main()
