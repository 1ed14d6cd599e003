"""Clipping keeps every point that some plane allows, and shrinks boxes as far as single inputs can tell."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.search.boxes.clip import clipped, clipped_in_steps, hull


def doubles(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_plane_cuts_every_input_it_looks_at() -> None:
    """2 x_0 - x_1 + 1 <= 0 on the unit box: x_1 = 1 + 2 x_0 at least, so only the corner (0, 1) is left."""
    low, high = clipped((doubles([[0.0, 0.0]]), doubles([[1.0, 1.0]])), doubles([[[2.0, -1.0]]]), doubles([[1.0]]))
    torch.testing.assert_close(low, doubles([[0.0, 1.0]]))
    torch.testing.assert_close(high, doubles([[0.0, 1.0]]), atol=1e-12, rtol=0)
    assert bool((low <= doubles([[0.0, 1.0]])).all())
    assert bool((high >= doubles([[0.0, 1.0]])).all())


def test_planes_clip_what_others_have_left() -> None:
    """x_1 <= x_0 / 2 and x_0 <= x_1 on the unit box: passes leave [1, 1/2], [1/2, 1/2] and [1/2, 1/4]."""
    box = doubles([[0.0, 0.0]]), doubles([[1.0, 1.0]])
    slope = doubles([[[-0.5, 1.0], [1.0, -1.0]]])
    torch.testing.assert_close(clipped(box, slope, doubles([[0.0, 0.0]]))[1], doubles([[0.5, 0.25]]))
    torch.testing.assert_close(clipped(box, slope[:, :1], doubles([[0.0]]))[1], doubles([[1.0, 0.5]]))


def test_a_plane_above_zero_leaves_nothing() -> None:
    low, high = clipped((doubles([[0.0]]), doubles([[1.0]])), doubles([[[1.0]]]), doubles([[0.5]]))
    assert bool((low > high).any())


def test_planes_that_say_nothing_cut_nothing() -> None:
    box = doubles([[0.0, 1.0]]), doubles([[1.0, 2.0]])
    nothing = doubles([[[0.0, 0.0], [float("nan"), 0.0], [1e-300, 0.0]]])
    low, high = clipped(box, nothing, doubles([[0.0, 0.0, -1.0]]))
    assert low.tolist() == box[0].tolist()
    assert high.tolist() == box[1].tolist()


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_no_allowed_point_is_lost(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    low = torch.randn(1, 3, generator=generator).double()
    high = low + torch.rand(1, 3, generator=generator).double()
    slope = torch.randn(1, 2, 3, generator=generator).double()
    x = low + (high - low) * torch.rand(2000, 3, generator=generator).double()
    offset = -(slope @ x[:1].T).squeeze(-1)  # the first point lies on both planes
    new_low, new_high = clipped((low, high), slope, offset)
    allowed = (x @ slope[0].T + offset <= 0).all(dim=1)
    allowed[0] = True
    assert bool((new_low <= x[allowed]).all())
    assert bool((x[allowed] <= new_high).all())
    assert bool((low <= new_low).all())
    assert bool((new_high <= high).all())


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_every_step_is_shown_by_one_plane_of_each_part(seed: int) -> None:
    """Two parts of one box and one of another: ends move one after the other, and no allowed point is lost."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.randn(2, 3, generator=generator).double()
    high = low + torch.rand(2, 3, generator=generator).double()
    of, slope = torch.tensor([0, 0, 1]), torch.randn(3, 2, 3, generator=generator).double()
    x = low + (high - low) * torch.rand(500, 2, 3, generator=generator).double()
    offset = -(slope @ x[0][of].unsqueeze(-1)).squeeze(-1) + 0.1 * torch.randn(3, 2, generator=generator).double()
    steps = clipped_in_steps((low, high), (slope, offset), of, 1e-5)
    last = steps.boxes[-1]
    for part, box in enumerate(of.tolist()):
        allowed = (x[:, box] @ slope[part].T + offset[part] <= 0).all(dim=1)
        assert bool((last[0][box] <= x[allowed, box]).all())
        assert bool((x[allowed, box] <= last[1][box]).all())
    before = low.clone(), high.clone()
    for after in steps.boxes:
        for side, axis in ((side, axis) for side in (0, 1) for axis in range(3)):
            for box in (0, 1):
                value = float(after[side][box, axis])
                if value == float(before[side][box, axis]):
                    continue
                slab = before[0][box].clone(), before[1][box].clone()
                slab[1 - side][axis] = value
                for part in torch.nonzero(of == box).flatten().tolist():
                    least = torch.minimum(slope[part] * slab[0], slope[part] * slab[1]).sum(dim=1) + offset[part]
                    assert bool((least[steps.used[part]] > 0).any())
                before[side][box, axis] = value


