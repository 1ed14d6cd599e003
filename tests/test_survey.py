"""Incomplete verification: what each method says about whole instances."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import verifier
from verifier.bounding import BOUNDERS
from verifier.bounding.clauses import ClauseBounder
from verifier.bounding.core.base import Until, together
from verifier.bounding.hidden import RootBounds
from verifier.clock import Clock
from verifier.config import load_config
from verifier.errors import InputError
from verifier.loading import GivenArrays, GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request
from verifier.property.problem import canonicalise
from verifier.result.lower_bounds import PHASES, LowerBounds, RowBound
from verifier.result.status import Status
from verifier.result.verdict import Reason
from verifier.survey import Growth, Survey

QUICK = load_config(
    "auto",
    [
        f"bounding.{name}.iterations=8"
        for name in ("alpha_crown", "big_m", "bdd_plus", "active_set", "saddle_point", "as_sp")
    ]
    + [f"bounding.{name}.initial.iterations=8" for name in ("active_set", "saddle_point", "as_sp")]
    + ["bounding.propagated.initial.iterations=8", "bounding.propagated.iterations=8"]
    + ["bounding.as_sp.initial.initial.iterations=8", "bounding.as_sp.primal_start.iterations=8"],
)
ITERATIONS = {
    "alpha_crown": 8,
    "propagated": 16,
    "big_m": 8,
    "bdd_plus": 8,
    "active_set": 16,
    "saddle_point": 16,
    "as_sp": 24,
}


@pytest.fixture(scope="module")
def files(root: Path) -> Any:
    """Paths of a bundled network and property."""

    def paths(net: str, prop: str) -> tuple[str, str]:
        folder = root / "properties"
        return str(folder / "onnx" / f"{net}.onnx"), str(folder / "vnnlib" / f"{prop}.vnnlib")

    return paths


@pytest.mark.parametrize("method", BOUNDERS.names())
def test_every_method_is_valid_and_none_beats_what_happens(files: Any, method: str) -> None:
    """|x0| + |x1| - |x0 + x1| is at most 2, so 1.9 - y is at least -0.1, and is attained."""
    found = verifier.lower_bounds(*files("toy", "toy_peak"), method=method, config=QUICK, threads=1)
    assert found.method == method
    assert found.worst is not None
    assert found.worst <= -0.1 + 1e-9
    if method not in ("interval", "wong_kolter"):
        assert found.worst == pytest.approx(-0.1, abs=1e-6)
    assert found.iterations == ITERATIONS.get(method, 0)
    assert found.rigorous == (method not in ("lp", "lp_cuts"))
    assert found.reason is None
    assert found.closed == ()


@pytest.mark.parametrize("memory", [1, 2**29])
@pytest.mark.parametrize("batch", [1, 256])
def test_rows_boxes_and_parts_are_put_in_their_places(
    files: Any, memory: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against bounds of clauses, which take another way; with several boxes, and with several rows per clause."""
    for place in ("verifier.survey", "verifier.bounding.clauses", "verifier.bounding.solvers.crown"):
        monkeypatch.setattr(f"{place}.together", lambda bytes_each, *rest: together(bytes_each, memory))
    options = load_config("auto", [f"bounding.batch={batch}", "bounding.intermediate=interval"])
    for net, prop, sizes in (("digits_fc", "fc_boxes_1447", [1] * 18), ("cart_controller", "cart_cases", [2, 2])):
        network, text = files(net, prop)
        found = verifier.lower_bounds(network, text, method="crown", config=options)
        assert [(r.clause, r.row) for r in found.rows] == [(k, i) for k, size in enumerate(sizes) for i in range(size)]
        instance = GivenFiles(network, text).load()
        problem = canonicalise(instance.model.network(), instance.property)
        expected = ClauseBounder(RootBounds(None)).bound(problem, Until()).lower.tolist()
        for one, other in zip(found.best_per_clause, expected, strict=True):
            assert one is not None
            # That way takes the better of interval and crown.
            assert one <= other + 1e-9
            assert one == pytest.approx(other, abs=1e-9) or one < other
        better = verifier.lower_bounds(network, text, method="interval", config=options)
        both = [max(pair) for pair in zip(found.best_per_clause, better.best_per_clause, strict=True)]
        assert both == pytest.approx(expected, abs=1e-9)


def test_rows_of_one_clause_are_bounded_as_rows_of_several() -> None:
    module, box = nn.Sequential(linear(1.0), nn.ReLU(), linear(2.0)), {"lower": [-1.0], "upper": [3.0]}
    joint = verifier.lower_bounds(module, **box, unsafe=[([[1.0], [-1.0], [3.0]], [1.0, 2.0, -1.0])], method="lp")
    apart = verifier.lower_bounds(
        module, **box, unsafe=[([[1.0]], [1.0]), ([[-1.0]], [2.0]), ([[3.0]], [-1.0])], method="lp"
    )
    assert [row.lower for row in joint.rows] == pytest.approx([-1.0, -8.0, 1.0])
    assert [row.lower for row in joint.rows] == pytest.approx(apart.best_per_clause)
    assert joint.best_per_clause == pytest.approx([1.0])


