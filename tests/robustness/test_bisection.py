"""The radius between its two ends: exact values, and that neither end is ever wrong."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import verifier
from verifier.errors import SoundnessError
from verifier.pipeline import Pipeline
from verifier.result.verdict import Reason
from verifier.robustness.bisection import Bisection
from verifier.robustness.radius import Radius, Trial
from verifier.search.domains import Outcome, Progress

HALF = {"inf": 1, "2": 2, "1": np.inf}
"""The norm that weights have in the distance from a plane, by the norm of the ball."""


def linear(weight: list[list[float]], bias: list[float]) -> nn.Module:
    module = nn.Linear(len(weight[0]), len(weight))
    module.weight.data, module.bias.data = torch.tensor(weight), torch.tensor(bias)
    return module


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_the_distance_from_a_plane(norm: str) -> None:
    x = torch.tensor([0.5, -0.25, 0.125])
    module = linear([[1.0, 2.0, 0.0], [0.0, -1.0, 1.5], [-2.0, 0.5, 0.5]], [1.0, 0.0, 0.25])
    weight, y = module.weight.detach().numpy().astype(float), module(x).detach().numpy().astype(float)
    exact = min((y[0] - y[k]) / np.linalg.norm(weight[0] - weight[k], HALF[norm]) for k in (1, 2))
    found = verifier.radius(module, x, norm=norm, tolerance=1e-3, threads=1)
    assert found.label == 0
    assert found.certified is not None
    assert found.falsified is not None
    assert found.certified < exact <= found.falsified * (1 + 1e-6)
    assert found.falsified - found.certified <= 1e-3 * found.falsified
    assert found.reason is None
    assert found.norm == norm


def exact_radius(module: nn.Sequential, x: float, label: int) -> float:
    """Of a network of one input: the nearest root of a margin on the pieces between the breakpoints of its ReLUs."""
    w, b = (p.detach().numpy().astype(float).reshape(-1) for p in (module[0].weight, module[0].bias))
    W, c = (p.detach().numpy().astype(float) for p in (module[2].weight, module[2].bias))

    def margins(t: float) -> np.ndarray:
        y = W @ np.maximum(w * t + b, 0) + c
        return np.delete(y[label] - y, label)

    points = np.sort(np.concatenate([-b / w, [x - 1e3, x + 1e3]]))
    roots = []
    for low, high in pairwise(points):
        for one, other in zip(margins(low), margins(high), strict=True):
            if one != other and 0 <= (share := one / (one - other)) <= 1:
                roots.append(low + share * (high - low))
    return min((abs(root - x) for root in roots), default=np.inf)


@pytest.mark.parametrize("seed", range(8))
def test_the_radius_of_networks_of_one_input(seed: int) -> None:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(1, 12), nn.ReLU(), nn.Linear(12, 3))
    x = float(torch.rand(1))
    found = verifier.radius(module, [x], threads=1, max_eps=4, tolerance=0.02)
    exact = exact_radius(module, x, found.label)
    if exact > 4:
        assert (found.certified, found.falsified) == (4.0, None)
        return
    assert found.certified is not None
    assert found.falsified is not None
    assert found.certified < exact * (1 + 1e-6)
    assert found.falsified > exact * (1 - 1e-6)
    assert found.falsified - found.certified <= 0.02 * found.falsified


def classifier() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3))


@pytest.fixture
def module() -> nn.Module:
    return classifier()


X = [0.1, 0.2, 0.3, 0.4]


@pytest.fixture(scope="module")
def usual() -> Radius:
    """What several tests compare with."""
    return verifier.radius(classifier(), X, threads=1)


@pytest.mark.parametrize("options", [{}, {"norm": 2}, {"clip": (0, 1), "mean": 0.5, "std": 0.25}])
def test_both_ends_are_what_robust_says_about_them(module: nn.Module, options: dict[str, Any]) -> None:
    found = verifier.radius(module, X, **options, threads=1)
    assert found.certified is not None
    assert found.falsified is not None
    for eps, verdict in ((found.certified, verifier.Verdict.UNSAT), (found.falsified, verifier.Verdict.SAT)):
        asked = verifier.robust(module, np.array(X), eps, found.label, **options, threads=1)
        assert asked.verdict is verdict, eps


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_the_counterexample_lies_within_what_is_falsified_and_has_another_class(module: nn.Module, norm: str) -> None:
    found = verifier.radius(module, X, norm=norm, std=0.5, mean=[0.25], threads=1)
    point = found.counterexample
    assert point is not None
    assert found.falsified is not None
    moved = [abs(Fraction(v) / 2 + Fraction(1, 4) - Fraction(x)) for v, x in zip(point.x.tolist(), X, strict=True)]
    size = {"inf": max(moved), "1": sum(moved)}.get(norm)
    limit = Fraction(repr(found.falsified))
    assert (sum(m * m for m in moved) <= limit**2) if size is None else size <= limit
    y = module(torch.tensor(point.x)[None])[0]
    assert int(y.argmax()) == found.other != found.label


def test_units_before_normalisation(module: nn.Module, usual: Radius) -> None:
    scaled = verifier.radius(module, [4 * x + 1 for x in X], mean=1, std=4, threads=1)
    assert usual.certified is not None
    assert scaled.certified is not None
    assert scaled.certified == pytest.approx(4 * usual.certified, rel=0.02)
    assert scaled.falsified == pytest.approx(4 * (usual.falsified or 0), rel=0.02)


def test_an_input_that_has_another_class_has_no_radius(module: nn.Module, usual: Radius) -> None:
    own = usual.label
    found = verifier.radius(module, X, (own + 1) % 3, threads=1)
    assert found.certified is None
    assert found.falsified is not None
    assert found.falsified < 1e-6
    assert found.other == own


def test_nothing_beyond_the_largest_radius_is_looked_at(module: nn.Module, usual: Radius) -> None:
    assert usual.certified is not None
    found = verifier.radius(module, X, max_eps=usual.certified / 2, threads=1)
    assert (found.certified, found.falsified, found.reason) == (usual.certified / 2, None, None)
    assert all(trial.eps <= usual.certified / 2 for trial in found.trials)


def test_without_time_nothing_is_known(module: nn.Module) -> None:
    found = verifier.radius(module, X, timeout=0, threads=1)
    assert found.certified is None
    assert found.reason is Reason.TIMEOUT
    assert not found.answered or found.falsified is not None


def test_searches_that_never_end_leave_valid_ends(
    module: nn.Module, usual: Radius, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a search cannot decide is no end, and does not go on for ever where more time is of no use."""

    def helpless(*_: object) -> Outcome:
        return Outcome(None, Reason.NUMERICS, Progress())

    monkeypatch.setattr(Pipeline, "search", helpless)
    found = verifier.radius(module, X, threads=1)
    assert found.reason is Reason.NUMERICS
    assert usual.certified is not None
    assert usual.falsified is not None
    assert found.certified is not None
    assert found.falsified is not None
    assert found.certified < usual.falsified
    assert found.falsified > usual.certified
    assert {trial.by for trial in found.trials if trial.outcome == "certified"} == {"bounds"}
    assert found.falsified - found.certified > 0.01 * found.falsified


