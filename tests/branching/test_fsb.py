"""Filtered smart branching: among the candidates the one with the best worse child wins, whatever the scores say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
import torch
from branching.views import ambiguous, random_view
from hypothesis import given, settings
from hypothesis import strategies as st
from search.cases import begun, domains_of, nobody, random_case, root_of

from verifier.bounding.core.base import Until
from verifier.branching.babsr import estimates
from verifier.branching.base import View
from verifier.branching.fsb import FilteredSmart
from verifier.branching.intercept import Intercept
from verifier.search.signs.space import Policy, SignSpace


class Table:
    """Bounds of children from a table; remembers what was asked."""

    def __init__(self, bounds: torch.Tensor) -> None:
        self.bounds, self.asked = bounds, torch.zeros(0)

    def __call__(self, kinks: torch.Tensor) -> torch.Tensor:
        self.asked = kinks
        return self.bounds.gather(1, kinks.unsqueeze(-1).expand(-1, -1, 2))


def tabled(seed: int) -> tuple[View, Table]:
    """Rises from each domain's bound that say nothing about the usual scores; some children are empty or unknown."""
    view = random_view("residual", seed)
    parent = view.trace.lower[:, 0].clamp(max=-0.1)
    plane = replace(view.trace.plane, lower=parent.unsqueeze(1))
    view = replace(view, trace=replace(view.trace, plane=plane))
    shape = (*ambiguous(view).shape, 2)
    rise = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    bounds = parent.view(-1, 1, 1) * (1 - rise)
    bounds[:, 0, 1], bounds[:, 1, 0], bounds[:, 2, 0] = math.inf, math.nan, -math.inf
    table = Table(bounds)
    return replace(view, probe=table), table


@given(seed=st.integers(0, 2**16), count=st.integers(1, 20))
@settings(max_examples=30)
def test_the_candidate_with_the_best_worse_child_wins(seed: int, count: int) -> None:
    view, table = tabled(seed)
    scores, open_ = FilteredSmart(count, other_child=0.0).scores(view), ambiguous(view)
    for d in range(len(scores)):
        candidates = [k for k in set(table.asked[d].tolist()) if open_[d, k]]
        if not candidates:
            continue
        worse = {k: min(-math.inf if math.isnan(b) else b for b in table.bounds[d, k].tolist()) for k in candidates}
        best = int(scores[d].argmax())
        assert best in candidates
        assert worse[best] == max(worse.values())
        others = [k for k in range(open_.shape[1]) if open_[d, k] and k not in candidates]
        assert all(scores[d, k] < scores[d, c] for k in others for c in candidates)


def test_candidates_are_the_best_by_both_scores() -> None:
    view, table = tabled(3)
    FilteredSmart(candidates=2).scores(view)
    changes = torch.where(ambiguous(view), estimates(view)[0], -1.0)
    for row, asked in enumerate(table.asked.tolist()):
        expected = [*Intercept().scores(view)[row].topk(2).indices.tolist(), *changes[row].topk(2).indices.tolist()]
        assert sorted(asked) == sorted(expected)


def test_the_other_child_breaks_ties() -> None:
    view, table = tabled(5)
    parent = view.trace.lower[:, :1].unsqueeze(-1)
    table.bounds = parent.repeat(1, table.bounds.shape[1], 2)  # nothing rises
    ahead = ambiguous(view).double().argmax(dim=1)
    row = torch.arange(len(ahead))
    table.bounds[row, ahead, 1] = -0.01
    scores = FilteredSmart(candidates=99).scores(view)
    assert torch.equal(scores.argmax(dim=1), ahead)


def test_children_that_are_closed_count_alike() -> None:
    """A bound of 7 closes no more than one of 0.5, so the other child decides."""
    view, table = tabled(5)
    parent = view.trace.lower[:, :1].unsqueeze(-1)
    table.bounds = parent.repeat(1, table.bounds.shape[1], 2)
    first, second = torch.nonzero(ambiguous(view)[0]).flatten()[:2].tolist()
    table.bounds[0, first] = torch.tensor([7.0, -0.05])
    table.bounds[0, second] = torch.tensor([0.5, -0.04])
    assert int(FilteredSmart(candidates=99).scores(view)[0].argmax()) == second


# ---------------------------------------------------------------- inside of a search


@dataclass(frozen=True)
class Watched(FilteredSmart):
    """Keeps what it was shown."""

    seen: list[View] = field(default_factory=list)

    def scores(self, view: View) -> torch.Tensor:
        self.seen.append(view)
        return super().scores(view)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("margin", [1e-3, -3.0, -20.0])
def test_a_search_splits_where_the_worse_child_is_best(margin: float) -> None:
    """Also far from zero, where all rises are small shares of the way."""
    root = root_of(random_case("residual", 1, (2,)).problem([margin]))
    brancher = Watched(candidates=99, other_child=0.0)
    space = SignSpace(root, Policy(brancher=brancher, offers=0), Until(), nobody)
    found = begun(space)
    assert len(found) == 1
    everything = torch.nonzero(found.scores[0] >= 0).flatten()
    worse = brancher.seen[0].probe(everything.unsqueeze(0))[0].amin(dim=1)
    chosen = int(found.scores[0].argmax())
    at = int(torch.nonzero(everything == chosen))
    assert float(worse.max() - worse[at]) <= 1e-3 * float(worse.max() - worse.min())


def test_probing_bounds_the_children_that_it_names() -> None:
    root = root_of(random_case("residual", 1, (2, 1)).problem([1e-3, 1e-3]))
    policy = Policy(brancher=Watched(), offers=0, batch=3)  # children are probed three at a time
    space = SignSpace(root, policy, Until(), nobody)
    waiting = begun(space)
    assert isinstance(policy.brancher, Watched)
    (view,), kinks = policy.brancher.seen, torch.tensor([[0, 3], [2, 1]])
    found = view.probe(kinks)
    for d in range(2):
        for c in range(2):
            for side, sign in enumerate((-1, 1)):
                signs = torch.zeros(1, root.kinks)
                signs[0, kinks[d, c]] = sign
                child = domains_of(root, signs, int(waiting.clause[d]))
                lower = space.schedule.probe(0, child, waiting.variables[d : d + 1].float())
                assert float(found[d, c, side]) == pytest.approx(float(lower), abs=2e-3)  # variables in half precision
