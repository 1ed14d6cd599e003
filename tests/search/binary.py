"""A complete binary tree as a search space, of which every process writes down what it does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from forks import notebook
from search.cases import Named, domains

from verifier.bounding.core.base import Until
from verifier.clock import Stopwatch
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.cluster.worker import PartWorker
from verifier.search.journal import Bounded, Journal
from verifier.search.loop import Limits
from verifier.search.space import Leaves, Remaining, Space

INF = float("inf")


@dataclass(frozen=True, eq=False)
class Grown(Remaining):
    """The children of one step, those of them that are open, and what else was found."""

    open: Named
    leaves: Leaves


Twist = Callable[[list[int]], Grown | None]
"""Gives another step than usual for the children with these numbers."""


def usual(children: list[int]) -> None:
    """No twist."""


class Binary(Space[Named, list[int], Grown, Grown]):
    """A complete binary tree: domain k has the children 2k and 2k + 1; those of the last level are closed.

    Every process writes down whom it has split.
    """

    def __init__(self, depth: int, twist: Twist = usual) -> None:
        self._depth, self._twist, self._book = depth, twist, notebook()
        self.journal, self.bounding = Journal(), Stopwatch()
        self.home = os.getpid()

    def __del__(self) -> None:
        os.close(self._book)

    @property
    def roots(self) -> int:
        return 1

    @property
    def parents(self) -> int:
        return 2

    def whole(self) -> list[int]:
        return [1]

    def split(self, parents: Named) -> list[int]:
        for number in parents.number.tolist():
            os.write(self._book, f"{os.getpid()} {number}\n".encode())
        time.sleep(0.002)  # so that everybody gets a share
        return [2 * k + side for k in parents.number.tolist() for side in (0, 1)]

    def bound(self, children: list[int]) -> Grown:
        self.journal.hear(Bounded(torch.tensor(children), torch.zeros(len(children)), "binary"))
        return (self._twist(children) if children != [1] else None) or self._step(children)

    def _step(self, numbers: list[int]) -> Grown:
        left = [k for k in numbers if k.bit_length() <= self._depth]
        made = replace(
            domains([-1.0 / k for k in left], depths=[k.bit_length() - 1 for k in left] or None),
            number=torch.tensor(left, dtype=torch.long),
        )
        return Grown(torch.tensor(numbers), numbers[0].bit_length() - 1, made, Leaves())

    def certify(self, bounded: Grown) -> Grown:
        return bounded

    def attack(self, left: Grown) -> None:
        """Nothing is tried."""

    def leaves(self, left: Grown) -> Leaves:
        return left.leaves

    def open(self, left: Grown, leaves: Leaves) -> Named:
        return left.open

    def covering(self, domains: Named) -> torch.Tensor:
        raise AssertionError("nothing moves")

    @property
    def history(self) -> list[tuple[int, int]]:
        """Processes and the domains that they have split."""
        lines = os.pread(self._book, 2**20, 0).decode().splitlines()
        return [(int(process), int(number)) for process, number in (line.split() for line in lines)]

    @property
    def abroad(self) -> bool:
        """Whether this is a fork."""
        return os.getpid() != self.home


def closed(
    children: list[int],
    witness: Counterexample | None = None,
    doubt: Reason | None = None,
    undecided: float = INF,
) -> Grown:
    return Grown(torch.tensor(children), 1, domains([]), Leaves(None, witness, doubt, undecided))


@dataclass(frozen=True)
class BinaryParcel:
    """What workers elsewhere need to search such a tree; they report after some steps."""

    depth: int

    def worker(self) -> PartWorker[Named]:
        return PartWorker(Binary(self.depth), Until(), Limits(), 2**20, 0.05)
