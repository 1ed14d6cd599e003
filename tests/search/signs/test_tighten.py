"""Bounds computed anew in children: valid, never looser, and crossing only where nothing is left."""

from __future__ import annotations

import math
from dataclasses import replace

import networks
import oracle
import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st
from search.cases import (
    FAMILIES,
    Case,
    decide,
    domains_of,
    grow,
    inside,
    patterns,
    random_case,
    root_of,
    signs_at,
    twin,
    values_at,
)

from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.search.loop import Limits
from verifier.search.signs.root import Batch, Root, outward
from verifier.search.signs.space import Policy
from verifier.search.signs.tighten import AfterSplit, Never


def family(name: str, seed: int) -> tuple[Case, Root]:
    case = random_case(name, seed, (1,))
    return case, root_of(case.problem([0.0]))


def split_at(root: Root, at: torch.Tensor, share: float, seed: int) -> tuple[Batch, torch.Tensor]:
    """Domains around points: a random part of their signs is imposed; and where."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(at.shape, generator=generator) < share
    signs = torch.where(chosen, at, 0).to(torch.int8)
    return domains_of(root, signs), torch.where(signs != 0, torch.arange(at.shape[1]), -1)


@pytest.mark.parametrize("name", FAMILIES)
@given(seed=st.integers(0, 2**10))
@settings(max_examples=6)
def test_bounds_hold_at_all_points_of_a_domain_and_are_never_looser(name: str, seed: int) -> None:
    _, root = family(name, seed)
    x = networks.points(root.region.lower, root.region.upper, 300, seed)[:, 0]
    at, values = signs_at(root, x), values_at(root, x)
    batch, kinks = split_at(root, at[::50], 0.4, seed)
    tightened = AfterSplit().tightened(batch, kinks, Until()).batch
    (low, high), (before_low, before_high) = tightened.cut(), batch.cut()
    assert bool((low >= before_low).all())
    assert bool((high <= before_high).all())
    for d, signs in enumerate(batch.signs):
        mine = values[inside(signs, at)]
        assert len(mine) >= 1
        assert bool((mine >= low[d] - 1e-9).all())
        assert bool((mine <= high[d] + 1e-9).all())


def chain() -> Network:
    """x in [-1, 1]; group 1: x and -x; group 2: relu(x) - relu(-x) - 1/2 = x - 1/2; y its ReLU."""
    first = instances.layer("first", 0, [[1.0], [-1.0]], [0.0, 0.0])
    second = instances.layer("second", 1, [[1.0, -1.0]], [-0.5])
    return Network((1,), (first, second), instances.layer("out", 2, [[1.0]], [0.0]))


def test_a_split_narrows_what_follows_it() -> None:
    root = root_of(instances.problem(chain(), instances.boxes([[-1]], [[1]]), [(0, [instances.row({0: 1}, -1)])]))
    assert root.kinks == 3
    signs = torch.tensor([[-1, 0, 0], [1, -1, 0], [0, 0, 0]], dtype=torch.int8)
    kinks = torch.tensor([[0, -1], [0, 1], [-1, -1]])
    batch = domains_of(root, signs)
    found = AfterSplit().tightened(batch, kinks, Until()).batch
    low, high = found.cut()
    # x <= 0 without relu(x): between -relu(-x) - 1/2, -1.5 and -0.5.  x >= 0 without relu(-x): -0.5 .. 0.5.
    assert (float(low[0, 2]), float(high[0, 2])) == pytest.approx((-1.5, -0.5), abs=1e-6)
    assert (float(low[1, 2]), float(high[1, 2])) == pytest.approx((-0.5, 0.5), abs=1e-6)
    assert found.ambiguous().tolist() == [[False, True, False], [False, False, True], [True, True, True]]
    torch.testing.assert_close(low[2], batch.cut()[0][2], rtol=0, atol=0)  # nothing was split here


@pytest.mark.parametrize(("name", "seed"), [("dense", 1), ("dense", 3), ("residual", 0), ("residual", 3)])
@pytest.mark.usefixtures("unchecked")
def test_crossing_bounds_close_only_empty_domains(name: str, seed: int) -> None:
    case, root = family(name, seed)
    assert 1 <= root.kinks <= 8
    signs = patterns(root.kinks)
    batch = domains_of(root, signs)
    everywhere = torch.arange(root.kinks).expand(len(signs), -1)
    low, high = AfterSplit().tightened(batch, everywhere, Until()).batch.cut()
    crossing = (low > high).any(dim=1)
    claim = case.claims[0]
    region = batch.region()
    for d in torch.nonzero(crossing).flatten().tolist():
        bounds = [(a[d].numpy(), b[d].numpy()) for a, b in zip(region.l_hat, region.u_hat, strict=True)]
        assert oracle.planet_lp_of_max(twin(case.net), case.boxes[0], bounds, claim.A, claim.c, claim.B) == math.inf
    x = networks.points(root.region.lower, root.region.upper, 2000, seed)[:, 0]
    at = signs_at(root, x)
    assert not any(bool(inside(signs[d], at).any()) for d in torch.nonzero(crossing).flatten())
    assert bool(crossing.any()) or (name, seed) != ("residual", 0)


def test_domains_of_other_depths_keep_their_bounds() -> None:
    _, root = family("residual", 1)
    x = networks.points(root.region.lower, root.region.upper, 60, 1)[:, 0]
    batch, kinks = split_at(root, signs_at(root, x), 0.4, 1)
    depth = (batch.signs != 0).sum(dim=1)
    always, third = (AfterSplit(every=every).tightened(batch, kinks, Until()).batch.cut() for every in (1, 3))
    due = depth // 3 > (depth - (kinks >= 0).sum(dim=1)) // 3
    assert 0 < int(due.sum()) < len(due)
    for everywhere, some, before in zip(always, third, batch.cut(), strict=True):
        torch.testing.assert_close(some[~due], before[~due], rtol=0, atol=0)
        torch.testing.assert_close(some[due], everywhere[due], rtol=0, atol=1e-9)
    assert any(bool((a != b)[due].any()) for a, b in zip(third, batch.cut(), strict=True))


def test_bounds_are_inherited() -> None:
    """A grandchild starts from the bounds of its parent, also where nothing is computed anew."""
    _, root = family("residual", 1)
    x = networks.points(root.region.lower, root.region.upper, 40, 1)[:, 0]
    batch, kinks = split_at(root, signs_at(root, x), 0.4, 1)
    parent = AfterSplit().tightened(batch, kinks, Until()).batch
    for again in (
        AfterSplit(RootBounds(None)).tightened(parent, kinks, Until()),
        AfterSplit(every=1000).tightened(parent, kinks, Until()),
        AfterSplit().tightened(parent, kinks, Until(Clock.begin(0.0))),
        Never().tightened(parent, kinks, Until()),
    ):
        assert bool((again.batch.cut()[0] >= parent.cut()[0]).all())
        assert bool((again.batch.cut()[1] <= parent.cut()[1]).all())


def test_never_does_nothing() -> None:
    _, root = family("residual", 1)
    batch = Batch.whole(root)
    assert Never().tightened(batch, torch.zeros(1, 1, dtype=torch.long), Until()).batch is batch


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=9))
def test_stored_bounds_are_rounded_outwards(values: list[float]) -> None:
    exact = torch.tensor([values], dtype=torch.float64)
    below, above = (outward(exact, side, torch.float32) for side in (-1, 1))
    assert below.dtype is above.dtype is torch.float32
    assert torch.equal(outward(exact, -1, torch.float64), exact)
    assert bool((below.double() <= exact).all())
    assert bool((above.double() >= exact).all())
    single = exact.float()
    kept = single.double() == exact
    assert torch.equal(below[kept], single[kept])
    assert bool((torch.nextafter(below, torch.tensor(torch.inf))[~kept].double() >= exact[~kept]).all())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("margin", [1e-3, -1e-3])
@pytest.mark.parametrize("every", [1, 2])
def test_verdicts_stay_and_fewer_domains_are_needed(margin: float, every: int) -> None:
    problem = random_case("residual", 1, (3,)).problem([margin])
    policy, limits = Policy(tightening=AfterSplit(every=every), batch=16, fill=8), Limits(max_domains=20000)
    outcome = decide(problem, policy, limits=limits)
    assert (outcome.witness is not None) == (margin < 0)
    assert outcome.reason is None
    if margin > 0:
        usual = grow(root_of(problem), replace(policy, tightening=Never()), limits=limits)
        assert outcome.progress.domains < usual.progress.domains
