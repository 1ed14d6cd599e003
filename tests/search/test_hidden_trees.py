"""Trees of hidden neurons: they prove what is true, as much as can be proved, and never less than before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networks
import numpy as np
import oracle
import pytest
import torch
from search.cases import Late, twin

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Region, Until, unit_objectives
from verifier.bounding.core.state import is_repeated
from verifier.bounding.hidden import Known, RootBounds
from verifier.bounding.solvers import propagated
from verifier.bounding.solvers.propagated import Propagated
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.search import hidden_trees
from verifier.search.hidden_trees import Ground, Grove, HiddenTrees, TreeLeaves, Turns
from verifier.search.sharpen import Trees

pytestmark = pytest.mark.usefixtures("unchecked")

FINE = Steps(0.2, 0.002)
SOLVER = Propagated.in_rounds(Ascent(10, Steps(0.3, 0.03)), Ascent(10, Steps(0.2, 0.03)), averaged=5)
SHORT, LONG, LONGER = (Ascent(n, steps) for n, steps in ((6, Steps(0.1, 0.03)), (120, FINE), (300, FINE)))


def deep(seed: int) -> Network:
    return networks.dense(seed, (3, 5, 5, 5, 2))


MADE: dict[str, Callable[[int], Network]] = {"deep": deep, "conv": networks.conv, "residual": networks.residual}
RADII = {"deep": 2.0, "conv": 0.5, "residual": 1.5}
CASES = [("deep", 0), ("deep", 3), ("conv", 3), ("residual", 1)]
CASE = pytest.mark.parametrize(("family", "seed"), CASES)


def region_of(net: Network, seed: int, family: str = "deep") -> Region:
    return RootBounds().region(net, *networks.box(net, seed, RADII[family]), Until())


def trees_over(region: Region, leaves: int, ascent: Ascent = SHORT) -> HiddenTrees:
    return HiddenTrees(Known(region), SOLVER, ascent, leaves)


def sharp(net: Network, region: Region, leaves: int, ascent: Ascent = SHORT, until: Until | None = None) -> Region:
    return trees_over(region, leaves, ascent).region(net, region.lower, region.upper, until or Until())


def ends(region: Region, k: int) -> torch.Tensor:
    """The lower bounds of +e_i and of -e_i of group k."""
    return torch.cat([region.l_hat[k - 1][0], -region.u_hat[k - 1][0]])


def exact(net: Network, region: Region, k: int) -> torch.Tensor:
    """The least values of +e_i and -e_i of group k, by enumeration."""
    cut = Network(net.input_shape, net.groups[: k - 1], net.groups[k - 1])
    box, size = (region.lower[0].numpy(), region.upper[0].numpy()), net.groups[k - 1].size
    rows = np.concatenate([np.eye(size), -np.eye(size)])
    return torch.tensor([oracle.minimum(twin(cut), box, row) for row in rows], dtype=torch.float64)


@CASE
def test_bounds_hold_and_are_nowhere_looser(family: str, seed: int) -> None:
    net = MADE[family](seed)
    known = region_of(net, seed, family)
    found = sharp(net, known, 8)
    gained = 0.0
    for k in range(1, len(net.groups) + 1):
        low, high = known.l_hat[k - 1], known.u_hat[k - 1]
        assert bool((found.l_hat[k - 1] >= low).all())
        assert bool((found.u_hat[k - 1] <= high).all())
        assert bool((ends(found, k) <= exact(net, known, k) + 1e-9).all())
        gained += float((found.l_hat[k - 1] - low).sum() + (high - found.u_hat[k - 1]).sum())
    assert gained > 0


@pytest.mark.parametrize("least", [0.3, 0.9])
@CASE
def test_bounds_hold_where_most_cuts_are_dropped(
    family: str, seed: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(propagated, "LEAST", least)
    net = MADE[family](seed)
    known = region_of(net, seed, family)
    found = sharp(net, known, 8)
    for k in range(1, len(net.groups) + 1):
        assert bool((found.l_hat[k - 1] >= known.l_hat[k - 1]).all())
        assert bool((found.u_hat[k - 1] <= known.u_hat[k - 1]).all())
        assert bool((ends(found, k) <= exact(net, known, k) + 1e-9).all())


@CASE
def test_leaves_of_a_box_are_those_with_memory_of_their_own(family: str, seed: int) -> None:
    """Parts without signs in a group have its bounds in common."""
    net = MADE[family](seed)
    layer = len(net.layers)
    ground = Ground.of(net, region_of(net, seed, family), layer)
    assert ground.region.kinks is not None
    signs = torch.zeros(4, ground.kinks, dtype=torch.int8)
    signs[:3, -1] = torch.tensor([1, -1, 1], dtype=torch.int8)
    first = sum(len(index) for index in ground.region.kinks[:-1])
    objective = Objective(layer, torch.eye(net.n_out, dtype=torch.float64).unsqueeze(0))
    for task, whole in (
        (ground.task(signs, objective), ground.rough),
        (ground.exact_task(signs, objective), ground.region),
    ):
        own = whole.select(torch.zeros(4, dtype=torch.long))
        low, high = own.at_kinks()
        own = own.with_kinks(
            torch.where(signs > 0, low.clamp(min=0), low), torch.where(signs < 0, high.clamp(max=0), high), signs
        )
        found = task.sweep.region
        assert found.splits is not None
        assert own.splits is not None
        for name in ("l_hat", "u_hat", "splits"):
            for mine, others in zip(getattr(found, name), getattr(own, name), strict=True):
                assert torch.equal(mine, others)
        assert first == 0 or is_repeated(found.l_hat[0])
        assert not is_repeated(found.splits[-1])


@pytest.mark.parametrize("seed", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_with_leaves_for_all_signs_bounds_of_ambiguous_neurons_are_exact(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kink is left in such a leaf, so long ascents reach the least value of a linear function."""
    monkeypatch.setattr(hidden_trees, "LITTLE", -1.0)
    net = deep(seed)
    known = region_of(net, seed)
    found = sharp(net, known, 128, LONGER)
    for k in range(2, len(net.groups) + 1):
        least = exact(net, known, k)
        bent = (found.l_hat[k - 1] < 0) & (found.u_hat[k - 1] > 0)
        both = torch.cat([bent[0], bent[0]])
        assert bool((ends(found, k) <= least + 1e-9).all())
        assert bool(((least - ends(found, k))[both] < 5e-3).all())
        assert bool(bent.any()) or k > 2


