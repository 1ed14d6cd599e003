"""Peak memory of the bounding methods on a network of two wide hidden layers.

Weights are random: what a method keeps depends on sizes and on the number of ambiguous neurons.  Each case needs a
process of its own, in which nothing else has been computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from paper.ledger import Peak
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder, Objective, Until
from verifier.bounding.cuts.masks import Form
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.network.network import Affine, Network
from verifier.operators import Dense

STEPS = Steps(1e-3, 1e-4)
FEW = Ascent(2, STEPS)
ITERATIONS = 10


@dataclass(frozen=True)
class Case:
    """A method that makes so many iterations, or adds so many masks, on hidden layers of so many units."""

    method: str
    count: int
    width: int

    @property
    def what(self) -> str:
        unit = "mask" if self.method.startswith("Active Set") else "iteration"
        return f"{self.count} {unit}{'' if self.count == 1 else 's'}"

    @property
    def key(self) -> str:
        return Peak(self.method, self.what, self.width, 0.0).key

    def measured(self) -> Peak:
        """Megabytes that one call adds at most (Linux)."""
        torch.set_num_threads(1)
        net, x = _network(self.width)
        region = RootBounds(None).region(net, x - 0.01, x + 0.01, Until())
        bounder = self._bounder()
        before = _restart_peak()
        bounder.bound(net, region, Objective(3, torch.ones(1, 1, 1)), Until())
        return Peak(self.method, self.what, self.width, (_status("VmHWM") - before) / 1024)

    def _bounder(self) -> Bounder:
        """With few iterations: none needs more memory for more of them, and Active Set has its masks early."""
        count = self.count
        if self.method.startswith("Active Set"):
            form = Form.SHARED if self.method.endswith("shared") else Form.ROWS
            return ActiveSet(Ascent(count + 2, STEPS), FEW, Additions(count + 2, count, count), masks=form)
        start = ActiveSet(Ascent(0, STEPS), FEW, Additions(most=0))
        return {
            "CROWN": Linear(),
            "alpha-CROWN": AlphaCrown(Ascent(count, STEPS)),
            "Big-M": BigM(Ascent(count, STEPS)),
            "Saddle Point": SaddlePoint(count, initial=start, primal_start=FEW),
        }[self.method]


def cases(width: int, masks: int) -> list[Case]:
    """All methods; Active Set with 1..masks masks."""
    found = [("CROWN", 0), ("alpha-CROWN", ITERATIONS), ("Big-M", ITERATIONS)]
    found += [("Active Set", m) for m in range(1, masks + 1)]
    found += [("Active Set, shared", m) for m in (1, masks)]
    found += [("Saddle Point", ITERATIONS), ("Saddle Point", 4 * ITERATIONS)]
    return [Case(method, count, width) for method, count in found]


def _network(width: int) -> tuple[Network, torch.Tensor]:
    """784 inputs, two hidden layers, one output; and a point."""
    generator = torch.Generator().manual_seed(0)

    def layer(source: int, rows: int, columns: int) -> Affine:
        weight = torch.randn(rows, columns, generator=generator).div_(columns**0.5)
        return Affine(f"layer{source + 1}", (rows,), ((source, Dense(weight)),), torch.zeros(rows), torch.zeros(rows))

    net = Network((784,), (layer(0, width, 784), layer(1, width, width)), layer(2, 1, width))
    return net, torch.rand(1, 784, generator=generator)


def _restart_peak() -> int:
    """Forget the peak so far; the kilobytes in use now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(key: str) -> int:
    """A figure in kilobytes of what the kernel knows about this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{key}:")))
