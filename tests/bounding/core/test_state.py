"""The laws of batches of tensors, on every kind of state that the solvers and the search carry around."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import networks
import pytest
import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.state import (
    COMMON,
    SHARED,
    State,
    cat,
    halved,
    is_repeated,
    once,
    repeated,
    tree_map,
)
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Form, Geometries
from verifier.bounding.hidden import RootBounds
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.solver import Task, Variables

SHORT = Ascent(6, Steps(0.05, 0.01))
REGIONS, OBJECTIVES = 4, 2


def states() -> dict[str, State]:
    """One of every kind, of four regions and two objectives."""
    net = networks.residual(2)
    region = RootBounds().region(net, *networks.box(net, 2, 0.8, REGIONS), Until())
    splits = tuple(torch.zeros_like(low, dtype=torch.int8) for low in region.l_hat)
    region = replace(region, splits=splits)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(REGIONS, OBJECTIVES, net.n_out, generator=generator, dtype=torch.float64)
    objective = Objective(len(net.layers), rows, None, rows[..., 0])
    sweep = Sweep.prepare(net, region, objective.layer)
    task = Task(sweep, objective)
    found: dict[str, State] = {"region": region, "objective": objective, "sweep": sweep, "kinks": sweep.kinks[-1]}
    found["shared objective"] = Objective(objective.layer, rows[:1])
    found["rows"] = Conjunction(rows, None, rows[..., 0], torch.ones(REGIONS, OBJECTIVES, dtype=torch.bool))
    for solver in (
        AlphaCrown(SHORT),
        Propagated.in_rounds(SHORT, SHORT, (0.5, None), averaged=3),
        BigM(SHORT),
        ActiveSet(SHORT, SHORT, Additions(2, 1, 2), masks=Form.SHARED),
    ):
        state = solver.begin(task, Until()).state
        assert isinstance(state, Variables)
        found[type(solver).__name__] = state
        found[f"dual of {type(solver).__name__}"] = state.dual(task)
    for form in Form:
        geometry = Geometries(sweep).at(len(sweep.kinks) - 1, form)
        assert geometry is not None
        found[f"geometry of {form.value}"] = geometry
    return found


STATES = states()
ALONG_OBJECTIVES = [name for name in STATES if name == "objective" or isinstance(STATES[name], Variables)]


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors, in order; written anew for the test."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in tensors(item)]
    if isinstance(value, State) and is_dataclass(value):
        return [tensor for f in fields(value) for tensor in tensors(getattr(value, f.name))]
    return []


def equal(one: State, other: State) -> bool:
    pairs = list(zip(tensors(one), tensors(other), strict=True))
    return bool(pairs) and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", STATES)
def test_what_is_selected_and_put_together_is_the_whole(name: str) -> None:
    state = STATES[name]
    parts = [state.select(torch.tensor(rows)) for rows in ([0, 1], [2, 3])]
    if name != "shared objective":
        assert equal(cat(parts), state)
    assert equal(state.select(slice(None)), state)
    assert equal(state.select(torch.tensor([True, False, True, False])), state.select(torch.tensor([0, 2])))
    again = state.select(torch.tensor([2, 0, 2]))
    assert equal(again.select(torch.tensor([1, 0])), state.select(torch.tensor([0, 2])))


@pytest.mark.parametrize("name", ALONG_OBJECTIVES)
def test_parts_of_an_objective_make_the_whole(name: str) -> None:
    state = STATES[name]
    parts = [state.part(i, i + 1) for i in range(OBJECTIVES)]
    assert equal(cat(parts, dim=1), state)
    rows = torch.tensor([2, 1])
    assert equal(state.part(1, 2).select(rows), state.select(rows).part(1, 2))


@pytest.mark.parametrize("name", STATES)
def test_precision_changes_floats_only_and_comes_back(name: str) -> None:
    state = STATES[name]
    for precision in (state.to(torch.float32), state.to(torch.float16)):
        for old, new in zip(tensors(state), tensors(precision), strict=True):
            assert old.is_floating_point() == new.is_floating_point()
            if old.is_floating_point():
                torch.testing.assert_close(new.double(), old.clamp(-60000, 60000), rtol=2e-3, atol=2e-3)
            else:
                assert torch.equal(old, new)
    assert equal(state.to(torch.float32).to(torch.float64).to(torch.float32), state.to(torch.float32))
    assert equal(state.to(torch.device("cpu")), state)
    assert equal(tree_map(torch.clone, state), state)


def test_half_precision_is_cut_off_where_it_ends() -> None:
    found = halved(torch.tensor([1e6, -1e6, 0.5, torch.inf]))
    assert found.dtype is torch.float16
    assert found.tolist() == [60000.0, -60000.0, 0.5, 60000.0]


def test_a_shared_objective_serves_any_regions() -> None:
    shared = STATES["shared objective"]
    assert equal(shared.select(torch.tensor([2, 2, 2, 1])), shared)
    with pytest.raises(ValueError, match="serve all"):
        cat([shared, shared])


def test_states_of_different_structure_stay_apart() -> None:
    first, second = STATES["Propagated"], STATES["AlphaCrown"]
    assert isinstance(first, Variables)
    assert isinstance(second, Variables)
    mixed = replace(first, masks=replace(first.masks, cuts=first.masks.cuts[::-1]))
    with pytest.raises(ValueError, match="one structure"):
        cat([first, mixed])
    region = STATES["region"]
    assert isinstance(region, Region)
    with pytest.raises(ValueError, match="shorter"):
        cat([region, replace(region, l_hat=region.l_hat[:1])])


# ---------------------------------------------------------------- one row of memory for all regions

COUNT = 5
ROWS: dict[str, torch.Tensor | slice] = {
    "some": torch.tensor([3, 1]),
    "from the end": torch.tensor([-1, 0]),
    "one twice": torch.tensor([2, 0, 2, 2, 4, 2]),
    "a single one": torch.tensor([4]),
    "none": torch.tensor([], dtype=torch.long),
    "a mask": torch.tensor([True, False, False, True, True]),
    "a mask of nothing": torch.zeros(COUNT, dtype=torch.bool),
    "a slice": slice(1, 4),
    "the last": slice(-2, None),
    "every second": slice(0, COUNT, 2),
    "beyond the end": slice(3, 9),
    "an empty slice": slice(4, 2),
    "all": slice(None),
}


def dense(state: Any) -> Any:
    """The same, each region with memory of its own."""
    return tree_map(lambda t: t.clone(memory_format=torch.contiguous_format), state)


def alike(name: str) -> tuple[State, State]:
    """The second region of a state, repeated; and the same in memory of its own."""
    found = repeated(STATES[name].select(slice(1, 2)), COUNT)
    return found, dense(found)


def of_regions(value: Any) -> list[torch.Tensor]:
    """The tensors whose first axis counts regions, in order."""
    if isinstance(value, State) and is_dataclass(value):
        own = (f.name for f in fields(value) if f.metadata.get("axes") != "shared")
        return [tensor for name in own for tensor in of_regions(getattr(value, name))]
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in of_regions(item)]
    return tensors(value)


def held_once(state: State) -> list[torch.Tensor]:
    """The tensors of which all regions share one row."""
    return [tensor for tensor in of_regions(state) if is_repeated(tensor)]


def in_one_piece(state: State) -> bool:
    """Whether it can be put together with others: a tensor that serves all regions cannot."""
    if isinstance(state, Objective):
        return False
    return all(in_one_piece(value) for f in fields(state) if isinstance(value := getattr(state, f.name), State))


@pytest.mark.parametrize("name", STATES)
def test_a_repeated_region_is_the_region_many_times(name: str) -> None:
    """Tensors that serve all regions, and those without regions, stay as they are."""
    found, other = alike(name)
    again = STATES[name].select(torch.ones(COUNT, dtype=torch.long))
    for mine, copied, taken in zip(tensors(found), tensors(other), tensors(again), strict=True):
        assert torch.equal(mine, copied)
        assert torch.equal(mine.expand_as(taken), taken)
    assert not held_once(other)
    if name not in ("objective", "shared objective"):
        assert held_once(found)
    assert equal(repeated(STATES[name].select(slice(1, 2)), 1), STATES[name].select(slice(1, 2)))


@pytest.mark.parametrize("name", STATES)
def test_what_is_selected_of_a_repeated_region_is_what_is_selected_of_a_copy(name: str) -> None:
    """And it stays the same memory."""
    found, other = alike(name)
    for kind, rows in ROWS.items():
        taken, count = found.select(rows), len(torch.arange(COUNT)[rows])
        assert equal(taken, other.select(rows)), kind
        for before, after in zip(of_regions(found), of_regions(taken), strict=True):
            if is_repeated(before):
                assert len(after) == count, kind
                assert is_repeated(after) == (count > 1), kind
                assert not count or after.data_ptr() == before.data_ptr(), kind


@pytest.mark.parametrize("name", STATES)
def test_repeated_regions_are_put_together_and_converted_like_copies(name: str) -> None:
    found, other = alike(name)
    assert equal(found.to(torch.float32), other.to(torch.float32))
    assert equal(found.to(torch.device("cpu")), other)
    if in_one_piece(found):
        apart = STATES[name].select(torch.tensor([3, 0]))
        assert equal(cat([found, apart, found]), cat([other, apart, other]))
    if name in ALONG_OBJECTIVES:
        assert equal(found.part(1, 2), other.part(1, 2))
        rows = torch.tensor([2, 0, 2])
        assert equal(found.part(1, 2).select(rows), other.select(rows).part(1, 2))


def test_memory_that_all_regions_share_is_not_written_to() -> None:
    one = torch.ones(1, 3)
    many = repeated(one, COUNT)
    with pytest.raises(RuntimeError, match="single memory location"):
        many.add_(1.0)
    assert torch.equal(many.index_copy(1, torch.tensor([0]), torch.zeros(COUNT, 1))[:, 0], torch.zeros(COUNT))
    assert torch.equal(one, torch.ones(1, 3))


def test_what_is_repeated() -> None:
    row = torch.arange(3.0)
    assert is_repeated(row.expand(2, 3))
    assert not is_repeated(row.expand(1, 3))
    assert not is_repeated(row.expand(2, 3).clone())
    assert not is_repeated(torch.zeros(2, 1).expand(2, 3))
    assert not is_repeated(torch.zeros(0, 3))


@dataclass(frozen=True, eq=False)
class Leaf(State):
    """A state with fields of every kind."""

    each: torch.Tensor
    table: torch.Tensor = field(metadata=SHARED)
    common: torch.Tensor = field(metadata=COMMON)
    pair: tuple[torch.Tensor, torch.Tensor | None]
    name: str = "leaf"


@dataclass(frozen=True, eq=False)
class Branch(State):
    leaf: Leaf
    split: torch.Tensor | None


def tree(count: int, wide: bool, first: int = 0) -> Branch:
    """Different rows in all regions; with `wide` the common tensor has one for each region as well."""
    each = torch.arange(first, first + 2.0 * count).reshape(count, 2)
    leaf = Leaf(each, torch.tensor([3.0, 5.0]), 0.5 * each if wide else torch.full((1, 2), 7.0), (each + 100, None))
    return Branch(leaf, None)


def made(one: Branch, other: torch.Tensor) -> Branch:
    """Something of all fields, region by region."""
    leaf = one.leaf
    assert leaf.pair[1] is None
    each = leaf.each * leaf.table + leaf.common + other
    return Branch(replace(leaf, each=each, pair=(leaf.pair[0] - other, each[:, :1])), each.sum(dim=1))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_what_is_made_once_is_what_is_made_for_each(mine: bool, others: bool, wide: bool) -> None:
    """Once only if nothing differs between regions; mixed with what may differ it is made for all."""
    one = repeated(tree(1, wide), COUNT) if mine else tree(COUNT, wide)
    other = torch.full((1, 2), 9.0).expand(COUNT, 2) if others else torch.arange(2.0 * COUNT).reshape(COUNT, 2)
    asked: list[int] = []

    def make(*given: Any) -> Branch:
        asked.append(len(given[1]))
        return made(*given)

    found, expected = once(make, one, other), made(dense(one), dense(other))
    assert asked == [1 if mine and others else COUNT]
    assert equal(found, expected)
    assert found.leaf.table is one.leaf.table
    assert found.leaf.name == "leaf"
    assert found.split is not None
    assert is_repeated(found.leaf.each) == is_repeated(found.split) == (mine and others)
    rows = torch.tensor([4, 0, 4])
    assert equal(found.select(rows), expected.select(rows))


@pytest.mark.parametrize("count", [0, 1])
def test_no_region_and_a_single_one_are_as_they_are(count: int) -> None:
    one, other = repeated(tree(1, True), count), torch.ones(1, 2).expand(count, 2)
    assert equal(once(made, one, other), made(dense(one), dense(other)))
    assert len(once(made, one, other).leaf.each) == count


def test_a_tensor_that_serves_all_regions_does_not_say_how_many_there_are() -> None:
    """Nor does what is no tensor: then nothing is known to be the same."""
    asked = []

    def make(*given: Any) -> torch.Tensor:
        asked.append(given)
        return torch.zeros(COUNT, 2)

    assert once(make, None, "name").shape == (COUNT, 2)
    assert asked == [(None, "name")]
    whole = Objective(1, torch.ones(1, 1, 2))
    assert once(lambda o, t: t + o.coefficients[:, 0], whole, torch.ones(1, 2).expand(COUNT, 2)).shape == (COUNT, 2)