def test_steps_of_one_part_are_those_of_clipping() -> None:
    """As above: passes leave [1, 1/2], [1/2, 1/2] and [1/2, 1/4]; a plane that says nothing is not used."""
    box = doubles([[0.0, 0.0]]), doubles([[1.0, 1.0]])
    planes = doubles([[[-0.5, 1.0], [1.0, -1.0], [0.0, 0.0]]]), doubles([[0.0, 0.0, 0.0]])
    steps = clipped_in_steps(box, planes, torch.tensor([0]), 0.0)
    ends = [high for _, high in steps.boxes]
    for found, known in zip(ends, ([1.0, 0.5], [0.5, 0.5], [0.5, 0.25]), strict=True):
        torch.testing.assert_close(found, doubles([known]))
    assert steps.used.tolist() == [[True, True, False]]


def test_what_only_two_planes_exclude_stays() -> None:
    """x <= 1/4 and x >= 3/4: nothing is left, but no plane alone shows that."""
    box = doubles([[0.0]]), doubles([[1.0]])
    planes = doubles([[[1.0], [-1.0]]]), doubles([[-0.25, 0.75]])
    low, high = clipped(box, *planes)
    assert bool((low > high).all())
    steps = clipped_in_steps(box, planes, torch.tensor([0]), 0.0)
    assert all(torch.equal(side, whole) for left in steps.boxes for side, whole in zip(left, box, strict=True))


def test_the_hull_joins_the_parts_of_one_box() -> None:
    box = doubles([[0.0], [0.0], [0.0]]), doubles([[9.0], [9.0], [9.0]])
    parts = doubles([[1.0], [3.0], [5.0], [8.0]]), doubles([[2.0], [4.0], [6.0], [7.0]])
    (low, high), some = hull(box, parts, torch.tensor([0, 0, 1, 1]))
    assert low.tolist() == [[1.0], [5.0], [0.0]]  # the last part is empty, and nothing belongs to the third box
    assert high.tolist() == [[4.0], [6.0], [9.0]]
    assert some.tolist() == [True, True, False]


def test_parts_without_numbers_are_not_empty() -> None:
    """A box is given up only where two numbers contradict each other."""
    box = doubles([[0.0], [0.0]]), doubles([[9.0], [9.0]])
    nan, inf = float("nan"), float("inf")
    _, some = hull(box, (doubles([[nan], [inf]]), doubles([[1.0], [1.0]])), torch.tensor([0, 1]))
    assert some.tolist() == [True, True]


def test_what_overflows_cuts_nothing() -> None:
    box = doubles([[-1.0, -1.0]]), doubles([[1.0, 1.0]])
    inf = float("inf")
    for slope, offset in (([1e308, 1e308], 1e308), ([1.0, 1.0], -inf), ([inf, 1.0], 0.0), ([1e308, -1e308], -1e308)):
        low, high = clipped(box, doubles([[slope]]), doubles([[offset]]))
        assert low.tolist() == box[0].tolist()
        assert high.tolist() == box[1].tolist()


def test_limits_that_underflow_are_rounded_outward() -> None:
    """1e-300 x - 1e-320 <= 0 allows all x up to 1e-20, and 1e300 x - 1e-20 <= 0 those up to 1e-320."""
    for slope, offset, allowed in ((1e-300, -1e-320, 1e-20), (1e300, -1e-20, 1e-320), (1e-200, 0.0, 0.0)):
        low, high = clipped((doubles([[-1e-150]]), doubles([[1.0]])), doubles([[[slope]]]), doubles([[offset]]))
        assert float(low) == -1e-150
        assert float(high) >= allowed
