"""Regions that share their memory: other bounds of their kinks, boxes of their sources, and what sweeps prepare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import networks
import pytest
import torch
from bounding.cases import root

from verifier.bounding.core.base import Region
from verifier.bounding.core.state import is_repeated, repeated, tree_map
from verifier.bounding.core.sweep import Kinks, Sweep

COUNT = 4

Sides = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""l_hat and u_hat of all kinks, and signs."""


def one_box(family: str, dtype: torch.dtype = torch.float64) -> Region:
    """A box whose kinks are known."""
    net = networks.FAMILIES[family](5)
    region = root(net, *networks.box(net, 5, 1.0))
    neurons = Sweep.prepare(net, region, len(net.layers)).neurons
    return replace(region, kinks=tuple(each.index for each in neurons)).to(dtype)


def copied(region: Region) -> Region:
    """The same boxes, each in memory of its own."""
    return tree_map(lambda t: t.clone(memory_format=torch.contiguous_format), region)


def places(region: Region) -> list[slice]:
    """Where the kinks of each group are among all."""
    assert region.kinks is not None
    found, start = [], 0
    for index in region.kinks:
        found.append(slice(start, start + len(index)))
        start += len(index)
    return found


def lowered(sides: Sides, at: slice, value: float = 0.0) -> None:
    sides[0][2, at] = value


def raised(sides: Sides, at: slice, value: float = 0.0) -> None:
    sides[1][1, at] = value


def signed(sides: Sides, at: slice) -> None:
    """Signs alone, without other bounds."""
    sides[2][3, at] = 1


def split(sides: Sides, at: slice) -> None:
    """All signs of the kinks, with their bounds."""
    for row, sign in enumerate((1, -1, 0, 1)):
        sides[2][row, at] = sign
        sides[0 if sign > 0 else 1][row, at] = 0.0 if sign else sides[1][row, at]


def missing(sides: Sides, at: slice) -> None:
    """One bound that is no number."""
    sides[0][0, at] = torch.nan


CHANGES: dict[str, Callable[[Sides, slice], None]] = {
    "lower": lowered,
    "upper": raised,
    "signs": signed,
    "split": split,
    "missing": missing,
}


def equal(one: Region, other: Region) -> None:
    """To the last bit, NaN included."""
    for name in ("lower", "upper"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    for name in ("l_hat", "u_hat", "splits"):
        for a, b in zip(getattr(one, name), getattr(other, name), strict=True):
            assert a.dtype is b.dtype
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["first", "last", "all", "none"])
@pytest.mark.parametrize("family", ["dense", "residual", "conv"])
def test_changed_bounds_are_those_of_regions_with_their_own_memory(
    family: str, where: str, change: str, dtype: torch.dtype
) -> None:
    """Groups in which nothing changes keep the memory that all regions share; so do those without kinks."""
    region = one_box(family, dtype)
    assert region.kinks is not None
    many, before = repeated(region, COUNT), copied(region)
    groups = {"first": [0], "last": [region.known - 1], "all": list(range(region.known)), "none": []}[where]
    low, high = (side.repeat(COUNT, 1) for side in region.at_kinks())
    sides = low, high, torch.zeros_like(low, dtype=torch.int8)
    groups = [k for k in groups if len(region.kinks[k])]
    assert bool(groups) == (where != "none")
    for k in groups:
        CHANGES[change](sides, places(region)[k])
    found = many.with_kinks(*sides)
    equal(found, copied(many).with_kinks(*sides))
    assert found.splits is not None
    for k in range(region.known):
        for part in (found.l_hat[k], found.u_hat[k], found.splits[k]):
            assert part.shape == (COUNT, region.l_hat[k].shape[1])
            assert is_repeated(part) == (k not in groups)
    assert torch.equal(torch.cat([s[:, i] for s, i in zip(found.splits, region.kinks, strict=True)], 1), sides[2])
    for mine, once in zip((*region.l_hat, *region.u_hat), (*before.l_hat, *before.u_hat), strict=True):
        assert torch.equal(mine, once)


def test_signs_of_an_earlier_branch_are_forgotten() -> None:
    """Signs are given anew each time."""
    region = one_box("dense")
    low, high = (side.repeat(COUNT, 1) for side in region.at_kinks())
    none = torch.zeros_like(low, dtype=torch.int8)
    sides = low.clone(), high.clone(), none.clone()
    split(sides, places(region)[0])
    marked = repeated(region, COUNT).with_kinks(*sides)
    for again in (marked, copied(marked)):
        found = again.with_kinks(low, high, none)
        equal(found, repeated(region, COUNT).with_kinks(low, high, none))
    one = marked.select(slice(0, 1))
    low, high = (side.repeat(COUNT, 1) for side in one.at_kinks())
    found = repeated(one, COUNT).with_kinks(low, high, none)
    equal(found, copied(repeated(one, COUNT)).with_kinks(low, high, none))
    assert found.splits is not None
    assert not any(bool(signs.any()) for signs in found.splits)


def test_signs_may_differ_where_bounds_do_not() -> None:
    region = repeated(one_box("dense"), COUNT)
    generator = torch.Generator().manual_seed(0)
    signs = tuple(torch.randint(-1, 2, low.shape, dtype=torch.int8, generator=generator) for low in region.l_hat)
    for k in range(1, region.known + 1):
        mine, others = (Kinks.of(replace(each, splits=signs), k) for each in (region, copied(region)))
        assert mine.sign is not None
        assert others.sign is not None
        assert torch.equal(mine.sign, others.sign)
        assert torch.equal(mine.upper, others.upper)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_any_number_of_regions_and_no_groups_at_all(count: int) -> None:
    region = one_box("dense")
    low, high = (side.repeat(count, 1) for side in region.at_kinks())
    signs = torch.zeros_like(low, dtype=torch.int8)
    equal(
        repeated(region, count).with_kinks(low, high, signs),
        copied(repeated(region, count)).with_kinks(low, high, signs),
    )
    bare = Region(region.lower, region.upper, kinks=())
    found = repeated(bare, count).with_kinks(low[:, :0], high[:, :0], signs[:, :0])
    assert found.splits == found.l_hat == ()
    assert found.count == count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("family", ["dense", "residual", "conv", "mixed"])
def test_sweeps_prepare_the_same(family: str, known: bool, dtype: torch.dtype) -> None:
    """Boxes of sources, kinks and their faces, functions of all kinds."""
    net = networks.mixed(3) if family == "mixed" else networks.FAMILIES[family](5)
    assert family != "mixed" or not net.piecewise_linear
    region = root(net, *networks.box(net, 5, 1.0))
    neurons = Sweep.prepare(net, region, len(net.layers)).neurons
    region = replace(region, kinks=tuple(each.index for each in neurons) if known else None).to(dtype)
    net = net.to(dtype=dtype)
    many = repeated(region, COUNT)
    for j in range(region.known + 1):
        for mine, others in zip(many.source(j), copied(many).source(j), strict=True):
            assert torch.equal(mine, others)
            assert is_repeated(mine)
            assert not is_repeated(others)
    sweeps = [Sweep.prepare(net, each, len(net.layers)) for each in (many, copied(many))]
    for one, other in zip(*(sweep.neurons for sweep in sweeps), strict=True):
        for name, value in vars(one).items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, getattr(other, name)), name
