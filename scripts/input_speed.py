"""Boxes per second of the search over input boxes, on a network of the size of ACAS Xu (5 inputs, 300 ReLUs).

    python scripts/input_speed.py [--threads 1] [--seconds 5]

The first table bounds the same boxes in batches of growing size; the second one runs a whole search and tells how much
of its time is spent outside of the bounds.  CPU seconds, so that a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import itertools

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.network.network import Affine, Network
from verifier.operators import Dense
from verifier.property.problem import Problem, canonicalise
from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows
from verifier.search.boxes.bounds import BoxBounder, Effort
from verifier.search.boxes.boxes import BoxDomains, Table, split
from verifier.search.boxes.space import InputOptions, InputSpace
from verifier.search.loop import BranchAndBound, Limits, run

WIDTHS = (5, 50, 50, 50, 50, 50, 50, 5)
BATCHES = (1, 4, 16, 64, 256, 1024, 4096)


def network(seed: int = 0) -> Network:
    """Random weights with the gain of trained ones."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for k, (n_in, n_out) in enumerate(itertools.pairwise(WIDTHS)):
        weight = torch.randn(n_out, n_in, generator=generator).double() * (2 / n_in) ** 0.5
        bias = 0.1 * torch.randn(n_out, generator=generator).double()
        layers.append(Affine(f"dense{k}", (n_out,), ((k, Dense(weight)),), bias, torch.zeros_like(bias)))
    return Network((WIDTHS[0],), tuple(layers[:-1]), layers[-1])


def problem(net: Network, bound: float) -> Problem:
    """Is y_0 <= bound possible in the box [-0.3, 0.3]^5?"""
    side = np.full((1, net.n_in), 0.3)
    box = Boxes.enclosed((-side, -side), (side, side))
    row = ExactRow(((0, Fraction(1)),), (), Fraction(bound), False)
    rows = RoundedRows.of([row], net.n_in, net.n_out, (-side[0], side[0]))
    return canonicalise(net, Property(net.n_in, net.n_out, box, (Clause(0, rows),)))


def nothing(x: torch.Tensor, clauses: torch.Tensor) -> None:
    """No falsifier."""


def parts(instance: Problem, count: int) -> BoxDomains:
    """At least `count` boxes of similar size."""
    space = InputSpace(instance, (0,), nothing, Until())
    tree = BranchAndBound(space, Limits())
    tree.step()
    waiting = tree.waiting()
    assert waiting is not None
    return split(waiting, count)


def speeds(instance: Problem) -> None:
    net = instance.network
    bounder = BoxBounder(net, net.to(dtype=torch.float32), Table.of(instance, (0,)), Effort())
    boxes = parts(instance, max(BATCHES))
    print("| boxes at a time | boxes/s |\n|---|---|")
    for batch in BATCHES:
        some = boxes.select(torch.arange(batch))
        chunk = [some.select(rows) for rows in torch.arange(batch).split(256)]
        bounder.bound(chunk[0])
        begun, done = time.process_time(), 0
        while time.process_time() - begun < 1.0:
            for part in chunk:
                done += len(bounder.bound(part).lower)
        print(f"| {batch} | {done / (time.process_time() - begun):.0f} |")


def share(instance: Problem, seconds: float) -> None:
    until = Until(Clock.begin(seconds))
    begun = time.perf_counter()
    space = InputSpace(instance, (0,), nothing, until, None, InputOptions())
    outcome = run(BranchAndBound(space, Limits()), until)
    elapsed = time.perf_counter() - begun
    counts = outcome.progress.counts
    print(f"\nsearch: {counts.domains} boxes in {elapsed:.2f} s, {counts.domains / elapsed:.0f} boxes/s,", end=" ")
    print(f"{100 * (1 - counts.seconds / elapsed):.0f} % of the time outside of the bounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the search")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    net = network()
    instance = problem(net, float(net.forward(torch.zeros(1, 5).double())[0, 0]) - 0.45)
    speeds(instance)
    share(instance, options.seconds)


if __name__ == "__main__":
    main()
