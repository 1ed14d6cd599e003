"""Descents, and the search as a whole: what it returns is true, and what it must find it finds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from fractions import Fraction

import networks
import numpy as np
import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.clock import Clock
from verifier.falsify.base import Falsifier, FirstOf
from verifier.falsify.pgd import PGD, AdamSteps, Descent, SignSteps, quick, thorough
from verifier.falsify.target import Target
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample

SIGNED = PGD(Descent(SignSteps(), 30), samples=16, restarts=8)
ADAM = PGD(Descent(AdamSteps(), 30), samples=16, restarts=8)
LARGE = PGD(Descent(SignSteps(), 40), samples=1024, restarts=64)
BOTH = pytest.mark.parametrize("falsifier", [SIGNED, ADAM], ids=["signed", "adam"])
NO_LIMIT = Clock.begin()


@dataclass
class Passes:
    """Every forward pass: when it began and at how many points; on a clock on which nothing else takes time."""

    seconds: float
    now: float = 1000.0
    began: list[float] = field(default_factory=list)
    points: list[int] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def one(self, points: int) -> None:
        self.began.append(self.now)
        self.points.append(points)
        self.now += self.seconds


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    made, forward, slope = Passes(0.05), Network.forward, Target.slope

    def counted_forward(net: Network, x: torch.Tensor) -> torch.Tensor:
        made.one(len(x))
        return forward(net, x)

    def counted_slope(target: Target, x: torch.Tensor, clause: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made.one(len(x))
        return slope(target, x, clause)

    monkeypatch.setattr(Network, "forward", counted_forward)
    monkeypatch.setattr(Target, "slope", counted_slope)
    monkeypatch.setattr("verifier.clock.time", made)
    return made


def search(falsifier: Falsifier, instance: Problem, shift: float = 0.0) -> Counterexample | None:
    return instances.search(falsifier, instance, instances.Float32Model(instance.network, shift), NO_LIMIT)


def improved(falsifier: Falsifier, instance: Problem, x: torch.Tensor, clause: torch.Tensor) -> Counterexample | None:
    aim = instances.target(instance)
    return falsifier.improve(aim, x.to(aim.dtype), clause, NO_LIMIT) or aim.reserve.found()


def test_step_sizes_shrink_from_the_first_to_the_last() -> None:
    descent = Descent(steps=5, first=0.2, last=0.002)
    sizes = [descent.size(step) for step in range(5)]
    assert sizes[0] == pytest.approx(0.2)
    assert sizes[4] == pytest.approx(0.002)
    ratios = [after / before for before, after in itertools.pairwise(sizes)]
    assert ratios == pytest.approx([0.1**0.5] * 4)
    assert Descent(steps=1, first=0.3).size(0) == pytest.approx(0.3)


@pytest.mark.parametrize("rule", [SignSteps(), AdamSteps()])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_first_direction_is_the_sign_whatever_the_scale(rule: SignSteps | AdamSteps, scale: float) -> None:
    direction, _ = rule.direction(scale * torch.tensor([[3.0, -0.01, 0.0]]), None)
    torch.testing.assert_close(direction, torch.tensor([[-1.0, 1.0, 0.0]]), rtol=1e-4, atol=1e-4)


def test_adam_slows_down_where_the_sign_alternates() -> None:
    memory, direction = None, torch.zeros(1, 2)
    for step in range(20):
        direction, memory = AdamSteps().direction(torch.tensor([[1.0, (-1.0) ** step]]), memory)
    assert direction[0, 0] == pytest.approx(-1.0, abs=1e-3)
    assert abs(direction[0, 1]) < 0.2


@BOTH
def test_a_corner_is_reached(falsifier: PGD) -> None:
    """Only the corner itself is a witness, and its decimals are no floats."""
    lower, upper = ["-0.1", "0.1"], ["0.7", "0.3"]
    box = instances.boxes([lower], [upper])
    corner = Fraction(float(box.upper_in[0, 0])) - Fraction(float(box.lower_in[0, 1]))
    instance = instances.problem(instances.identity(2), box, [(0, [instances.row({0: -1, 1: 1}, -corner)])])
    found = search(falsifier, instance)
    assert found is not None
    instances.check(instance, found, lower, upper)


@BOTH
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_conjunction_that_holds_on_the_border_only(falsifier: PGD, n: int) -> None:
    """All distances to the nearer end of [0, 1] are zero at the corners and nowhere else."""
    instance = instances.problem(
        instances.tent(n),
        instances.boxes([[0] * n], [[1] * n]),
        [(0, [instances.row({i: 1}, 0) for i in range(n)] + [instances.row({}, -1, {0: -1})])],  # and x_0 >= 1
    )
    found = search(falsifier, instance)
    assert found is not None
    assert found.x[0] == 1
    assert set(found.x.tolist()) <= {0.0, 1.0}
    instances.check(instance, found, [0] * n, [1] * n)


@BOTH
def test_a_conjunction_is_attacked_jointly(falsifier: PGD) -> None:
    """Each of the four rows alone is easy; together they leave a square of one per cent of the width."""
    rows = [
        instances.row({0: 1}, "0.72"),
        instances.row({0: -1}, "-0.7"),
        instances.row({1: 1}, "-0.3"),
        instances.row({1: -1}, "0.32"),
    ]
    instance = instances.problem(instances.identity(2), instances.boxes([[-1, -1]], [[1, 1]]), [(0, rows)])
    found = search(falsifier, instance)
    assert found is not None
    instances.check(instance, found, [-1, -1], [1, 1])


@BOTH
def test_linear_input_rows_take_part(falsifier: PGD) -> None:
    """y = x; y_0 + y_1 >= 1.9 needs the upper corner, the input row x_0 <= x_1 - 0.05 pulls away from it."""
    rows = [instances.row({0: -1, 1: -1}, "-1.9"), instances.row({}, "-0.05", {0: 1, 1: -1})]
    instance = instances.problem(instances.identity(2), instances.boxes([[0, 0]], [[1, 1]]), [(0, rows)])
    found = search(falsifier, instance)
    assert found is not None
    instances.check(instance, found, [0, 0], [1, 1])


@BOTH
def test_a_box_of_one_point(falsifier: PGD) -> None:
    box = instances.boxes([["0.5", "0.25"]], [["0.5", "0.25"]])
    instance = instances.problem(instances.identity(2), box, [(0, [instances.row({0: 1, 1: 1}, "0.75")])])
    found = search(falsifier, instance)
    assert found is not None
    assert found.x.tolist() == [0.5, 0.25]
    strict = instances.problem(instances.identity(2), box, [(0, [instances.row({0: 1, 1: 1}, "0.75", strict=True)])])
    assert search(falsifier, strict) is None


def test_a_box_without_any_float32_value() -> None:
    """0.1 as a point: the nearest float32 stands in for it, and the witness says so."""
    box = instances.boxes([["0.1", "0"]], [["0.1", "1"]])
    instance = instances.problem(instances.identity(2), box, [(0, [instances.row({1: -1}, "-0.9")])])
    found = search(SIGNED, instance)
    assert found is not None
    assert not found.exact
    assert found.x[0] == np.float32(0.1)
    assert 0.9 <= found.x[1] <= 1


def test_a_clause_without_rows_is_met_by_any_point_of_its_box() -> None:
    instance = instances.problem(instances.identity(1), instances.boxes([["0.1"]], [["0.3"]]), [(0, [])])
    found = search(SIGNED, instance)
    assert found is not None
    instances.check(instance, found, ["0.1"], ["0.3"])


def test_the_minimum_of_a_strict_row_is_no_witness() -> None:
    box = instances.boxes([[0]], [[1]])
    for strict, expected in ((False, True), (True, False)):
        instance = instances.problem(instances.identity(1), box, [(0, [instances.row({0: 1}, 0, strict=strict)])])
        assert (search(SIGNED, instance) is not None) == expected


def least(instance: Problem, count: int = 4000) -> float:
    """The least y_0 among random points of the first box."""
    lower, upper = torch.from_numpy(instance.property.boxes.lower), torch.from_numpy(instance.property.boxes.upper)
    return instance.network.forward(networks.points(lower, upper, count, 0)[:, 0])[:, 0].min().item()


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("falsifier", [LARGE, replace(LARGE, descent=ADAM.descent)], ids=["signed", "adam"])
@pytest.mark.parametrize("seed", range(6))
def test_as_good_as_thousands_of_samples(family: str, falsifier: PGD, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    lower, upper = (side[0].tolist() for side in networks.box(net, seed))
    box = instances.boxes([lower], [upper])
    bare = instances.problem(net, box, [(0, [])])
    instance = instances.problem(net, box, [(0, [instances.row({0: 1}, least(bare) + 1e-4)])])
    found = search(falsifier, instance)
    assert found is not None
    instances.check(instance, found, lower, upper)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=4, deadline=None)
def test_no_witness_where_none_can_be(family: str, seed: int) -> None:
    """The bound lies below the interval image, so the clause is empty for sure."""
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed)
    values = [(lower[0], upper[0])]
    for layer in net.layers:
        centre = layer.forward([(low + high) / 2 for low, high in values])
        radius = sum(term.magnitude((values[j][1] - values[j][0]) / 2) for j, term in layer.terms)
        values.append((centre - radius, centre + radius))
        if layer is not net.output:
            values[-1] = (values[-1][0].clamp(min=0), values[-1][1].clamp(min=0))
    bound = values[-1][0][0].item() - 1e-3
    box = instances.boxes(lower.tolist(), upper.tolist())
    assert search(FirstOf((SIGNED, ADAM)), instances.problem(net, box, [(0, [instances.row({0: 1}, bound)])])) is None


def test_only_what_the_original_network_confirms_is_returned() -> None:
    """The float32 copy sees witnesses everywhere; the model, 10 higher, has none."""
    box = instances.boxes([[0]], [[1]])
    instance = instances.problem(instances.identity(1), box, [(0, [instances.row({0: 1}, 5)])])
    assert search(SIGNED, instance) is not None
    assert search(SIGNED, instance, shift=10.0) is None


def test_a_margin_just_above_zero_is_still_replayed() -> None:
    """The minimum is one unit of float32 above the bound, but the model answers two units less."""
    unit = 2.0**-23
    instance = instances.problem(
        instances.identity(1), instances.boxes([[1 + unit]], [[2]]), [(0, [instances.row({0: 1}, 1)])]
    )
    assert search(SIGNED, instance) is None
    assert search(SIGNED, instance, shift=-2 * unit) is not None


@BOTH
def test_the_same_seed_finds_the_same_witness(falsifier: PGD) -> None:
    net = networks.dense(5, (6, 20, 20, 2))
    lower, upper = networks.box(net, 5)
    box = instances.boxes(lower.tolist(), upper.tolist())
    bound = least(instances.problem(net, box, [(0, [])]), 200)
    instance = instances.problem(net, box, [(0, [instances.row({0: 1}, bound)])])
    first, second = search(falsifier, instance), search(falsifier, instance)
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.x, second.x)
    others = [search(replace(falsifier, seed=seed), instance) for seed in range(1, 6)]
    assert any(other is not None and (other.x != first.x).any() for other in others)


def test_the_right_one_of_thousands_of_clauses(passes: Passes) -> None:
    """Each clause has a box of its own; only one can be met, and only near one of its corners.  They go together."""
    count, chosen = 4000, 2321
    lower = [[k, 0] for k in range(count)]
    upper = [[k + 1, 1] for k in range(count)]
    clauses = [
        (k, [instances.row({0: 1, 1: 1}, Fraction(k) + (Fraction(1, 100) if k == chosen else -1))])
        for k in range(count)
    ]
    instance = instances.problem(instances.identity(2), instances.boxes(lower, upper), clauses)
    found = search(quick(), instance)
    assert len(passes.began) < count / 10
    assert found is not None
    assert found.clause == chosen
    instances.check(instance, found, lower[chosen], upper[chosen])


@pytest.mark.parametrize("falsifier", [quick(), thorough()], ids=["quick", "thorough"])
def test_presets_find_a_narrow_conjunction(falsifier: Falsifier) -> None:
    rows = [instances.row({0: 1}, "0.50001"), instances.row({0: -1}, "-0.5"), instances.row({1: -1}, "-0.9999")]
    instance = instances.problem(instances.identity(2), instances.boxes([[0, 0]], [[1, 1]]), [(0, rows)])
    found = search(falsifier, instance)
    assert found is not None
    instances.check(instance, found, [0, 0], [1, 1])


def hopeless() -> Problem:
    """No witness, but a network that keeps the search busy."""
    net = networks.dense(0, (50, 400, 400, 2))
    return instances.problem(net, instances.boxes([[-1] * 50], [[1] * 50]), [(0, [instances.row({0: 1}, -1000)])])


def test_the_deadline_is_kept(passes: Passes) -> None:
    """A look at the clock follows at least every second pass."""
    busy = FirstOf((SIGNED, ADAM) * 1000)
    instance = hopeless()
    model = instances.Float32Model(instance.network)
    clock = Clock.begin(3.0)
    assert instances.search(busy, instance, model, clock) is None
    assert clock.deadline - 0.1 < passes.began[-1] < clock.deadline + 0.1


def test_the_deadline_is_kept_inside_of_a_descent(passes: Passes) -> None:
    target = instances.target(hopeless())
    clock = Clock.begin(0.2)
    witness, _ = Descent(steps=10_000).run(target, torch.zeros(1, 50), torch.tensor([0]), clock)
    assert witness is None
    assert passes.began[0] < passes.began[-1] < clock.deadline


def test_effort_goes_to_the_clauses_that_came_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clause 2 has the largest margin at the centre, but the lowest after a descent."""
    rows = [{0: -1}, {0: -1}, {0: -10}, {0: -1}]
    clauses = [(0, [instances.row(y, c)]) for y, c in zip(rows, [-2, -3, "-10.5", -4], strict=True)]
    target = instances.target(instances.problem(instances.identity(1), instances.boxes([[0]], [[1]]), clauses))
    waves = []
    run = Descent.run

    def spy(descent: Descent, target: Target, x: torch.Tensor, clause: torch.Tensor, until: Clock) -> object:
        waves.append(clause.unique().tolist())
        return run(descent, target, x, clause, until)

    monkeypatch.setattr(Descent, "run", spy)
    assert SIGNED.attack(target, NO_LIMIT) is None
    assert waves == [[0, 1, 2, 3], [2]]


