"""Bounds of boxes: a zonotope for the neurons, one backward sweep for the rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.base import Region, widest
from verifier.bounding.rounding import layer_slack
from verifier.bounding.zonotope import Form, Zonotopes, propagate
from verifier.branching.input_split import axis_gains
from verifier.network.network import Network
from verifier.search.inputs.boxes import BoxDomains
from verifier.search.inputs.planes import Planes, planes_below
from verifier.search.inputs.table import Table
from verifier.search.inputs.weights import best_weights
from verifier.shapes import Bool, Float, Int, Tensor

SINGLE, DOUBLE = 0, 1
"""Tiers: the precision of the zonotope.  The sweep is always made in float64."""


@dataclass(frozen=True, eq=False)
class BoxBounds:
    """What is known of a batch of boxes: a bound per clause, planes below its rows, the gains of cuts.

    `slope` and `offset` hold a plane for the best combination of each clause's rows and, where some clause has several
    rows, for each single row; `owner` says to which clause a plane belongs.  `doubt` is what rounding in the
    zonotope may have cost the worst clause.
    """

    lower: Float[Tensor, "D C"]
    slope: Float[Tensor, "D S n0"]
    offset: Float[Tensor, "D S"]
    owner: Bool[Tensor, "D C S"]
    gains: Float[Tensor, "D n0"]
    kinks: Int[Tensor, " D"]
    doubt: Float[Tensor, " D"]


@dataclass(frozen=True, eq=False)
class BoxBounder:
    """Bounds every pending clause of a batch of boxes.

    requires:   the network in float64
    guarantees: `lower` and the planes include all rounding errors, in both tiers
    """

    net: Network
    single: Network
    table: Table
    weight_steps: int

    def bound(self, boxes: BoxDomains) -> BoxBounds:
        """Require: all boxes have the same tier."""
        double = not len(boxes) or int(boxes.tier[0]) == DOUBLE
        found = propagate(self.net if double else self.single, boxes.low, boxes.high)
        own = self.table.own[boxes.root]
        planes, owner = self._planes(boxes, found, own)
        clauses = own.shape[1]
        lower = torch.where(owner, planes.lower.unsqueeze(1), -torch.inf).amax(dim=-1)
        worst = torch.where(boxes.pending, lower, torch.inf).argmin(dim=1)
        pick = torch.arange(len(boxes), device=worst.device)
        lam = [None if c is None else c[:, :clauses][pick, worst] for c in planes.coefficients]
        variation = planes.slope[pick, worst].abs() * (boxes.high - boxes.low)
        gains = axis_gains(found, lam, variation)
        return BoxBounds(
            lower, planes.slope, planes.offset, owner, gains, found.ambiguous, self._doubt(boxes, found, worst)
        )

    def _planes(
        self, boxes: BoxDomains, found: Zonotopes, own: Bool[Tensor, "D C R"]
    ) -> tuple[Planes, Bool[Tensor, "D C S"]]:
        """A plane per clause and, if some clause has several rows, one per row."""
        rows = self.table.rows(boxes.root)
        inputs = Form.of_box(boxes.low, boxes.high, found.output.centre.dtype)
        weights = best_weights(rows, own, inputs, found.output, self.weight_steps)
        owner = torch.eye(own.shape[1], dtype=torch.bool, device=own.device).expand(len(boxes), -1, -1)
        if bool((own.sum(dim=-1) > 1).any()):
            each = torch.eye(own.shape[2], dtype=weights.dtype, device=own.device).expand(len(boxes), -1, -1)
            weights, owner = torch.cat([weights, each], dim=1), torch.cat([owner, own], dim=2)
        dtype = torch.float64
        region = Region(
            boxes.low, boxes.high, tuple(x.to(dtype) for x in found.l_hat), tuple(x.to(dtype) for x in found.u_hat)
        )
        layers = len(self.net.layers)
        slack = layer_slack(self.net.output, region, widest(self.net, layers) + layers)
        error = rows.rounding(weights, region, slack)
        return planes_below(self.net, region, rows.combined(layers, weights), error), owner

    def _doubt(self, boxes: BoxDomains, found: Zonotopes, worst: Int[Tensor, " D"]) -> Float[Tensor, " D"]:
        """How much the zonotope's rounding errors move the rows of the worst clause, at most."""
        rows, own = self.table.rows(boxes.root), self.table.own[boxes.root, worst]
        moved = (rows.A.abs() @ found.output.error.to(rows.A.dtype).unsqueeze(-1)).squeeze(-1)
        return (moved * own).amax(dim=-1)