@pytest.mark.parametrize(("family", "seed"), [pytest.param(*CASES[0], marks=pytest.mark.slow), *CASES[1:]])
def test_more_leaves_prove_more(family: str, seed: int) -> None:
    """Of the second group, whose bounds depend on no other trees, and up to the stops of float32."""
    net = MADE[family](seed)
    known = region_of(net, seed, family)
    few, many = (ends(sharp(net, known, leaves, LONG), 2) for leaves in (2, 12))
    bent = ((many.view(2, -1) < 0).all(dim=0)).repeat(2)
    assert bool((many >= few - 1e-2)[bent].all())


def first_groups(region: Region, count: int) -> dict[str, Any]:
    """What a region knows of its first groups."""
    return {name: getattr(region, name)[:count] for name in ("l_hat", "u_hat", "functions")}


def grove(net: Network, region: Region, k: int, leaves: int, until: Until | None = None) -> Grove:
    before = replace(
        region, l_hat=region.l_hat[: k - 1], u_hat=region.u_hat[: k - 1], functions=region.functions[: k - 1]
    )
    ground = hidden_trees.Ground.of(net, before, k)
    neurons = torch.nonzero(region.ambiguous(k)[0]).flatten()
    rows = Objective(k, unit_objectives(net.groups[k - 1].size, neurons, region.lower))
    return Grove(trees_over(region, leaves), ground, rows, torch.ones(2 * len(neurons)), until or Until())


