"""Points of open boxes that may be counterexamples: centres, and the corners where the planes are least."""

from __future__ import annotations

import torch

from verifier.network.network import Network
from verifier.result.counterexample import Counterexample
from verifier.search.boxes.boxes import BoxDomains, Table, middle
from verifier.search.domains import Offer
from verifier.shapes import Float, Tensor

CLOSER = 0.8
"""Points are offered only if the best of them is that much nearer to the unsafe set than all before."""


class Candidates:
    """Picks the few points of a batch that are worth a replay or a descent.

    All points are evaluated in the precision of `net`, which may be float32; the falsifier gets the best `most` of
    them, and only if the best one is unsafe itself or much closer to it than any before.
    """

    def __init__(self, net: Network, table: Table, offer: Offer, most: int) -> None:
        self._net, self._table, self._offer, self._most = net, table, offer, most
        self._nearest = float("inf")

    def tried(self, boxes: BoxDomains, corners: Float[Tensor, "D n0"]) -> Counterexample | None:
        """The first counterexample among the points that are picked."""
        if not len(boxes) or not self._most:
            return None
        x = torch.cat([middle(boxes.low, boxes.high), corners])
        clause = torch.cat([boxes.clause, boxes.clause])
        margin = self._margins(x, torch.cat([boxes.root, boxes.root]), clause)
        best = margin.topk(min(self._most, len(x)), largest=False).indices
        lowest = float(margin[best[0]])
        if lowest > 0 and not lowest < CLOSER * self._nearest:
            return None
        self._nearest = min(self._nearest, lowest)
        return self._offer(x[best], clause[best])

    def _margins(self, x: Tensor, root: Tensor, clause: Tensor) -> Float[Tensor, " P"]:
        """The largest row of each point's clause; NaN counts as infinite."""
        dtype = self._net.output.bias.dtype
        x = x.to(dtype)
        place = (self._table.number[root] == clause.unsqueeze(1)).long().argmax(dim=1)
        rows = self._table.rows(root, place).to(dtype)
        g = rows.values(self._net.forward(x).unsqueeze(1), x.unsqueeze(1)).squeeze(1)
        worst = g.masked_fill(~rows.present, -torch.inf).amax(dim=-1)
        return worst.nan_to_num(nan=torch.inf, neginf=0.0)