def test_nothing_is_done_after_the_deadline() -> None:
    box = instances.boxes([[0]], [[1]])
    instance = instances.problem(instances.identity(1), box, [(0, [instances.row({0: 1}, 5)])])
    model = instances.Float32Model(instance.network)
    late = Clock.begin(0.0)
    x, clause = torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)
    aim = Target.of(instance, model)
    assert quick().attack(aim, late) is None
    assert quick().improve(aim, x, clause, late) is None
    assert model.asked == 0


def test_quick_is_quick(passes: Passes) -> None:
    """The passes at about 9,000 points take 0.3 seconds on an idle core."""
    assert search(quick(), hopeless()) is None
    assert sum(passes.points) < 30_000


@BOTH
def test_offered_points_are_refined(falsifier: PGD) -> None:
    """Points outside of the box are clipped into it; each descends for its own clause."""
    box = instances.boxes([[0, 0], [2, 2]], [[1, 1], [3, 3]])
    clauses = [(0, [instances.row({0: 1}, -1)]), (1, [instances.row({0: 1, 1: -1}, "-0.999")])]
    instance = instances.problem(instances.identity(2), box, clauses)
    x = torch.tensor([[9.0, -9.0], [2.9, 2.5]], dtype=torch.float64)
    found = improved(falsifier, instance, x, torch.tensor([0, 1]))
    assert found is not None
    assert found.clause == 1
    instances.check(instance, found, [2, 2], [3, 3])
    assert improved(falsifier, instance, x[:1], torch.tensor([0])) is None
    assert improved(falsifier, instance, x[:0], torch.tensor([0])[:0]) is None


