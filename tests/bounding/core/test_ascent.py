"""The loop that all ascents share: who leaves it, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from verifier.bounding.core.ascent import Ascent, Average, Dual, Evaluation, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.core.state import SHARED


@dataclass(frozen=True, eq=False)
class Hill(Dual[Evaluation]):
    """Every region has its own height at the start, and a summit where its only variable is 1."""

    height: torch.Tensor
    seen: list[int] = field(metadata=SHARED)  # how many regions each evaluation had

    def evaluate(self, point: torch.Tensor) -> Evaluation:
        self.seen.append(len(point))
        lower = self.height.unsqueeze(1) + 1 - (point[..., 0] - 1) ** 2
        return Evaluation(lower, point)

    def supergradient(self, point: torch.Tensor, at: Evaluation, seen: Average | None = None) -> torch.Tensor:
        return 2 * (1 - point)

    def project(self, point: torch.Tensor) -> None:
        point.clamp_(0.0, 1.0)


@pytest.mark.parametrize(
    ("heights", "check_every", "seen"),
    [
        ([5.0, 5.0, -0.5, -9.0], 4, [4, 2, 2, 2, 1, 1, 1, 1, 1]),  # the third climbs above zero in four steps
        ([-9.0, -9.0, -9.0], 3, [3] * 9),
        ([5.0, *[-9.0] * 5], 4, [6] * 9),  # one in six is not worth a copy of the others
        ([5.0, 5.0], 4, [2]),
    ],
)
def test_regions_leave_once_they_are_done_and_first_after_the_start(
    heights: list[float], check_every: int, seen: list[int]
) -> None:
    hill = Hill(torch.tensor(heights), [])
    start = torch.zeros(len(heights), 1, 1)
    best = Ascent(8, Steps(0.25, 0.25), check_every).run(hill, start, Until(threshold=0.0))
    assert hill.seen == seen
    assert (best.lower[:, 0] >= torch.tensor(heights)).all()
    assert best.point.shape == start.shape


def test_nobody_leaves_without_a_threshold() -> None:
    hill = Hill(torch.tensor([5.0, 5.0]), [])
    best = Ascent(3, Steps(0.25, 0.25)).run(hill, torch.zeros(2, 1, 1), Until())
    assert hill.seen == [2] * 4
    assert best.iterations == 3
    assert (best.lower > 5.5).all()
