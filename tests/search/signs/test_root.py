"""What domains see of their boxes: bounds cut by signs, rows of their clauses, kinks with fixed places."""

from __future__ import annotations

import networks
import pytest
import torch
from search.cases import domains_of, inside, random_case, root_of, signs_at, values_at

from verifier.search.signs.root import Batch, Root


def roots(seed: int = 2) -> tuple[Root, list[Root]]:
    """Two boxes together, and each alone; clauses 0 and 2 lie on the first, 1 and 3 on the second."""
    problem = random_case("residual", seed, (1, 2, 3, 1), mixed=True, boxes=2).problem([0.0] * 4)
    return root_of(problem), [root_of(problem, 0), root_of(problem, 1)]


def test_several_boxes_keep_their_own_bounds_and_rows() -> None:
    together, alone = roots()
    assert together.numbers.tolist() == [0, 2, 1, 3]
    assert together.box.tolist() == [0, 0, 1, 1]
    region, whole = Batch.whole(together).region(), Batch.whole(together).rows(torch.float64)
    for clause, (box, place) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        mine = Batch.whole(alone[box]).region()
        for part in ("l_hat", "u_hat"):
            for a, b in zip(getattr(region, part), getattr(mine, part), strict=True):
                torch.testing.assert_close(a[clause], b[place], rtol=0, atol=0)
        assert torch.equal(region.lower[clause], mine.lower[place])
        rows = Batch.whole(alone[box]).rows(torch.float64)
        count = int(rows.present[place].sum())
        assert int(whole.present[clause].sum()) == count == [1, 3, 2, 1][clause]
        assert torch.equal(whole.A[clause, :count], rows.A[place, :count])
        assert torch.equal(whole.c[clause, :count], rows.c[place, :count])
        assert whole.B is not None
        assert rows.B is not None
        assert torch.equal(whole.B[clause, :count], rows.B[place, :count])


def test_kinks_are_ambiguous_somewhere_and_have_a_place() -> None:
    together, alone = roots()
    places = [together.place(k) for k in range(together.kinks)]
    assert places == sorted(set(places))
    for kink, (group, neuron) in enumerate(places):
        regions = [r.region for r in alone]
        bounds = [(float(r.l_hat[group - 1][0, neuron]), float(r.u_hat[group - 1][0, neuron])) for r in regions]
        low, high = together.bounds()
        assert [(float(low[b, kink]), float(high[b, kink])) for b in range(2)] == bounds
        stable = {1 if lo >= 0 else -1 if hi <= 0 else 0 for lo, hi in bounds}
        assert stable == {-1, 1} or 0 in stable
    with pytest.raises(IndexError):
        together.place(together.kinks)


def test_bounds_of_other_clauses_are_known_by_their_number() -> None:
    together, _ = roots()
    assert together.known.tolist() == [-torch.inf] * 4
    assert together.knowing(torch.tensor([-1.0, -2.0, -3.0, -4.0]).double()).known.tolist() == [-1.0, -3.0, -2.0, -4.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_region_of_a_domain_holds_its_points(dtype: torch.dtype) -> None:
    root, _ = roots()
    x = networks.points(root.region.lower[:1], root.region.upper[:1], 300, 3)[:, 0]
    at, values = signs_at(root, x), values_at(root, x)
    low, high = (side[:1] for side in root.bounds())
    signs = torch.where((low < 0) & (high > 0), at[:40], 0)
    signs[:, ::2] = 0
    region = domains_of(root, signs).region(dtype)
    assert region.splits is not None
    for d, sign in enumerate(signs):
        mine = values[inside(sign, at)]
        assert len(mine) >= 1
        least, most, marked = (
            torch.cat([part[d, index] for part, index in zip(side, root.indices, strict=True)])
            for side in (region.l_hat, region.u_hat, region.splits)
        )
        assert bool((mine >= least - 1e-6).all())
        assert bool((mine <= most + 1e-6).all())
        assert bool((least[sign > 0] >= 0).all())
        assert bool((most[sign < 0] <= 0).all())
        assert torch.equal(marked, sign.to(torch.int8))


def test_what_may_be_split_has_no_sign_and_is_ambiguous_on_its_box() -> None:
    root, _ = roots()
    low, high = root.bounds()
    for clause in range(4):
        loose = (low[root.box[clause]] < 0) & (high[root.box[clause]] > 0)
        free = domains_of(root, torch.zeros(1, root.kinks), clause).ambiguous()[0]
        assert torch.equal(free, loose)
        first = int(torch.nonzero(loose)[0])
        signs = torch.zeros(1, root.kinks)
        signs[0, first] = 1
        assert domains_of(root, signs, clause).ambiguous()[0].sum() == loose.sum() - 1
    stable = [((low[b] >= 0) | (high[b] <= 0)).any() for b in range(2)]
    assert any(stable)  # else one box would have done
