"""What bounds of whole boxes lose at each neuron."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from search.cases import GAP, random_case, root_of, slopes

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.search.ladder import Schedule
from verifier.search.signs.losses import losses
from verifier.search.signs.root import Batch, Root
from verifier.search.tiers import Climbed

SHORT = Ascent(6, Steps(0.2, 0.03))


def bounded(root: Root) -> Climbed:
    return Schedule(slopes(SHORT, SHORT), root).begin(Batch.whole(root), Until())[0]


@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
@pytest.mark.parametrize("seed", range(3))
def test_losses_are_what_upper_faces_cost(family: str, seed: int) -> None:
    """By the formula -lam u l / (u - l) below zero, for coefficients lam < 0; summed over the clauses of a box."""
    problem = random_case(family, seed, (1, 2, 1), boxes=2).problem([GAP, GAP, GAP])
    root = root_of(problem, *range(len(problem.lower)))
    whole = bounded(root)
    found = losses(root, whole)
    assert len(found) == root.region.count
    seen = 0
    for k, index in enumerate(root.indices):
        expected = torch.zeros(root.region.count, root.net.groups[k].size)
        lam = whole.retrace(slice(None)).coefficients[k]
        for clause, box in enumerate(root.box.tolist()):
            low, high = (side[k][box, index] for side in (root.region.l_hat, root.region.u_hat))
            bent = (low < 0) & (high > 0)
            intercept = torch.where(bent, -low * high / (high - low), 0.0)
            if lam is not None and not float(whole.lower[clause]) > 0:
                expected[box, index] += ((-lam[clause, 0]).clamp(min=0) * intercept).float()
        for box in range(root.region.count):
            assert torch.allclose(found[box][k], expected[box], rtol=1e-4, atol=1e-6)
            seen += int((expected[box] > 0).sum())
    assert seen


def test_closed_clauses_lose_nothing() -> None:
    problem = random_case("dense", 1, (1, 1)).problem([GAP, GAP])
    root = root_of(problem, 0)
    whole = bounded(root)
    first = replace(whole, lower=torch.tensor([-1.0, 1.0]))
    second = replace(whole, lower=torch.tensor([1.0, float("nan")]))
    both = replace(whole, lower=torch.tensor([-1.0, -1.0]))
    parts, total = (losses(root, some)[0] for some in (first, second)), losses(root, both)[0]
    for one, other, sum_ in zip(*parts, total, strict=True):
        assert torch.allclose(one + other, sum_)
    assert not any(group.any() for group in losses(root, replace(whole, lower=torch.ones(2)))[0])
