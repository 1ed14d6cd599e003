"""Workers on a complete binary tree, without a network or a process: a part is a set of domains, by their numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from verifier.search.cluster.policy import Order, Report
from verifier.search.domains import Counts

Part = frozenset[int]
"""Domain k has the children 2k and 2k + 1."""


def below(number: int, depth: int) -> int:
    """How many domains come from one, without itself."""
    return 2 ** (depth + 2 - number.bit_length()) - 2


def size(depth: int) -> int:
    return 2 ** (depth + 1) - 1


@dataclass
class Hand:
    """A worker: it splits some domains, or gives pieces away."""

    depth: int
    open: list[int] = field(default_factory=list)

    def follow(self, order: Order[Part], steps: int, rng: random.Random) -> Report[Part]:
        if order.part is not None:
            self.open = sorted(order.part)
        done, given = 0, []
        for _ in range(order.give):
            rng.shuffle(self.open)
            half = len(self.open) // 2
            if half:
                given.append(frozenset(self.open[:half]))
                del self.open[:half]
        for _ in range(0 if given else steps):
            if self.open:
                number = self.open.pop(rng.randrange(len(self.open)))
                children = [2 * number, 2 * number + 1]
                done += 2
                self.open += [child for child in children if child.bit_length() <= self.depth]
        left = frozenset(self.open) if order.tell or given else None
        return Report(order.ticket, Counts({"t": done}), len(self.open), -1.0, 0.0, left, tuple(given))
