"""Sign domains as checkpoints have them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from search.cases import CUTS, begun, long, narrow, nobody, random_case, root_of, unsigned

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.search.checkpoint import CLASSES
from verifier.search.codec import decoded, encoded
from verifier.search.ladder import Ladder
from verifier.search.signs.kept import BEST, KeptSigns, packed, unpacked
from verifier.search.signs.root import Root
from verifier.search.signs.space import Policy, SignDomains, SignSpace

FIRST, THEN = Ascent(15, Steps(0.2, 0.02)), Ascent(6, Steps(0.1, 0.03))
LADDERS = {
    "slopes": narrow(4),
    "cuts": replace(narrow(4), ladder=Ladder((CUTS,))),
    "tiers": replace(narrow(4), ladder=Ladder((*narrow(4).ladder.tiers, long(FIRST, THEN)), (1.01,))),
}


@given(st.integers(0, 5), st.integers(0, 19), st.integers(0, 2**32 - 1))
def test_signs_come_back(count: int, kinks: int, seed: int) -> None:
    signs = torch.randint(-1, 2, (count, kinks), dtype=torch.int8, generator=torch.Generator().manual_seed(seed))
    code = packed(signs)
    assert code.shape == (count, -(-kinks // 4))
    assert torch.equal(unpacked(code, kinks), signs)


def some(policy: Policy) -> tuple[Root, SignSpace, SignDomains]:
    """Open domains of several depths, two of them with as many clauses."""
    root = unsigned(root_of(random_case("residual", 1, (3, 1)).problem([1e-3, 1e-3])))
    space = SignSpace(root, policy, Until(), nobody)
    domains = begun(space, 5)
    assert len(domains) > 3
    return root, space, domains


def again(root: Root, policy: Policy, kept: KeptSigns) -> SignDomains:
    """What another run makes of what a file gives back."""
    space = SignSpace(root, policy, Until(), nobody)
    (found,) = space.begin_again([decoded(encoded(kept), CLASSES)])
    assert space.journal.counts.domains == 0
    return found


@pytest.mark.parametrize("name", LADDERS)
def test_domains_come_back_with_all_that_splits_need(name: str) -> None:
    policy = LADDERS[name]
    root, space, domains = some(policy)
    found = again(root, policy, space.kept(domains, 2**30))
    domains = domains.select(domains.lower.argsort())
    assert torch.equal(found.number, domains.number)
    for field in ("clause", "lower", "depth", "tier", "signs", "bounds", "shares", "variables"):
        assert torch.equal(getattr(found, field), getattr(domains, field)), field
    assert torch.equal(found.rise.nan_to_num(-7.0), domains.rise.nan_to_num(-7.0))
    assert torch.equal(found.scores >= 0, domains.scores >= 0)
    most = min(BEST, domains.scores.shape[1])
    assert torch.equal(found.scores.topk(most, dim=1).values, domains.scores.topk(most, dim=1).values)
    if name == "tiers":
        assert int(domains.tier.max()) == 1


@pytest.mark.parametrize("rows", [0, 2])
def test_where_there_is_no_room_the_worst_domains_keep_their_variables(rows: int) -> None:
    policy = LADDERS["slopes"]
    root, space, domains = some(policy)
    room = rows * domains.variables[:1].numel() * 2 + 1
    kept = space.kept(domains, room)
    assert len(kept.variables) == rows
    assert len(encoded(kept)) < len(encoded(space.kept(domains, 2**30)))
    found = again(root, policy, kept)
    domains = domains.select(domains.lower.argsort())
    assert torch.equal(found.variables[:rows], domains.variables[:rows])
    fresh = SignSpace(root, policy, Until(), nobody)
    fresh.begin_again([])
    own = fresh.schedule.starts(found.tier, found.clause).half()
    assert torch.equal(found.variables[rows:], own[rows:])