def test_a_proof_beyond_a_counterexample_is_no_answer(module: nn.Module) -> None:
    from verifier.config import load_config
    from verifier.loading import sampled
    from verifier.machine import Machine
    from verifier.pipeline import Request
    from verifier.robustness.neighbourhood import Neighbourhood
    from verifier.robustness.place import Place, Unstated
    from verifier.robustness.radius import Bracket

    request = Request(Unstated(None), load_config("auto"), Machine("cpu", 1))
    place = Place.of(sampled(module, (4,)), np.array(X).reshape(1, 4), None, Neighbourhood())
    bisection = Bisection(request, request.status(), place, known=Bracket(falsified=0.25))
    for eps in (Fraction(1, 4), Fraction(1, 2)):
        with pytest.raises(SoundnessError, match="is certified, but a counterexample lies within"):
            bisection._certify(eps, "search", 0.0)
    bisection._certify(Fraction(1, 8), "search", 0.0)
    assert bisection.known.certified == 0.125


def test_the_network_is_not_read_again_for_each_radius(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    from verifier.network.models.module import ModuleModel

    calls: list[int] = []
    usual = ModuleModel.network
    monkeypatch.setattr(ModuleModel, "network", lambda self, far=False: calls.append(1) or usual(self, far))
    found = verifier.radius(module, X, threads=1)
    assert len(found.trials) > 5
    assert len(calls) == 2  # for the first ball and, since that held no counterexample, for one of twice its radius


def test_what_is_known_can_be_drawn_up_at_any_time(module: nn.Module) -> None:
    """A listener that interrupts gets what was known by then, and both ends only ever close in."""
    seen: list[Trial] = []
    from verifier.config import load_config
    from verifier.loading import sampled
    from verifier.machine import Machine
    from verifier.pipeline import Request
    from verifier.robustness.neighbourhood import Neighbourhood
    from verifier.robustness.place import Place, Unstated

    request = Request(Unstated(None), load_config("auto"), Machine("cpu", 1))
    place = Place.of(sampled(module, (4,)), np.array(X).reshape(1, 4), None, Neighbourhood())

    def hear(trial: Trial) -> None:
        seen.append(trial)
        if len(seen) == 4:
            raise KeyboardInterrupt

    bisection = Bisection(request, request.status(), place, hear=hear)
    with pytest.raises(KeyboardInterrupt):
        bisection.run()
    found = bisection.result(Reason.INTERRUPTED)
    assert found.trials == tuple(seen)
    assert found.falsified == min(t.eps for t in seen if t.outcome == "falsified")
    assert found.reason is Reason.INTERRUPTED
    assert "interrupted after" in str(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0}, "tolerance is 0; it must be a number from 1e-09 to 1"),
        ({"max_eps": -1}, "max_eps is -1; it must be positive"),
        ({"norm": 3}, "norm is 3; there are 'inf', 2 and 1"),
        ({"label": 3}, "label 3 is not one of 3 classes, of which there must be two"),
        ({"clip": 1}, "clip is a pair of numbers, the range of valid inputs, not 1"),
        ({"std": 0}, "std must be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(module: nn.Module, options: dict[str, Any], message: str) -> None:
    with pytest.raises(verifier.errors.InputError) as caught:
        verifier.radius(module, X, **options)
    assert str(caught.value) == message