def grown(net: Network, region: Region, k: int, leaves: int) -> tuple[Grove, TreeLeaves]:
    """The leaves that `Grove.lower` proves in the end."""
    made, kept = grove(net, region, k, leaves), []
    usual = Grove._proved

    def watching(self: Grove, leaves: TreeLeaves, first: object) -> torch.Tensor:
        kept.append(leaves)
        return usual(self, leaves, first)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grove, "_proved", watching)
        patch.setattr(hidden_trees, "LITTLE", -1.0)
        made.lower()
    return made, kept[0]


@CASE
def test_the_leaves_of_a_tree_cover_the_box(family: str, seed: int) -> None:
    """Every point has the signs of exactly one leaf, and there the row is at least the leaf's bound."""
    net = MADE[family](seed)
    region, k = region_of(net, seed, family), len(net.groups)
    made, leaves = grown(net, region, k, 9)
    index = made.ground.region.kinks
    assert index is not None
    x = networks.points(region.lower[0], region.upper[0], 300, seed)
    x_hat = net.preactivations(x)
    signs = torch.cat([x_hat[j][:, index[j]] for j in range(k - 1)], dim=1).sign()
    values = x_hat[k - 1] @ made.rows.coefficients[0].T
    several = 0
    for tree in range(made.rows.count):
        here = torch.nonzero(leaves.tree == tree).flatten()
        several += len(here) > 2
        own = leaves.signs[here]
        inside = ((own == 0).unsqueeze(0) | (own.unsqueeze(0) == signs.unsqueeze(1))).all(dim=2)
        assert bool((inside.sum(dim=1) == 1).all())
        bound = leaves.lower[here][inside.to(torch.int8).argmax(dim=1)]
        assert bool((values[:, tree] >= bound.double() - 1e-4).all())
    assert several


def test_what_counts_is_the_bound_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """However high float32 believes a leaf to be."""
    net = deep(1)
    region = region_of(net, 1)
    sure = grove(net, region, 3, 9).lower()
    usual = Propagated.resume

    def boasting(self: Propagated, *args: object, **more: object) -> object:
        found = usual(self, *args, **more)  # type: ignore[arg-type]
        return replace(found, lower=found.lower + 1.0)

    monkeypatch.setattr(Propagated, "resume", boasting)
    boasted = grove(net, region, 3, 9).lower()
    least = exact(net, region, 3)
    neurons = torch.nonzero(region.ambiguous(3)[0]).flatten()
    rows = torch.cat([neurons, neurons + net.groups[2].size])
    assert bool((sure[0] <= least[rows] + 1e-9).all())
    assert bool((boasted[0] <= least[rows] + 1e-9).all())


@pytest.mark.parametrize("looks", range(0, 40, 7))
def test_a_deadline_anywhere_leaves_valid_bounds(looks: int) -> None:
    class Short(Late):
        def within(self, seconds: float) -> Clock:
            return self

    net = deep(2)
    known = region_of(net, 2)
    found = sharp(net, known, 8, until=Until(Short(looks)))
    for k in range(1, len(net.groups) + 1):
        assert bool((found.l_hat[k - 1] >= known.l_hat[k - 1]).all())
        assert bool((ends(found, k) <= exact(net, known, k) + 1e-9).all())


def test_memory_limits_the_leaves() -> None:
    net = deep(2)
    known = region_of(net, 2)
    found = replace(trees_over(known, 64), memory_bytes=2**14).region(net, known.lower, known.upper, Until())
    for k in range(1, len(net.groups) + 1):
        assert bool((ends(found, k) <= exact(net, known, k) + 1e-9).all())
        assert bool((found.l_hat[k - 1] >= known.l_hat[k - 1]).all())