def test_intermediate_bounds_and_iterations_matter(files: Any) -> None:
    instance = files("digits_fc", "fc_branch_1438")
    worst = {}
    for name in ("interval", "best"):
        options = load_config("auto", [f"bounding.intermediate={name}"])
        worst[name] = verifier.lower_bounds(*instance, method="crown", config=options).worst
    assert worst["interval"] < worst["best"] - 1
    few, many = (verifier.lower_bounds(*instance, method="alpha_crown", iterations=n) for n in (0, 30))
    assert few.iterations == 0
    assert few.worst == pytest.approx(worst["best"], abs=1e-5)
    assert many.worst is not None
    assert many.worst > worst["best"] + 0.01
    sharp = load_config("auto", ["bounding.sharpen=alpha_crown", "bounding.alpha_crown.iterations=20"])
    assert verifier.lower_bounds(*instance, method="crown", config=sharp).worst > worst["best"] + 0.01


def test_a_linear_program_closes_nothing(files: Any) -> None:
    instance = files("digits_fc", "fc_crown_1439")
    certified, program = (verifier.lower_bounds(*instance, method=m) for m in ("crown", "lp"))
    assert certified.closed == tuple(range(certified.clauses))
    assert program.positive == certified.closed
    assert program.closed == ()
    assert program.worst >= certified.worst - 1e-9


def survey(files: tuple[str, str], methods: list[str], timeout: float | None = None) -> Survey:
    status = Status(clock=Clock.begin(timeout), phases=PHASES)
    return Survey.of(Request(GivenFiles(*files), QUICK, Machine(threads=1)), methods, status, curves=True)


def test_curves_rise_to_the_bound(files: Any) -> None:
    methods = ["crown", "alpha_crown", "big_m", "active_set", "saddle_point", "lp"]
    notes = survey(files("digits_fc", "fc_branch_1438"), methods)
    for found in notes.run():
        assert found.curve
        times, values = zip(*found.curve, strict=True)
        assert list(times) == sorted(times)
        assert list(values[:-1]) == sorted(values[:-1])
        assert values[-1] == found.worst
        assert times[-1] == found.time["bounding"]
        assert times[0] >= 0
        assert (len(values) > 1) == (found.iterations > 0)
        assert values[-1] == pytest.approx(max(values), abs=1e-4)


def test_a_curve_counts_what_was_spent_on_earlier_rows(files: Any) -> None:
    notes = survey(files("digits_fc", "fc_branch_1438"), ["alpha_crown"])
    notes.tracks[0].seconds = 100.0
    (found,) = notes.run()
    assert found.curve
    assert all(100.0 < t < 200.0 for t, _ in found.curve)


def test_a_curve_starts_when_every_clause_has_a_bound() -> None:
    curve = Growth(torch.full((3,), -math.inf, dtype=torch.float64))
    first, second = torch.tensor([[0, 0, 1]]), torch.tensor([[2, -1, -1]])
    curve.settle(first, torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64), 1.0)
    assert curve.points == []
    for value in (0.5, 0.25, math.nan, 7.0):  # worse or no news is no news
        curve.hear(second, 0.0, torch.tensor([[value, -9.0, -9.0]]))
    curve.settle(second, torch.tensor([[6.0, -9.0, -9.0]], dtype=torch.float64), 9.0)
    assert [value for _, value in curve.points] == [0.5, 2.0, 2.0]
    assert curve.points[-1][0] == 9.0


def test_what_was_not_reached_in_time_has_no_bound(files: Any) -> None:
    found = verifier.lower_bounds(*files("digits_fc", "fc_branch_1438"), method="crown", timeout=0.0)
    assert found.reason is Reason.TIMEOUT
    assert found.clauses == 9
    assert found.best_per_clause == (None,) * 9
    assert found.worst is None
    assert found.closed == ()
    data = json.loads(found.as_json())
    assert data["rows"][3] == {"clause": 3, "row": 0, "lower": None}
    assert (data["reason"], data["lower_bound"]) == ("timeout", None)


