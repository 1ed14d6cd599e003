"""Every way to bound on a device that is not the CPU: the same numbers, bit by bit, and no mixing on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import networks
import pytest
import torch
from bounding.cases import random_rows
from gpu.check import short

from verifier.bounding import BOUNDERS, HIDDEN
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.core.state import State, tree_map
from verifier.bounding.cuts.masks import Form, RandomMasks
from verifier.bounding.forward import Forward
from verifier.bounding.hidden import GroupBounds, RootBounds
from verifier.bounding.local.bounds import LocalBounds
from verifier.bounding.relaxation.interval import interval_image
from verifier.bounding.relaxation.zonotope import fits_single, propagate
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.crown import Slope
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.solver import Certified
from verifier.functions import RELU
from verifier.functions.names import FUNCTIONS
from verifier.network.network import Network

Case = tuple[Network, torch.Tensor, torch.Tensor]


def case(family: str, seed: int = 1, radius: float = 0.4, count: int = 2) -> Case:
    net = networks.mixed(seed) if family == "mixed" else networks.FAMILIES[family](seed)
    return (net, *networks.box(net, seed, radius, count))


def there(case: Case, device: torch.device) -> Case:
    return case[0].to(device), case[1].to(device), case[2].to(device)


def tensors(found: object) -> list[torch.Tensor]:
    """All tensors of a result, in main memory."""
    seen: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor.cpu())
        return tensor

    if isinstance(found, Bound):
        found = (found.lower, found.x0, found.state, found.error)
    if isinstance(found, list):
        found = tuple(found)
    assert isinstance(found, State | tuple | torch.Tensor)
    tree_map(keep, found)
    return seen


def same(work: Callable[[Case], object], here: Case, device: torch.device) -> None:
    """The same work in both places."""
    expected, found = tensors(work(here)), tensors(work(there(here, device)))
    assert expected
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


def rows(net: Network, device: torch.device) -> Objective:
    return random_rows(net, 3, 3).to(device)


def bounded(bounder: Bounder) -> Callable[[Case], Bound]:
    def work(some: Case) -> Bound:
        net, low, high = some
        region = RootBounds().region(net, low, high, Until())
        return bounder.bound(net, region, rows(net, low.device), Until(threshold=0.2))

    return work


@pytest.mark.parametrize("family", ["conv", "residual", "mixed"])
@pytest.mark.parametrize("method", BOUNDERS.names())
def test_bounders(method: str, family: str, device: torch.device) -> None:
    bounder = BOUNDERS.build(method, short(BOUNDERS.options(method), 12))
    if family == "mixed" and not bounder.any_function:
        pytest.skip("bounds networks of ReLUs only")
    same(bounded(bounder), case(family), device)


STEPS = Steps(0.05, 0.01)
VARIANTS = {
    "exact masks": Propagated.in_rounds(Ascent(6, STEPS), Ascent(6, STEPS), (None,), averaged=3),
    "three cuts": Propagated.one_by_one(Ascent(6, STEPS), Ascent(12, STEPS), (0.3, 0.5, 0.7)),
    "shared masks": ActiveSet(Ascent(6, STEPS), Ascent(3, STEPS), Additions(2, 1, 2), masks=Form.SHARED),
    "random masks": ActiveSet(Ascent(6, STEPS), Ascent(3, STEPS), Additions(2, 1, 2), selection=RandomMasks()),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_forms_of_cuts(name: str, device: torch.device) -> None:
    same(bounded(Certified(VARIANTS[name])), case("conv"), device)


@pytest.mark.parametrize("family", ["conv", "residual", "mixed"])
@pytest.mark.parametrize("method", HIDDEN.names())
def test_first_bounds(method: str, family: str, device: torch.device) -> None:
    bounds: GroupBounds = HIDDEN.build(method)

    def work(some: Case) -> Region:
        net, low, high = some
        hidden = bounds.for_rows(net, (low, high), rows(net, low.device), Until())
        return hidden.region(net, low, high, Until())

    same(work, case(family), device)


@pytest.mark.usefixtures("in_float64")
def test_local_sweeps(device: torch.device) -> None:
    def work(some: Case) -> Region:
        net, low, high = some
        local, region = LocalBounds.of(net, Slope.ADAPTIVE, 2**26), Region(low, high)
        for k, group in enumerate(net.groups, 1):
            ends = interval_image(group, region)
            if k > 1:
                assert local.serves(region, k)
                list(local.narrow(region, k, ends, Until()))
            region = region.extended(group, *ends)
        return region

    same(work, case("conv", count=1), device)


def test_float32_proves_nothing_there(device: torch.device) -> None:
    """Sweeps over patches, zonotopes and boxes: convolutions may be transforms, whose errors are not counted."""
    net, low, high = case("conv")
    for place, relied_on in ((torch.device("cpu"), True), (device, False)):
        own, box = net.to(place), (low.to(place), high.to(place))
        assert fits_single(own) is relied_on
        assert (LocalBounds.of(own, Slope.ADAPTIVE, 2**26).single is not None) is relied_on
        forward = Forward.begin(own, box, 2**26)
        assert forward is not None
        assert (forward._single is not None) is relied_on


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zonotopes(dtype: torch.dtype, device: torch.device) -> None:
    def work(some: Case) -> tuple[torch.Tensor, ...]:
        net, low, high = some
        moving = torch.tensor([0, 2], device=low.device)
        found = [propagate(net.to(dtype=dtype), low, high), propagate(net.to(dtype=dtype), low, high, moving=moving)]
        return tuple(part for one in found for part in (*one.l_hat, *one.u_hat, one.output.centre, one.output.error))

    same(work, case("residual"), device)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("thorough", [True, False])
def test_zonotopes_over_what_moves(thorough: bool, device: torch.device) -> None:
    def work(some: Case) -> tuple[torch.Tensor, ...]:
        net, low, high = some
        forward = Forward.begin(net, (low, high), 2**26, thorough)
        assert forward is not None
        found = []
        for k, group in enumerate(net.groups, 1):
            whole = low.new_full((len(low), group.size), -torch.inf), low.new_full((len(low), group.size), torch.inf)
            found.append(forward.narrowed(k, whole))
            forward.enter(k, found[-1], [])
        return tuple(end for ends in found for end in ends)

    same(work, case("residual"), device)


@pytest.mark.parametrize("name", FUNCTIONS.names())
def test_functions(name: str, device: torch.device) -> None:
    """CROWN and alpha-CROWN over a group of each function."""
    function = FUNCTIONS.build(name, {"exponent": 3.0} if name == "Pow" else None)
    net = networks.mixed(2, (2, 3, 3, 2), (function, RELU))
    low, high = networks.box(net, 2, 0.3, 2)
    shifted = replace(net.groups[0], bias=net.groups[0].bias + 3.0)  # where roots and logarithms are defined
    net = replace(net, groups=(shifted, *net.groups[1:]))
    bounders = [BOUNDERS.build(method, short(BOUNDERS.options(method), 4)) for method in ("crown", "alpha_crown")]

    def work(some: Case) -> tuple[object, ...]:
        own, *box = some
        region = RootBounds().region(own, *box, Until())
        rows_there, until = rows(own, region.lower.device), Until(threshold=0.2)
        found = [bounder.bound(own, region, rows_there, until) for bounder in bounders]
        return tuple((bound.lower, bound.x0, bound.state, bound.error) for bound in found)

    same(work, (net, low, high), device)
