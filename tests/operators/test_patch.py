"""Patches: what a place depends on, and maps between them."""

from __future__ import annotations

import pytest
import torch

from verifier.operators import Chain, Conv, LinearMap, Select, patch
from verifier.operators.base import flat_size, places_of
from verifier.operators.patch import Patch, PatchMap, windows


def kernel(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def moved(conv: Conv) -> Chain:
    """The same on images whose channels come last."""
    index = torch.arange(conv.n_in).reshape(*conv.in_shape[1:], conv.in_shape[0]).movedim(-1, 0)
    return Chain((Select(index.flatten(), conv.n_in), conv))


PLAIN = Conv(kernel(2, 3, 3, 3), (3, 6, 7), (1, 1), ((1, 1), (2, 0)), (1, 1))
STRIDED = Conv(kernel(4, 3, 3, 2), (3, 9, 8), (2, 3), ((1, 1), (0, 1)), (1, 1))
MAPS: dict[str, LinearMap] = {
    "plain": PLAIN,
    "strided": STRIDED,
    "dilated": Conv(kernel(2, 3, 2, 3), (3, 8, 9), (2, 1), ((2, 2), (1, 1)), (2, 2)),
    "points": Conv(kernel(4, 3, 1, 1), (3, 7, 8), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    "one axis": Conv(kernel(3, 2, 4), (2, 11), (2,), ((1, 2),), (1,)),
    "three axes": Conv(kernel(2, 2, 2, 1, 3), (2, 4, 3, 5), (1, 2, 1), ((0, 1), (0, 0), (1, 1)), (1, 1, 1)),
    "moved": moved(STRIDED),
    "identity": Select.identity(24),
}


def image_of(term: LinearMap) -> tuple[int, ...]:
    last = term.maps[-1] if isinstance(term, Chain) else term
    return last.out_shape if isinstance(last, Conv) else (2, 3, 4)


@pytest.mark.parametrize("case", MAPS)
@pytest.mark.parametrize("most", [0, patch.WRITTEN_OUT])
def test_a_row_over_its_patch_is_a_row_of_the_map(case: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "WRITTEN_OUT", most)
    term = MAPS[case]
    start = Patch.point(image_of(term))
    end = start.through(term)
    assert end is not None
    local = PatchMap.of(term, start, end, torch.zeros(0, dtype=torch.float64))
    rows = torch.arange(term.n_out)
    channel, *places = places_of(rows, start.image)
    found = local.transpose(torch.eye(start.image[0], dtype=torch.float64)[channel])
    index = end.index(torch.stack(places, dim=1))
    whole = torch.zeros(term.n_out, term.n_in + 1, dtype=torch.float64).scatter_(1, index, found)
    torch.testing.assert_close(whole[:, :-1], term.transpose(torch.eye(term.n_out, dtype=torch.float64)))


@pytest.mark.parametrize("case", ["plain", "strided", "dilated", "points"])
def test_windows_are_the_rows_of_the_matrix_tap_by_tap(case: str) -> None:
    conv = MAPS[case]
    assert isinstance(conv, Conv)
    rows, columns = torch.arange(0, conv.n_out, 3), torch.arange(1, conv.n_in, 2)
    places, values = windows(conv, rows, columns)
    found = torch.zeros(len(rows), len(columns) + 1, dtype=torch.float64).scatter_(1, places, values)
    whole = conv.transpose(torch.eye(conv.n_out, dtype=torch.float64))
    torch.testing.assert_close(found[:, :-1], whole[rows][:, columns], rtol=1e-14, atol=1e-14)


def test_a_patch_of_a_patch_is_the_patch_of_both_maps() -> None:
    first = Conv(kernel(3, 2, 3, 3), (2, 9, 9), (2, 2), ((1, 1), (1, 1)), (1, 1))
    second = Conv(kernel(2, 3, 3, 3), first.out_shape, (1, 1), ((1, 1), (1, 1)), (1, 1))
    near = Patch.point(second.out_shape).through(second)
    assert near is not None
    far = near.through(first)
    assert far == Patch((2, 9, 9), (2, 2), (3, 3), (7, 7))
    read = torch.zeros(first.n_in + 1)
    read[far.index(torch.tensor([[2, 3]]))] = 1.0
    row = torch.zeros(second.out_shape, dtype=torch.float64)
    row[0, 2, 3] = 1.0
    sizes = [conv.reweighted(conv.weight.abs()) for conv in (first, second)]
    magnitude = sizes[0].transpose(sizes[1].transpose(row.flatten()))
    assert bool((read[:-1][magnitude > 0] == 1).all())


def test_an_identity_gives_rows_of_their_own() -> None:
    start = Patch.point((2, 3, 4))
    rows = kernel(5, 2)
    found = PatchMap.of(MAPS["identity"], start, start, rows).transpose(rows)
    assert torch.equal(found, rows)
    assert found.data_ptr() != rows.data_ptr()


def test_joined_patches_hold_both_and_move_with_them() -> None:
    image = (2, 8, 8)
    small, large = Patch(image, (2, 2), (0, 0), (1, 1)), Patch(image, (2, 2), (1, 2), (3, 4))
    both = small.joined(large)
    assert both == large
    assert small.joined(Patch(image, (2, 2), (-1, -1), (2, 2))) == Patch(image, (2, 2), (0, 0), (3, 3))
    assert small.joined(Patch(image, (1, 1), (0, 0), (1, 1))) is None
    rows, places = kernel(5, small.entries), torch.tensor([[1, 2]] * 5)
    found = [
        torch.zeros(5, flat_size(image) + 1, dtype=torch.float64).scatter_(1, patch.index(places), part)
        for patch, part in ((small, rows), (large, small.widened(rows, large)))
    ]
    torch.testing.assert_close(found[0][:, :-1], found[1][:, :-1])


def test_what_is_no_image_has_no_patch() -> None:
    point = Patch.point((2, 3, 4))
    assert point.through(Select(torch.arange(24).flip(0), 24)) is None
    assert point.through(PLAIN) is None  # its results are another image
    grouped = Conv(kernel(2, 1, 1, 1), (2, 3, 4), (1, 1), ((0, 0), (0, 0)), (1, 1), groups=2)
    assert point.through(grouped) is None