def test_groups_behind_other_functions_keep_their_bounds() -> None:
    net = networks.mixed(3)
    region = RootBounds().region(net, *networks.box(net, 3, 0.5), Until())
    found = sharp(net, region, 8)
    first = next(k for k, group in enumerate(net.groups, 1) if not group.function.is_relu)
    for k in range(first + 1, len(net.groups) + 1):
        assert torch.equal(found.l_hat[k - 1], region.l_hat[k - 1])
        assert torch.equal(found.u_hat[k - 1], region.u_hat[k - 1])


def test_the_worst_leaf_of_each_tree() -> None:
    nothing = torch.zeros(5, 0)
    lower = torch.tensor([-1.0, -3.0, 2.0, -3.0, 0.5])
    leaves = TreeLeaves(torch.tensor([0, 0, 1, 0, 1]), lower, nothing.to(torch.int8), nothing, torch.zeros(5).long())
    bound, leaf = leaves.worst(2)
    assert bound.tolist() == [-3.0, 0.5]
    assert leaf.tolist() == [1, 4]


def test_turns_share_what_is_left() -> None:
    turns, until = Turns(100.0), Until(Clock.begin(1000.0))
    turns.parts(4)
    assert turns.next(until).clock.remaining() == pytest.approx(25, abs=0.5)
    assert turns.next(until).clock.remaining() == pytest.approx(100 / 3, abs=0.5)  # the first took no time
    assert Turns(100.0).next(Until(Clock.begin(10.0))).clock.remaining() <= 10


@pytest.mark.parametrize("enough", [0.0, 2.0])
def test_a_sample_decides_whether_the_others_get_trees(enough: float, monkeypatch: pytest.MonkeyPatch) -> None:
    net = deep(0)
    known = region_of(net, 0)
    neurons: list[int] = []
    usual = Grove.lower

    def counting(self: Grove) -> torch.Tensor:
        neurons.append(self.rows.count // 2)
        return usual(self)

    monkeypatch.setattr(Grove, "lower", counting)
    monkeypatch.setattr(hidden_trees, "SAMPLE", 2)
    monkeypatch.setattr(hidden_trees, "ENOUGH", enough)
    trees_over(known, 4).group(net, replace(known, **first_groups(known, 1)), 2, Until())
    bent = int(known.ambiguous(2).sum())
    assert bent > 2
    assert neurons == ([2, bent - 2] if enough == 0 else [2])


@pytest.mark.parametrize(("trial", "wanted"), [(2, [(2, 2), (None, 4)]), (None, [(2, 4), (-2, 4)])])
def test_trees_are_tried_out_with_as_many_leaves_as_asked(
    trial: int | None, wanted: list[tuple[int | None, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neurons of a smaller trial get a whole tree with the others; None stands for all, -2 for all but two."""
    net = deep(0)
    known = region_of(net, 0)
    seen: list[tuple[int, int]] = []
    usual = Grove.lower

    def counting(self: Grove) -> torch.Tensor:
        seen.append((self.rows.count // 2, self.options.leaves))
        return usual(self)

    monkeypatch.setattr(Grove, "lower", counting)
    monkeypatch.setattr(hidden_trees, "SAMPLE", 2)
    monkeypatch.setattr(hidden_trees, "ENOUGH", 0.0)
    trees = replace(trees_over(known, 4), trial=trial)
    trees.group(net, replace(known, **first_groups(known, 1)), 2, Until())
    bent = int(known.ambiguous(2).sum())
    assert seen == [(bent if n is None else n if n > 0 else bent + n, leaves) for n, leaves in wanted]


def test_only_the_first_stage_is_tried_out_with_few_leaves() -> None:
    known = region_of(deep(0), 0)
    solver, ascent = Propagated.in_rounds(), Ascent(3, Steps(0.1, 0.1))
    stages = [Trees(solver, ascent, (16, 64)).stage(known, number) for number in range(2)]
    assert [(s.leaves, s.trial) for s in stages if isinstance(s, HiddenTrees)] == [(16, 4), (64, None)]
    small = Trees(solver, ascent, (4,)).stage(known, 0)
    assert isinstance(small, HiddenTrees)
    assert small.trial is None
