"""What was best for other objectives: exact means of slopes, useless cuts, masks worth learning; better bounds."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from bounding.cases import random_rows, root, value

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder, Objective, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds, Sharpened
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown, SlopeDual
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.solver import Certified, Task, variables_of
from verifier.bounding.solvers.usual import FADING, UsualSlopes
from verifier.clock import Clock
from verifier.functions import RELU
from verifier.functions.sigmoids import Sigmoid
from verifier.proofs.attest import BoundsAsWritten

FEW = Ascent(4, Steps(0.3, 0.05))


def prepared(net: networks.Network, radius: float = 1.0) -> Sweep:
    return Sweep.prepare(net, root(net, *networks.box(net, 3, radius)), len(net.layers))


def test_the_mean_of_slopes_by_positive_coefficients() -> None:
    """Objectives that take the upper face at a neuron say nothing about its lower one."""
    sweep, usual = prepared(networks.dense(1, (3, 4, 2)), 2.0), UsualSlopes()
    (count,) = (neurons.count for neurons in sweep.neurons)
    assert count == 3
    start = torch.full((1, 2, count + 1), 0.75)  # one more variable, behind the slopes
    torch.testing.assert_close(usual.begin(sweep, start), start)
    slopes = torch.tensor([[[0.0, 1.0, 0.5, 9.0], [1.0, 0.5, 0.25, 9.0]]])
    usual.learn(sweep, slopes, [torch.tensor([[[1.0, -2.0, -1.0], [3.0, 2.0, torch.nan]]])])
    torch.testing.assert_close(usual.begin(sweep, start)[0, 1], torch.tensor([0.75, 0.5, 0.75, 0.75]))
    usual.learn(sweep, slopes[:, :1], [torch.tensor([[[2.0, 1.0, 0.0]]])])  # what is older counts less
    first, second = 3.0 * FADING / (2.0 + 4.0 * FADING), (1.0 + 2.0 * 0.5 * FADING) / (1.0 + 2.0 * FADING)
    torch.testing.assert_close(usual.begin(sweep, start)[0, 0], torch.tensor([first, second, 0.75, 0.75]))


def test_weights_that_are_too_large_teach_nothing() -> None:
    sweep, usual = prepared(networks.dense(1, (3, 4, 2)), 2.0), UsualSlopes()
    most = torch.finfo(torch.float32).max
    usual.learn(sweep, torch.ones(1, 2, 3), [torch.tensor([[[most, most, 1.0], [most, torch.inf, 1.0]]])])
    assert usual.begin(sweep, torch.zeros(1, 1, 3))[0, 0].tolist() == [0.0, 1.0, 1.0]


def test_groups_that_have_changed_or_that_nobody_reads_begin_as_ever() -> None:
    known, other, usual = prepared(networks.residual(1)), prepared(networks.residual(1), 0.4), UsualSlopes()
    counts = [[neurons.count for neurons in sweep.neurons] for sweep in (known, other)]
    assert all(a != b for a, b in zip(*counts, strict=True))
    usual.learn(known, torch.ones(1, 1, sum(counts[0])), [None, *(torch.ones(1, 1, n) for n in counts[0][1:])])
    start = torch.zeros(1, 1, sum(counts[1]))
    torch.testing.assert_close(usual.begin(other, start), start)
    found = usual.begin(known, torch.zeros(1, 1, sum(counts[0])))
    assert found[0, 0].tolist() == [0.0] * counts[0][0] + [1.0] * sum(counts[0][1:])


def test_curves_keep_their_own_start() -> None:
    """Their variables say where faces touch, from both sides."""
    net = networks.mixed(9, (2, 4, 4, 2), (RELU, Sigmoid()))
    sweep, usual = prepared(net), UsualSlopes()
    sizes = [neurons.count for neurons in sweep.neurons]
    usual.learn(sweep, torch.ones(1, 1, sum(sizes)), [torch.ones(1, 1, n) for n in sizes])
    found = usual.begin(sweep, torch.zeros(1, 1, sum(sizes))).split(sizes, dim=-1)
    curved = [group.function is not RELU for group in net.groups]
    assert any(curved)
    assert not all(curved)
    for part, curve in zip(found, curved, strict=True):
        assert (part == (0.0 if curve else 1.0)).all()


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_the_start_is_that_of_objectives_before_and_gives_valid_bounds(family: str) -> None:
    net = networks.FAMILIES[family](5)
    lower, upper = networks.box(net, 5, 1.0)
    region, points = root(net, lower, upper), networks.points(lower, upper, 300, 5)
    solver = AlphaCrown(Ascent(0, Steps(0.1, 0.1)))
    learner = AlphaCrown(Ascent(30, Steps(0.3, 0.02))).learning()
    task = Task(Sweep.prepare(net, region, len(net.layers)), random_rows(net, 7, 6))
    learner.begin(task, Until())
    assert learner.usual is not None
    begun = AlphaCrown(solver.ascent, usual=learner.usual).init(task)
    cold = SlopeDual(task.sweep, task.objective)
    assert begun.point.shape == cold.start().shape
    lower_bounds = cold.evaluate(begun.point).lower
    values = value(net, task.objective, points)
    assert bool((values >= lower_bounds).all())


@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
def test_few_iterations_from_the_usual_slopes_are_worth_more(family: str) -> None:
    """Widths of hidden neurons, over some networks; each pass learns anew."""
    cold = warm = 0.0
    inner = Certified(AlphaCrown(Ascent(2, Steps(0.2, 0.1))), memory_bytes=1)  # one neuron after the other
    for seed in range(6):
        net = networks.dense(seed, (4, 12, 12, 12, 2)) if family == "dense" else networks.FAMILIES[family](seed)
        lower, upper = networks.box(net, seed, 1.0)
        widths = []
        for bounder in (inner, inner.learning()):
            region = Sharpened(RootBounds(), bounder, memory_bytes=1).region(net, lower, upper, Until())
            sides = zip(region.l_hat, region.u_hat, strict=True)
            widths.append(sum(float((high - low).sum()) for low, high in sides))
        cold, warm = cold + widths[0], warm + widths[1]
    assert warm < cold


def test_who_learns_and_who_does_not() -> None:
    plain: list[Bounder] = [Linear(), BigM(FEW), ActiveSet(FEW, FEW, Additions(4, 1, 2))]
    for bounder in (*plain, *(Certified(one) for one in plain)):
        assert bounder.learning() == bounder
    learner = Certified(Propagated.in_rounds(FEW, FEW)).learning()
    assert isinstance(learner.inner, Propagated)
    assert learner.inner.usual is not None
    assert learner.learning().inner != learner.inner  # a pass of its own
    written = BoundsAsWritten(Certified(AlphaCrown(FEW))).learning().inner
    assert isinstance(written, Certified)
    assert isinstance(written.inner, AlphaCrown)
    assert written.inner.usual is not None


def test_rows_of_a_clause_teach_nothing() -> None:
    """Where regions leave an ascent, what they met last is no longer known."""
    net = networks.dense(3)
    task = Task(prepared(net), Objective(len(net.layers), torch.eye(2, dtype=torch.float64).unsqueeze(0)))
    learner = AlphaCrown(FEW).learning()
    learner.begin(task, Until(threshold=-1e3))
    assert learner.usual is not None
    assert not learner.usual._seen
    learner.begin(task, Until())
    assert learner.usual._seen


# ---------------------------------------------------------------- cuts


def test_cuts_are_looked_for_wherever_nobody_has_seen_that_they_are_useless() -> None:
    usual = UsualSlopes()
    assert usual.cuts(1) == frozenset()
    assert usual.cuts(5) == {0, 1, 2, 3}
    usual.learn_cuts(4, frozenset({0, 1, 2}), frozenset({0, 2}))
    assert usual.cuts(4) == {0, 1, 2}  # objectives of one layer have cuts at the same groups
    assert usual.cuts(6) == {0, 2, 3, 4}
    usual.learn_cuts(5, frozenset({0, 2, 3}), frozenset({0, 1, 2, 3}))  # what was useless once stays so
    assert usual.cuts(6) == {0, 2, 3, 4}
    assert [layer for layer in range(8) if usual.knows_cuts(layer)] == [4, 5]


def test_behind_a_useless_last_group_no_later_one_is_tried() -> None:
    usual = UsualSlopes()
    usual.learn_cuts(3, frozenset({0, 1}), frozenset({0}))
    assert usual.cuts(3) == {0, 1}
    assert usual.cuts(6) == {0}
    usual.learn_cuts(6, frozenset({0}), frozenset({0}))
    assert usual.cuts(8) == {0}


def learner() -> tuple[Propagated, UsualSlopes]:
    solver = Propagated.in_rounds(FEW, FEW, averaged=2).learning()
    assert solver.usual is not None
    return solver, solver.usual


def deep(rows: int = 3, seed: int = 0) -> Task:
    net = networks.dense(7, (4, 8, 8, 8, 2))
    return Task(prepared(net), random_rows(net, seed, rows))


def of_clause(task: Task) -> Task:
    """The same objectives as rows of a clause."""
    objective = task.objective
    assert objective.inputs is not None
    assert objective.constant is not None
    present = torch.ones(1, objective.count, dtype=torch.bool)
    rows = Conjunction(objective.coefficients, objective.inputs, -objective.constant, present)
    return Task.of_rows(task.sweep, rows)


def test_each_layer_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solver, usual = learner()
    useful = [frozenset({0, 2}), frozenset({0})]
    monkeypatch.setattr(Propagated, "_useful", lambda *_: useful.pop(0))
    first = variables_of(solver.begin(deep(), Until()))
    assert first.masks.groups == {0, 1, 2}
    assert usual.knows_cuts(4)
    for seed in (1, 2):
        again = variables_of(solver.begin(deep(seed=seed), Until()))
        assert again.masks.groups == usual.cuts(4) == {0, 1, 2}
    assert usual.cuts(5) == {0, 2, 3}
    assert len(useful) == 1
    values = value(deep().sweep.net, deep().objective, networks.points(*box(), 300, 3))
    assert bool((values >= variables_of(solver.begin(deep(), Until())).lower(deep())).all())


def box() -> tuple[torch.Tensor, torch.Tensor]:
    region = deep().sweep.region
    return region.lower, region.upper


def test_useless_groups_of_one_layer_take_no_cuts_before_the_next() -> None:
    solver, usual = learner()
    task = deep()
    usual.learn_cuts(3, frozenset({0, 1}), frozenset({1}))
    found = variables_of(solver.begin(task, Until()))
    assert found.masks.groups == {1, 2}
    assert found.point.shape[-1] == found.variables(task)
    assert usual.knows_cuts(4)


def test_clauses_neither_ask_nor_tell_where_cuts_are_useless() -> None:
    """Their cuts are found on the whole boxes, and dropped there."""
    solver, usual = learner()
    usual.learn_cuts(2, frozenset({0, 1}), frozenset())
    found = variables_of(solver.begin(of_clause(deep(1)), Until()))
    assert found.masks.groups == {0, 1, 2}
    assert not usual.knows_cuts(4)


def test_who_has_found_no_cuts_calls_none_useless() -> None:
    solver, usual = learner()
    solver.begin(deep(), Until(clock=Clock.begin(0.0)))
    assert usual.cuts(4) == {0, 1, 2}


# ---------------------------------------------------------------- masks


def test_masks_are_worth_learning_from_a_seventh_on() -> None:
    usual = UsualSlopes()
    assert usual.masks_pay is None
    for learned, given, pays in [(1.16, 1.0, True), (1.14, 1.0, False), (0.0, 0.0, True), (float("nan"), 1.0, False)]:
        usual.learn_masks(learned, given)
        assert usual.masks_pay is pays


def of_masks(extra: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Propagated, UsualSlopes]:
    """A solver that may learn masks if that gains so much more."""
    monkeypatch.setattr("verifier.bounding.solvers.usual.EXTRA", extra)
    solver = Propagated.in_rounds(FEW, FEW, averaged=2).learned().learning()
    assert solver.usual is not None
    return solver, solver.usual


@pytest.mark.parametrize("pays", [True, False])
def test_the_first_objectives_try_both_kinds_of_masks_and_the_others_take_the_better(
    pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver, usual = of_masks(-1.0 if pays else 1e9, monkeypatch)
    found = solver.begin(deep(), Until())
    assert usual.masks_pay is pays
    assert bool(variables_of(found).masks.learned) is pays
    alone = replace(solver, learns=pays, usual=None).begin(deep(), Until())
    assert torch.equal(found.lower, alone.lower)
    assert torch.equal(variables_of(found).point, variables_of(alone).point)
    ascents = []
    climb = Propagated.climb
    monkeypatch.setattr(Propagated, "climb", lambda self, *a, **kw: ascents.append(self) or climb(self, *a, **kw))
    again = variables_of(solver.begin(deep(seed=1), Until()))
    assert bool(again.masks.learned) is pays
    assert [one.learns for one in ascents] == [pays, pays]  # without cuts, then with them


def test_learned_masks_are_told_by_what_they_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    solver, _ = of_masks(0.15, monkeypatch)
    told: list[tuple[float, float]] = []
    monkeypatch.setattr(UsualSlopes, "learn_masks", lambda self, *gains: told.append(gains))
    solver.begin(deep(), Until())
    bare = replace(solver, usual=None)
    scouted = bare.climb(deep(), bare.init(deep()), FEW, Until()).lower
    both = [replace(bare, learns=learns).begin(deep(), Until()).lower for learns in (True, False)]
    assert told == [tuple(float((lower - scouted).sum()) for lower in both)]


def test_clauses_neither_ask_nor_tell_whether_masks_are_worth_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    solver, usual = of_masks(1e9, monkeypatch)
    task = of_clause(deep(1))
    assert variables_of(solver.begin(task, Until())).masks.learned
    assert usual.masks_pay is None
    usual.masks_pay = False
    assert variables_of(solver.begin(task, Until())).masks.learned


def test_where_time_is_up_nobody_knows_which_masks_are_better(monkeypatch: pytest.MonkeyPatch) -> None:
    solver, usual = of_masks(1e9, monkeypatch)
    clock = Clock.begin(60.0)
    solve, late = Propagated.solve, Until(clock=clock)

    def slow(self: Propagated, *args: object) -> object:
        found = solve(self, *args)  # type: ignore[arg-type]
        monkeypatch.setattr(Until, "expired", lambda self: True)
        return found

    monkeypatch.setattr(Propagated, "solve", slow)
    assert variables_of(solver.begin(deep(), late)).masks.learned
    assert usual.masks_pay is None


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("certified", [False, True])
@pytest.mark.parametrize("extra", [None, -1.0, 1e9])
def test_parts_of_an_objective_learn_and_are_put_together(
    seed: int, certified: bool, extra: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for one row at a time: what the first part learns about cuts must not change the form of the others."""
    net = networks.dense(seed, (4, 8, 8, 8, 8, 2))
    region, rows = root(net, *networks.box(net, seed, 1.0)), random_rows(net, seed, 6)
    solver = replace(Propagated.in_rounds(FEW, FEW, averaged=5), memory_bytes=1)
    if extra is not None:
        monkeypatch.setattr("verifier.bounding.solvers.usual.EXTRA", extra)
        solver = solver.learned()
    bounder = (Certified(solver) if certified else solver).learning()
    assert bounder.bound(net, region, rows, Until()).lower.shape == (1, 6)
