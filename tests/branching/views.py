"""What branchers are shown in the tests."""

from __future__ import annotations

import networks
import torch

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.crown import Linear
from verifier.branching.base import View
from verifier.network.network import Network


def silent(kinks: torch.Tensor) -> torch.Tensor:
    """Children whose bounds are all the same."""
    return torch.full((*kinks.shape, 2), -1.0, dtype=torch.float64)


def view_of(net: Network, region: Region, rows: torch.Tensor) -> View:
    """One objective [D, n_y] per region, bounded by CROWN; probing says nothing."""
    objective = Objective(len(net.layers), rows.unsqueeze(1))
    sweep = Sweep.prepare(net, region, objective.layer)
    return View(sweep, objective, sweep.backward(objective, Linear().choices(sweep)), silent)


def random_view(family: str, seed: int, boxes: int = 3) -> View:
    """Several boxes: kinks of one are stable in another."""
    net = networks.FAMILIES[family](seed)
    region = RootBounds().region(net, *networks.box(net, seed, 0.6, boxes), Until())
    generator = torch.Generator().manual_seed(seed)
    return view_of(net, region, torch.randn(boxes, net.n_out, generator=generator, dtype=torch.float64))


def ambiguous(view: View) -> torch.Tensor:
    return torch.cat([kinks.ambiguous.squeeze(1) for kinks in view.sweep.kinks], dim=1)