def test_offered_points_are_clipped_before_they_are_judged() -> None:
    """Without any step only the clipped point itself can be the witness."""
    box = instances.boxes([[0]], [[1]])
    rows = [instances.row({0: 1}, 1), instances.row({0: -1}, -1)]  # y = 1
    instance = instances.problem(instances.identity(1), box, [(0, rows)])
    still = PGD(Descent(steps=0))
    assert improved(still, instance, torch.tensor([[9.0]]), torch.tensor([0])) is not None
    assert improved(still, instance, torch.tensor([[-9.0]]), torch.tensor([0])) is None


def test_the_second_falsifier_runs_if_the_first_finds_nothing() -> None:
    """One sample and no step find nothing here; the descent does."""
    blind = PGD(Descent(steps=1, first=1e-6, last=1e-6), samples=1, restarts=1)
    box = instances.boxes([[0, 0]], [[1, 1]])
    rows = [instances.row({0: 1}, "0.61"), instances.row({0: -1}, "-0.6"), instances.row({1: -1}, "-0.9")]
    instance = instances.problem(instances.identity(2), box, [(0, rows)])
    assert search(blind, instance) is None
    assert search(FirstOf((blind, SIGNED)), instance) is not None
    assert search(FirstOf((SIGNED, blind)), instance) is not None
    assert search(FirstOf(()), instance) is None
