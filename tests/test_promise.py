"""What `sat` and `unsat` promise where floats and real arithmetic differ: every way to decide says the same.

requires of each verdict: `unsat` and a sharp `sat` are the truth in real arithmetic; any other `sat` is what the
network's own run says; no two configurations contradict each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from rounding import Case, between, decimal, identity, random_case, thresholds

import verifier
from verifier import pipeline
from verifier.clock import Clock
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.network.models.onnx import load_onnx
from verifier.property.vnnlib import load_property
from verifier.result.result import Result, Setting
from verifier.result.status import Status
from verifier.result.verdict import Reason, Verdict
from verifier.search.domains import Outcome, Progress
from verifier.search.problem import ProblemSearch

Way = tuple[int, bool, str, int]
"""Processes, whether there is a falsifier, what is split, the seed."""

WAYS: tuple[Way, ...] = tuple(itertools.product((1, 2), (True, False), ("relus", "inputs"), (0,)))
FEW: tuple[Way, ...] = ((1, True, "auto", 0), (2, True, "auto", 1), (1, False, "relus", 0), (2, False, "inputs", 0))


def decided(files: tuple[Path, Path], way: Way, timeout: float = 60.0) -> Result:
    threads, attacks, splitting, seed = way
    config = load_config("auto", [f"falsify.enabled={str(attacks).lower()}", f"search.splitting={splitting}"])
    return verifier.verify(*files, config=config, threads=threads, seed=seed, timeout=timeout)


def judged(case: Case, threshold: Fraction, files: tuple[Path, Path], result: Result) -> None:
    """What a single result has to keep."""
    truth = case.least() <= threshold
    if result.verdict is Verdict.UNSAT:
        assert not truth
        assert result.arithmetic == "real"
    if result.counterexample is None:
        return
    x, y = result.counterexample.x, result.counterexample.y
    assert x.dtype == case.dtype
    np.testing.assert_array_equal(load_onnx(files[0]).run(x), y)
    assert Fraction(float(y[0])) <= threshold
    values = [Fraction(v) for v in x.tolist()]
    assert result.counterexample.exact == all(low <= v <= high for v, (low, high) in zip(values, case.box, strict=True))
    assert [float(word) for word in _printed(result)] == [*x.tolist(), *y.tolist()]
    if result.arithmetic == "real":
        inside = [min(max(v, low), high) for v, (low, high) in zip(values, case.box, strict=True)]
        assert case.outputs(inside)[0] <= threshold


def _printed(result: Result) -> list[str]:
    assert result.witness is not None
    return [line.strip(" ()").split()[1] for line in result.witness.splitlines()]


def agreed(case: Case, threshold: Fraction, folder: Path, ways: Sequence[Way], timeout: float = 60.0) -> set[Verdict]:
    """The definite verdicts of all ways."""
    files, found = case.write(folder, threshold), set()
    for way in ways:
        result = decided(files, way, timeout)
        judged(case, threshold, files, result)
        found.add(result.verdict)
    return {verdict for verdict in found if verdict.decided}


TENTH = decimal(-Fraction(float(np.float32(0.1))))

# y <= threshold is unsafe; the box is that of x = -y.
HOLLOW = {
    "a tenth, clearly safe": (identity(np.float32, ("0.1", "0.1000000001")), "-0.1000000005", Verdict.UNSAT),
    "a tenth, at the float32": (identity(np.float32, ("0.1", "0.1")), TENTH, Verdict.UNSAT),
    "a tenth, clearly unsafe": (identity(np.float32, ("0.1", "0.1")), "-0.09", Verdict.SAT),
    "a tenth in float64": (identity(np.float64, ("0.1", "0.1")), "-0.1000000001", Verdict.UNSAT),
    "a tenth in float64, unsafe": (identity(np.float64, ("0.1", "0.1")), "-0.0999999999", Verdict.SAT),
    "beyond the integers": (identity(np.float32, ("16777217", "16777217")), "-16777218", Verdict.UNSAT),
    "beyond the integers, unsafe": (identity(np.float32, ("16777217", "16777217")), "-16777216", Verdict.SAT),
    "underflow": (identity(np.float32, ("-2e-60", "-1e-60")), "1e-61", Verdict.UNSAT),
    "underflow, unsafe": (identity(np.float32, ("-2e-60", "-1e-60")), "1e-59", Verdict.SAT),
    "one hollow among others": (identity(np.float32, ("0.1", "0.1"), ("-1", "1")), "-0.1000000001", Verdict.UNSAT),
    "one other hollow": (identity(np.float32, ("-1", "1"), ("0.1", "0.1")), "-0.99", Verdict.SAT),
}  # fmt: skip


@pytest.mark.parametrize("name", HOLLOW)
def test_boxes_without_floats(name: str, tmp_path: Path) -> None:
    case, threshold, expected = HOLLOW[name]
    assert (case.least() <= Fraction(threshold)) is (expected is Verdict.SAT)
    assert agreed(case, Fraction(threshold), tmp_path, WAYS) == {expected}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_boxes_between_two_neighbouring_floats(dtype: type[np.floating], tmp_path: Path) -> None:
    low, high = between(dtype, 0.3)
    case = identity(dtype, (decimal(low), decimal(high)))
    away = Fraction(1, 10**7)  # more than rounding errors
    assert agreed(case, -high - away, tmp_path, WAYS) == {Verdict.UNSAT}
    assert agreed(case, -low + away, tmp_path, WAYS) == {Verdict.SAT}


def test_float64_networks_get_float64_witnesses(tmp_path: Path) -> None:
    low, high = between(np.float32, 0.3)  # no float32 lies inside, but millions of float64
    case = identity(np.float64, (decimal(low), decimal(high)))
    middle = -(low + high) / 2
    for way in FEW:
        result = decided(case.write(tmp_path, middle), way)
        judged(case, middle, case.write(tmp_path, middle), result)
        assert (result.verdict, result.arithmetic) == (Verdict.SAT, "real")
        assert result.counterexample is not None
        assert result.counterexample.exact


def lossy(scale: float) -> Case:
    """y = (x + big) - big over a point whose last digits the float32 run loses."""
    big = 4096.0
    up = np.ones((1, 1), np.float32), np.array([big], np.float32)
    down = np.array([[scale]], np.float32), np.array([-big * scale], np.float32)
    return Case((up, down), ((Fraction(1, 2**16),) * 2,))


def test_a_run_that_rounds_into_the_unsafe_set_does_not_outweigh_a_proof(tmp_path: Path) -> None:
    case = lossy(1.0)  # real: 2**-16; run: 0
    assert case.runs([2.0**-16]) == 0.0
    files = case.write(tmp_path, Fraction(1, 2**17))
    for way in WAYS:
        result = decided(files, way)
        assert (result.verdict, result.arithmetic) == (Verdict.UNSAT, "real")
        assert result.counterexample is None
    alone = decided(files, WAYS[0])
    assert alone.rounding_witness is not None
    assert alone.rounding_witness.y.tolist() == [0.0]
    assert alone.note is not None
    assert alone.as_dict()["rounding_witness"] == {"x": [2.0**-16], "y": [0.0]}


def test_a_run_that_rounds_out_of_the_unsafe_set_proves_nothing(tmp_path: Path) -> None:
    case = lossy(-1.0)  # real: -2**-16; run: 0
    assert agreed(case, -Fraction(1, 2**17), tmp_path, WAYS, timeout=5.0) == set()


# In real arithmetic 0.1 is just not unsafe, but by less than float64 can tell; the float32 next to it is.
DOUBTFUL = (identity(np.float32, ("0.1", "0.1")), -Fraction("0.1") - Fraction(1, 10**30))


@pytest.mark.parametrize("way", WAYS)
def test_a_witness_of_the_run_is_the_answer_where_nothing_is_proved(way: Way, tmp_path: Path) -> None:
    case, threshold = DOUBTFUL
    files = case.write(tmp_path, threshold)
    result = decided(files, way, timeout=600.0)  # and the limit is not waited for
    assert (result.verdict, result.reason, result.arithmetic) == (Verdict.SAT, None, "run")
    assert result.counterexample is not None
    assert not result.counterexample.exact
    assert result.time["total"] < 120
    judged(case, threshold, files, result)
    data = result.as_dict()
    assert (data["arithmetic"], data["rounding_witness"], data["counterexample"]["exact"]) == ("run", None, False)


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.LIMIT, Reason.NUMERICS])
def test_what_the_attack_beside_the_bounds_kept_is_not_lost(
    reason: Reason, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, threshold = DOUBTFUL
    monkeypatch.setattr(ProblemSearch, "run", lambda *_: Outcome(None, reason, Progress()))
    monkeypatch.setattr(pipeline.Pipeline, "refine", lambda *_: None)
    for threads in (1, 2):
        result = decided(case.write(tmp_path, threshold), (threads, True, "auto", 0))
        assert (result.verdict, result.arithmetic) == (Verdict.SAT, "run")


def test_lack_of_memory_does_not_lose_it_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Outcome:
        raise MemoryError

    case, threshold = DOUBTFUL
    monkeypatch.setattr(ProblemSearch, "run", full)
    result = decided(case.write(tmp_path, threshold), (2, True, "auto", 0))
    assert (result.verdict, result.arithmetic) == (Verdict.SAT, "run")


def attacked(case: Case, threshold: Fraction, folder: Path) -> tuple[Status, Result]:
    files, status = case.write(folder, threshold), Status(Setting(), Clock.begin(60))
    return status, pipeline.attack(pipeline.Request(GivenFiles(*map(str, files)), load_config("auto")), status)


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> tuple[Status, Result]:
    """An attack that goes on to its end, since nothing that it finds is sharp."""
    return attacked(*DOUBTFUL, tmp_path_factory.mktemp("doubtful"))


def test_an_attack_returns_what_the_run_says_and_prefers_what_is_sharp(
    doubtful: tuple[Status, Result], tmp_path: Path
) -> None:
    sharp = attacked(DOUBTFUL[0], Fraction("-0.09"), tmp_path)
    for (_, result), expected in ((doubtful, "run"), (sharp, "real")):
        assert (result.verdict, result.arithmetic) == (Verdict.SAT, expected)


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.TIMEOUT])
def test_whoever_answers_early_knows_it(verdict: Verdict, doubtful: tuple[Status, Result]) -> None:
    status, _ = doubtful
    early = status.conclude(verdict, Reason.INTERRUPTED, "the run was interrupted")
    assert (early.verdict, early.reason, early.message, early.arithmetic) == (Verdict.SAT, None, None, "run")
    proved = status.conclude(Verdict.UNSAT)
    assert proved.rounding_witness is not None
    assert status.fail(RuntimeError("broken")).verdict is Verdict.ERROR


def test_a_point_on_the_border_is_sharp(tmp_path: Path) -> None:
    case = Case(lossy(1.0).layers, ((Fraction(-1), Fraction(1)),))
    for way in FEW:
        result = decided(case.write(tmp_path, Fraction(-1)), way)
        assert (result.verdict, result.arithmetic) == (Verdict.SAT, "real")


@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_no_two_ways_contradict_each_other(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    for threshold in thresholds(case, np.random.default_rng(seed)):
        assert len(agreed(case, threshold, tmp_path, FEW, timeout=1.0)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_no_two_of_all_ways_contradict_each_other(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    for threshold in thresholds(case, np.random.default_rng(seed)):
        assert len(agreed(case, threshold, tmp_path, WAYS, timeout=5.0)) <= 1


def test_the_same_from_python(tmp_path: Path) -> None:
    import torch
    from torch import nn

    linear = nn.Linear(1, 1, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.fill_(1.0)
        linear.bias.fill_(0.0)
    tenth = 0.1  # a float64, and no float32
    for threads in (1, 2):
        box = {"lower": [tenth], "upper": [tenth], "threads": threads}
        safe = verifier.verify(linear, **box, unsafe=[([[-1.0]], [-float(np.nextafter(tenth, 1)) - 1e-12])])
        unsafe = verifier.verify(linear, **box, unsafe=[([[-1.0]], [-tenth])])
        assert safe.verdict is Verdict.UNSAT
        assert (unsafe.verdict, unsafe.arithmetic) == (Verdict.SAT, "real")
        assert unsafe.counterexample is not None
        assert unsafe.counterexample.exact
        assert unsafe.counterexample.x.tolist() == [tenth]


def test_properties_of_the_generator(tmp_path: Path) -> None:
    """The exact minimum is attained, and no sample is below it."""
    for seed in range(20):
        case = random_case(seed)
        least = case.least()
        for t in range(11):
            x = [low + Fraction(t, 10) * (high - low) for low, high in case.box]
            assert case.outputs(x)[0] >= least
        boxes = load_property(case.write(tmp_path, Fraction(0))[1]).boxes
        assert boxes.lower.shape == (1, len(case.box))
