"""BaBSR as it was released: against its choice written out neuron by neuron, and each stage by hand."""

from __future__ import annotations

import networks
import pytest
import torch
from branching.views import ambiguous, random_view, view_of
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Region
from verifier.branching.babsr import group_estimates
from verifier.branching.babsr_paper import PublishedBaBSR
from verifier.branching.base import View
from verifier.functions import RELU
from verifier.network.network import Network


def chosen(view: View, rule: PublishedBaBSR) -> int:
    """Of one domain: the kink with the highest number, as a search would keep it."""
    scores = rule.scores(view)[0]
    return int((scores / scores.max()).half().argmax())


def written_out(view: View, rule: PublishedBaBSR) -> tuple[str, list[int]]:
    """The stage that decides, and the kinks that it may take (several only where half precision cannot tell)."""
    starts, scores, costs, open_ = 0, {}, {}, {}
    for k, (kinks, (gain, cost)) in enumerate(zip(view.sweep.kinks, group_estimates(view), strict=True)):
        for i in range(kinks.count):
            if bool(kinks.ambiguous[0, 0, i]):
                scores[starts + i], costs[starts + i], open_[starts + i] = abs(float(gain[0, i])), float(cost[0, i]), k
        starts += kinks.count
    best = max(scores, key=lambda i: scores[i])
    if open_[best] > 0 and scores[best] > rule.threshold:
        later = [i for i in scores if open_[i] > 0]
        return "score", [i for i in later if scores[i] >= (1 - 2e-3) * scores[best]]
    strong = [open_[i] for i in costs if costs[i] > rule.least_cost]
    if strong:
        group = [i for i in costs if open_[i] == max(strong)]
        most = max(costs[i] for i in group)
        return "intercept", [i for i in group if costs[i] >= (1 - 2e-3) * most]
    last = max(open_.values())
    return "position", [min(i for i in open_ if open_[i] == last)]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16), threshold=st.sampled_from([1e-3, 0.3, 1e3]), least=st.sampled_from([1e-4, 0.2, 1e3]))
@settings(max_examples=12)
def test_the_choice_is_the_one_written_out(family: str, seed: int, threshold: float, least: float) -> None:
    rule = PublishedBaBSR(threshold, least)
    view = random_view(family, seed, boxes=1)
    if bool(ambiguous(view).any()):
        assert chosen(view, rule) in written_out(view, rule)[1]


def test_all_stages_are_met() -> None:
    settings_ = [(1e-3, 1e-4), (1e3, 1e-4), (1e3, 1e3)]
    met = {written_out(random_view("dense", seed, 1), PublishedBaBSR(*s))[0] for seed in range(4) for s in settings_}
    assert met == {"score", "intercept", "position"}


def by_hand(last: list[float], bias: list[float]) -> View:
    """Two inputs pass through a group of two and one of three, all with bounds (-1, 1)."""
    hidden = instances.layer("first", 0, [[1.0, 0.0], [0.0, 1.0]], [2.0, 0.0])
    second = instances.layer("second", 1, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], bias)
    net = Network((2,), (hidden, second), instances.layer("out", 2, [last], [0.0]))

    def sides(value: float) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((1, 2), value).double(), torch.full((1, 3), value).double()

    box = torch.ones(1, 2, dtype=torch.float64)
    return view_of(
        net,
        Region(-box, box, sides(-1.0), sides(1.0), (RELU,) * len(sides(1.0))),
        torch.ones(1, 1, dtype=torch.float64),
    )


def test_losses_count_by_their_size_and_the_first_group_does_not() -> None:
    # Slopes and intercepts are 1/2.  Second group: from_bias = lam b = 6, 0, 1, so the gains are -3, 0, -1/2: no cost.
    # First group: lam = (2 + 1) / 2, 1/2, so from_bias = 3, 0 and the gains are -3/2, 0.
    view = by_hand([2.0, 0.0, 1.0], [3.0, 0.0, 1.0])
    (first, no_cost), (second, _) = group_estimates(view)
    assert first[0].tolist() == pytest.approx([-1.5, 0.0], abs=1e-9)
    assert second[0].tolist() == pytest.approx([-3.0, 0.0, -0.5], abs=1e-9)
    assert no_cost[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
    assert chosen(view, PublishedBaBSR()) == 2
    # A search may split at several at once: what counts by score comes before all of the first group.
    assert PublishedBaBSR().scores(view)[0].argsort(descending=True)[:2].tolist() == [2, 4]


def test_where_the_first_group_scores_most_the_last_intercepts_decide() -> None:
    # Second group: lam = -4, -1, 0 and b = -1, 0, 0, so costs 2, 1/2, 0 and gains min(2 + 2, -2 + 2) = 0, 1/2, 0.
    # First group: lam = -2, -1/2 and b = 2, 0, so costs 1, 1/4 and gains min(-2 + 1, 2 + 1) = -1, 1/4: the most.
    view = by_hand([-4.0, -1.0, 0.0], [-1.0, 0.0, 0.0])
    (first, _), (second, costs) = group_estimates(view)
    assert first[0].tolist() == pytest.approx([-1.0, 0.25], abs=1e-9)
    assert second[0].tolist() == pytest.approx([0.0, 0.5, 0.0], abs=1e-9)
    assert costs[0].tolist() == pytest.approx([2.0, 0.5, 0.0], abs=1e-9)
    assert chosen(view, PublishedBaBSR()) == 2


def test_without_scores_or_costs_the_last_group_starts_from_its_front() -> None:
    view = by_hand([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    assert chosen(view, PublishedBaBSR()) == 2