def test_a_method_that_was_done_in_time_has_no_reason(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = survey(files("digits_fc", "fc_branch_1438"), ["crown", "big_m", "lp"], timeout=1000.0)
    take = type(notes.tracks[0]).take

    def slow(track: Any, problem: Any, region: Any, part: Any, until: Until) -> None:
        if track.method == "big_m":
            notes.status.clock = Clock.begin(0.0)
            until = Until(notes.status.clock)
        take(track, problem, region, part, until)

    monkeypatch.setattr("verifier.survey.Track.take", slow)
    monkeypatch.setattr("verifier.survey.Until.expired", lambda until: notes.status.clock.expired())
    first, second, third = notes.run()
    assert first.reason is None
    assert second.reason is Reason.TIMEOUT
    assert second.worst == pytest.approx(first.worst, abs=1e-4)  # the start: CROWN's bound
    assert (third.reason, third.best_per_clause) == (Reason.TIMEOUT, (None,) * 9)


def test_results_can_be_drawn_up_at_any_time(files: Any) -> None:
    notes = survey(files("toy", "toy_peak"), ["crown", "lp"])
    early = notes.results(Reason.INTERRUPTED)
    assert [r.method for r in early] == ["crown", "lp"]
    assert all(r.reason is Reason.INTERRUPTED and not r.rows and r.clauses == 0 for r in early)
    assert json.loads(early[0].as_json())["best_per_clause"] == []


def test_memory_that_runs_out_is_an_answer(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*args: Any) -> None:
        torch.empty(2**60)

    monkeypatch.setattr("verifier.survey.Track.take", greedy)
    found = verifier.lower_bounds(*files("toy", "toy_peak"), method="crown")
    assert (found.reason, found.best_per_clause) == (Reason.MEMORY, (None,))


def test_other_errors_are_not_hidden(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("verifier.survey.Track.take", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        verifier.lower_bounds(*files("toy", "toy_peak"), method="crown")


def linear(weight: float) -> nn.Linear:
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(weight)
    return module


@pytest.mark.parametrize("method", BOUNDERS.names())
def test_modules_without_kinks_are_bounded_exactly(method: str) -> None:
    """y = 2 x over [1, 3]: without any ReLU, and through one that passes."""
    for module in (linear(2.0), nn.Sequential(linear(1.0), nn.ReLU(), linear(2.0))):
        found = verifier.lower_bounds(
            module, lower=[1.0], upper=[3.0], unsafe=[([[1.0]], [1.0]), ([[1.0]], [5.0])], method=method, config=QUICK
        )
        assert found.best_per_clause == pytest.approx([1.0, -3.0], abs=1e-6)
        assert found.closed == ((0,) if found.rigorous else ())
        assert found.setting.network is None


def test_a_property_without_clauses() -> None:
    """As of a file all of whose boxes are empty."""
    config, status = load_config("auto"), Status(phases=PHASES)
    request = Request(GivenArrays(linear(2.0), [-1.0], [1.0]), config)
    (nothing,) = Survey.of(request, ["crown"], status).run()
    assert (nothing.clauses, nothing.worst, nothing.rows, nothing.reason) == (0, None, (), None)


def test_arguments_that_make_no_sense(files: Any) -> None:
    instance = files("toy", "toy_peak")
    with pytest.raises(InputError, match="wong_kolter"):
        verifier.lower_bounds(*instance, method="planet")
    with pytest.raises(InputError, match="iterations"):
        verifier.lower_bounds(*instance, method="crown", iterations=3)
    for wrong in (
        {"method": None},
        {"method": ["crown"]},
        {"iterations": -1},
        {"iterations": "3"},
        {"iterations": 1.5},
    ):
        with pytest.raises(InputError):
            verifier.lower_bounds(*instance, **wrong)


def test_of_several_rows_the_best_counts_and_zero_proves_nothing() -> None:
    rows = [(0, 0, -1.0), (0, 1, 2.0), (1, 0, 0.0), (2, 0, None), (2, 1, -3.0), (3, 0, None)]
    found = LowerBounds("crown", tuple(RowBound(*row) for row in rows), clauses=5)
    assert found.best_per_clause == (2.0, 0.0, -3.0, None, None)  # a clause without rows is never closed
    assert found.closed == (0,)
    assert found.worst is None
    assert LowerBounds("crown", found.rows[:3], clauses=2).worst == 0.0


def test_the_json_form(files: Any) -> None:
    data = json.loads(verifier.lower_bounds(*files("digits_fc", "fc_branch_1438"), method="crown", seed=4).as_json())
    assert list(data)[:4] == ["method", "iterations", "rows", "best_per_clause"]
    assert data["best_per_clause"] == [row["lower"] for row in data["rows"]]
    assert data["lower_bound"] == min(data["best_per_clause"])
    assert set(data["time"]) == {"total", "load", "intermediate", "bounding"}
    assert data["time"]["total"] >= data["time"]["load"] > 0
    assert (data["seed"], data["timeout"], data["curve"]) == (4, None, None)
    assert data["config"]["bounding"]["big_m"]["iterations"] == 850
    assert len(data["network_sha256"]) == len(data["property_sha256"]) == 64
    assert "torch" in data["versions"]
