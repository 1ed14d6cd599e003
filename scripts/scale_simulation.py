"""How a search scales: the policy of `--engine ray` on a recorded tree, with thousands of workers that are not there.

    verify NET PROP --threads 1 --trace tree.jsonl
    python scripts/scale_simulation.py tree.jsonl --workers 1 10 100 1000 -o scale.svg

The orders come from the very code that a real cluster runs (`verifier.search.cluster.policy`); workers, messages and
time are simulated.  A worker bounds `--rate` domains per second in batches; a message takes `--latency` seconds on its
way and `--cost` seconds of the coordinator, which treats one after the other, and `--cost-domain` more for each domain
in it.  `--copies N` hangs N copies of the tree under one root, for trees that are too small for so many workers.
`--lost R` kills a worker R times an hour each; a new one comes at once, and begins after `--start` seconds.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verifier.search.cluster.policy import Coordinator, Order, Report
from verifier.search.domains import Counts

Part = tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """Children of every domain that was split, and the domains of whole boxes."""

    children: dict[int, list[int]]
    roots: tuple[int, ...]

    @classmethod
    def read(cls, path: Path) -> Tree:
        """From a trace; a domain with two lines counts once."""
        parents: dict[int, int | None] = {}
        for line in path.read_text().splitlines():
            found = json.loads(line)
            parents[found["id"]] = found["parent"]
        children: dict[int, list[int]] = defaultdict(list)
        for number, parent in parents.items():
            if parent is not None:
                children[parent].append(number)
        return cls(dict(children), tuple(n for n, parent in parents.items() if parent is None))

    def copied(self, copies: int) -> Tree:
        """As many trees side by side."""
        step = 1 + max([*self.roots, *(c for some in self.children.values() for c in some)])
        children = {
            n + k * step: [c + k * step for c in some] for k in range(copies) for n, some in self.children.items()
        }
        return Tree(children, tuple(root + k * step for k in range(copies) for root in self.roots))

    @property
    def size(self) -> int:
        """Domains, the whole boxes not counted."""
        return sum(map(len, self.children.values()))

    def open(self, numbers: Sequence[int]) -> list[int]:
        """Those that were split."""
        return [number for number in numbers if number in self.children]


@dataclass(frozen=True)
class Costs:
    """What things take, in seconds."""

    rate: float = 50.0  # domains of a worker per second
    batch: int = 256
    slice: float = 1.0  # after which a worker reports
    latency: float = 0.002
    message: float = 0.0005  # of the coordinator, for a report and its order
    domain: float = 2e-6  # of the coordinator, for a domain that travels
    start: float = 10.0  # of a new worker
    lost: float = 0.0  # times per hour that a worker is lost


@dataclass
class Worker:
    """Splits domains of its part, in batches."""

    tree: Tree
    costs: Costs
    waiting: list[int] = field(default_factory=list)

    def follow(self, order: Order[Part]) -> tuple[Report[Part], float]:
        """The report, and how long it takes until it is sent."""
        if order.part is not None:
            self.waiting = list(order.part)
        given, done, seconds = [], 0, 0.0
        for _ in range(order.give):
            pieces = [self.waiting, *given]
            largest = max(pieces, key=len)
            given.append(largest[1::2])
            largest[:] = largest[::2]
        while not given and self.waiting and seconds < self.costs.slice:
            some, self.waiting = self.waiting[: self.costs.batch // 2], self.waiting[self.costs.batch // 2 :]
            children = [child for number in some for child in self.tree.children[number]]
            self.waiting += self.tree.open(children)
            done += len(children)
            seconds += len(children) / self.costs.rate
        left = tuple(self.waiting) if order.tell or given else None
        counts = Counts({"simulated": done})
        return Report(order.ticket, counts, len(self.waiting), part=left, given=tuple(map(tuple, given))), seconds


@dataclass
class Outcome:
    """What a simulated run took."""

    workers: int
    seconds: float = 0.0
    domains: int = 0
    messages: int = 0
    travelled: int = 0
    worked: float = 0.0
    coordinating: float = 0.0
    again: int = 0  # domains that lost workers had bounded
    kills: int = 0

    @property
    def efficiency(self) -> float:
        return self.domains / max(1e-9, self.rate * self.workers * self.seconds)

    rate: float = 50.0

    def line(self) -> str:
        busy, thousand = self.coordinating / max(1e-9, self.seconds), self.domains / 1000
        return (
            f"{self.workers:6d} {self.seconds:10.1f} {100 * self.efficiency:9.1f} {100 * busy:12.1f} "
            f"{self.messages / thousand:10.1f} {self.travelled / thousand:10.1f} {self.kills:6d} {self.again:8d}"
        )


HEADING = "workers    seconds  efficient  coordinator  messages    domains  kills    again"
UNITS = "                           %         busy %  per 1000   sent/1000"


def simulate(tree: Tree, workers: int, costs: Costs, tell_every: float = 30.0, seed: int = 0) -> Outcome:
    """A run by so many workers, from the whole boxes until everything is closed."""
    rng, out = random.Random(seed), Outcome(workers, rate=costs.rate)
    coordinator: Coordinator[Part] = Coordinator([tuple(tree.open(tree.roots))], tell_every)
    hands = {w: Worker(tree, costs) for w in range(workers)}
    for worker in hands:
        coordinator.joined(worker)
    events: list[tuple[float, int, int, Report[Part] | None, int]] = []  # time, order, worker, report, domains in it
    free_at, born, serial = 0.0, workers, 0

    def send(now: float) -> None:
        nonlocal serial
        for worker, order in coordinator.orders(now):
            report, seconds = hands[worker].follow(order)
            size = len(order.part or ()) + len(report.part or ()) + sum(map(len, report.given))
            arrives = now + 2 * costs.latency + seconds
            out.worked += seconds
            serial += 1
            if costs.lost and rng.random() < 1 - 2.718281828 ** (-costs.lost * (seconds + 1e-9) / 3600):
                heapq.heappush(events, (now + seconds * rng.random(), serial, worker, None, 0))
            else:
                heapq.heappush(events, (arrives, serial, worker, report, size))

    send(0.0)
    while not coordinator.over:
        arrives, _, worker, report, size = heapq.heappop(events)
        now = max(arrives, free_at)
        took = costs.message + costs.domain * size
        free_at = now + took
        out.coordinating += took
        if report is None:
            before = coordinator.counts.domains
            coordinator.lost(worker)
            out.again += before - coordinator.counts.domains
            out.kills += 1
            hands[born] = Worker(tree, costs)
            heapq.heappush(events, (now + costs.start, -born, born, Report(-1), 0))
            born += 1
        elif report.ticket == -1:
            coordinator.joined(worker)
        else:
            assert coordinator.heard(worker, report, free_at)
            out.messages += 2
            out.travelled += size
        send(free_at)
    out.seconds, out.domains = free_at, coordinator.committed.domains
    assert out.domains == tree.size, "a domain was lost, or counted twice"
    return out


def plotted(found: Sequence[Outcome], title: str) -> str:
    """Speed-up against workers, both logarithmic, as SVG."""
    width, height, edge = 640, 420, 60
    most = max(o.workers for o in found)
    base = next(o for o in found if o.workers == min(p.workers for p in found))
    one = base.seconds * base.workers * base.efficiency

    def at(workers: float, speed: float) -> tuple[float, float]:
        import math

        full = math.log10(max(10, most))
        x = edge + (width - 2 * edge) * math.log10(max(1, workers)) / full
        y = height - edge - (height - 2 * edge) * math.log10(max(1, speed)) / full
        return x, y

    points = " ".join("{:.1f},{:.1f}".format(*at(o.workers, one / o.seconds)) for o in found)
    ideal = " ".join("{:.1f},{:.1f}".format(*at(n, n)) for n in (1, most))
    marks = []
    tick = 1
    while tick <= most:
        x, y = at(tick, tick)
        marks.append(f'<text x="{x:.0f}" y="{height - edge + 18}" text-anchor="middle">{tick}</text>')
        marks.append(f'<text x="{edge - 8}" y="{y + 4:.0f}" text-anchor="end">{tick}</text>')
        tick *= 10
    dots = "".join('<circle cx="{:.1f}" cy="{:.1f}" r="3"/>'.format(*at(o.workers, one / o.seconds)) for o in found)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><title>{title}</title><rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="{width / 2}" y="24" text-anchor="middle">{title}</text>'
        f'<polyline points="{ideal}" fill="none" stroke="#bbb" stroke-dasharray="4"/>'
        f'<polyline points="{points}" fill="none" stroke="#3050a0" stroke-width="2"/>{dots}{"".join(marks)}'
        f'<text x="{width / 2}" y="{height - 14}" text-anchor="middle">workers</text>'
        f'<text x="16" y="{height / 2}" transform="rotate(-90 16 {height / 2})" text-anchor="middle">'
        "times faster than one</text></svg>\n"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 10, 100, 1000])
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--rate", type=float, default=Costs.rate)
    parser.add_argument("--batch", type=int, default=Costs.batch)
    parser.add_argument("--slice", type=float, default=Costs.slice)
    parser.add_argument("--latency", type=float, default=Costs.latency)
    parser.add_argument("--cost", type=float, default=Costs.message)
    parser.add_argument("--cost-domain", type=float, default=Costs.domain)
    parser.add_argument("--start", type=float, default=Costs.start)
    parser.add_argument("--lost", type=float, default=Costs.lost)
    parser.add_argument("--tell-every", type=float, default=30.0)
    parser.add_argument("-o", "--output", type=Path, help="a plot, as SVG")
    given = parser.parse_args(argv)
    tree = Tree.read(given.trace).copied(given.copies)
    costs = Costs(
        given.rate, given.batch, given.slice, given.latency, given.cost, given.cost_domain, given.start, given.lost
    )
    print(f"{tree.size} domains in {len(tree.roots)} trees")
    print(HEADING)
    print(UNITS)
    found = []
    for workers in given.workers:
        found.append(simulate(tree, workers, costs, given.tell_every))
        print(found[-1].line(), flush=True)
    if given.output is not None:
        given.output.write_text(plotted(found, f"{tree.size} domains, {given.rate:g} per second and worker"))


if __name__ == "__main__":
    main()
