"""Which hidden neurons get better bounds where time does not suffice for all of them.

Groups are bounded from the input up, because each begins with the bounds of those before it.  Whoever takes all neurons
in that order spends the time on the first groups of a deep network, and never comes to the last ones, where most is
lost.  So a neuron is worth what is lost at it, over the work that its sweeps take; what does not fit is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import torch

from verifier.bounding.core.base import Until
from verifier.network.network import Network
from verifier.shapes import Float, Int, Tensor

Work = Callable[[Int[Tensor, " c"], Until], None]
"""Bounds some neurons of a group, as far as time suffices."""


class Rations:
    """The time of one pass over all groups, from the first to the last.

    `losses` say what is lost at each neuron of every group, `waiting` which neurons of a group are expected to be
    bounded: they are only reckoned with until it is the group's turn.
    """

    def __init__(
        self, net: Network, losses: Sequence[Float[Tensor, " _"]], waiting: Sequence[Int[Tensor, " _"]]
    ) -> None:
        self._losses, self._waiting = losses, waiting
        sizes = [group.size for group in net.groups]
        self._work = [1, *accumulate(sizes)][: len(sizes)]  # entries that a sweep from one neuron touches
        self._seconds, self._done = 0.0, 0  # that were spent, and entries that were touched in them

    def spend(self, k: int, neurons: Int[Tensor, " c"], until: Until, work: Work) -> None:
        """Bound those neurons of group k that are worth it, the greatest losses first."""
        chosen = self.chosen(k, neurons, until.clock.remaining())
        if not self._seconds:  # nobody knows yet what fits
            until = replace(until, clock=until.clock.within(until.clock.remaining() / (1 + len(self._work) - k)))
        began = time.monotonic()
        work(chosen, until)
        if len(chosen) and not until.expired():  # or else some of them were not reached
            self._seconds += time.monotonic() - began
            self._done += len(chosen) * self._work[k - 1]

    def chosen(self, k: int, neurons: Int[Tensor, " c"], seconds: float) -> Int[Tensor, " c"]:
        """The neurons of group k that fit into so many seconds, beside those of later groups that are worth more.

        All of them, as long as the pace is not known.
        """
        losses = self._losses[k - 1].to(neurons.device)[neurons]
        order = losses.argsort(descending=True, stable=True)
        if seconds == float("inf") or not self._seconds:
            return neurons[order]
        worth, cost = [losses[order].double() / self._work[k - 1]], [torch.full_like(order, self._work[k - 1])]
        for later in range(k + 1, len(self._work) + 1):
            waiting = self._waiting[later - 1]
            worth.append(self._losses[later - 1][waiting].double() / self._work[later - 1])
            cost.append(torch.full_like(waiting, self._work[later - 1]))
        ranks = torch.cat(worth).argsort(descending=True, stable=True)
        room = max(0.0, seconds) * self._done / self._seconds
        fits = torch.cat(cost)[ranks].cumsum(0) <= room
        taken = torch.zeros_like(fits).scatter(0, ranks, fits)
        return neurons[order[taken[: len(order)]]]
