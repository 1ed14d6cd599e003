"""Children cover their parents, differ, and fill the batch."""

from __future__ import annotations

import networks
import torch
from hypothesis import given
from hypothesis import strategies as st
from search.cases import inside, patterns, random_case, root_of, signs_at

from verifier.search.signs.root import split

Parents = tuple[torch.Tensor, torch.Tensor]
"""Signs and scores."""


@st.composite
def parents(draw: st.DrawFn) -> Parents:
    """Random signs; kinks with a sign, and some without, must not be split; scores often tie."""
    count, kinks = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    cells = st.lists(st.sampled_from([-1, 0, 0, 0, 1]), min_size=kinks, max_size=kinks)
    values = st.lists(st.sampled_from([-1.0, 0.0, 0.0, 0.5, 2.0]), min_size=kinks, max_size=kinks)
    signs = torch.tensor([draw(cells) for _ in range(count)], dtype=torch.int8)
    scores = torch.tensor([draw(values) for _ in range(count)])
    return signs, torch.where(signs == 0, scores, -1.0).half()


def contains(child: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """Which sign patterns [P, A] belong to a domain: they agree wherever it has a sign."""
    return ((child == 0) | (child == pattern)).all(dim=1)


@given(parents(), st.integers(1, 40))
def test_children_share_out_all_sign_patterns_of_their_parent(given_parents: Parents, batch: int) -> None:
    children = split(*given_parents, batch)
    everything = patterns(given_parents[0].shape[1])
    for p, signs in enumerate(given_parents[0]):
        own = children.signs[children.parent == p]
        shared = torch.stack([contains(child, everything) for child in own]).sum(dim=0)
        assert torch.equal(shared, contains(signs, everything).long())  # once each, and nothing else
        kept = signs != 0
        assert torch.equal(own[:, kept], signs[kept].expand(len(own), -1))


@given(parents(), st.integers(1, 40))
def test_only_kinks_with_a_score_are_split_the_best_first(given_parents: Parents, batch: int) -> None:
    children = split(*given_parents, batch)
    count = len(given_parents[0])
    for p, (signs, scores) in enumerate(zip(*given_parents, strict=True)):
        changed = (children.signs[children.parent == p] != signs).any(dim=0)
        assert bool((scores[changed] >= 0).all())
        spared = (scores >= 0) & ~changed
        if bool(changed.any()) and bool(spared.any()):
            assert scores[changed].min() >= scores[spared].max()
        assert int((children.parent == p).sum()) == 2 ** int(changed.sum())
    assert len(children.signs) <= max(batch, 2 * count)
    most = int((given_parents[1] >= 0).sum(dim=1).max())
    if most:  # one more level would overflow, or nobody has one
        levels = max(int((children.parent == p).sum()) for p in range(count)).bit_length() - 1
        assert levels == most or count * 2 ** (levels + 1) > batch


@given(parents(), st.integers(1, 40))
def test_children_know_where_they_were_split(given_parents: Parents, batch: int) -> None:
    children = split(*given_parents, batch)
    before = given_parents[0][children.parent]
    for child, (kinks, signs, parent) in enumerate(zip(children.kinks, children.signs, before, strict=True)):
        named = kinks[kinks >= 0]
        assert len(named) == len(set(named.tolist())) == int((children.kinks[child] >= 0).sum())
        assert sorted(named.tolist()) == torch.nonzero(signs != parent).flatten().tolist()


def test_parents_with_fewer_kinks_do_not_hold_back_the_others() -> None:
    signs = torch.tensor([[0, 0, 0], [1, 0, -1], [1, 1, -1]], dtype=torch.int8)
    scores = torch.where(signs == 0, torch.tensor([3.0, 2.0, 1.0]), -1.0)
    children = split(signs, scores, 24)
    assert torch.bincount(children.parent).tolist() == [8, 2, 1]
    assert children.signs[children.parent == 2].tolist() == [[1, 1, -1]]
    assert sorted(children.signs[children.parent == 1].tolist()) == [[1, -1, -1], [1, 1, -1]]
    assert (children.kinks >= 0).sum(dim=1).tolist() == [3] * 8 + [1] * 2 + [0]


def test_points_of_a_box_stay_in_the_tree_over_several_splits() -> None:
    case = random_case("residual", 1, (1,))
    root = root_of(case.problem([0.0]))
    x = networks.points(root.region.lower, root.region.upper, 400, 7)[:, 0]
    at = signs_at(root, x)
    assert root.kinks >= 4
    generator = torch.Generator().manual_seed(0)
    signs = torch.zeros(1, root.kinks, dtype=torch.int8)
    for _ in range(root.kinks):
        scores = torch.where(signs == 0, torch.rand(signs.shape, generator=generator), -1.0)
        signs = split(signs, scores, 3 * len(signs)).signs
        found = torch.stack([inside(child, at) for child in signs])
        assert bool((found.sum(dim=0) >= 1).all())
    assert bool((signs != 0).all())
    assert len(signs) == 2**root.kinks
