"""Searched in float32, proved in float64: validity, closeness, exact arithmetic, parts, deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.core.state import cat
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Form
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.relaxation.interval import Interval
from verifier.bounding.solvers.active_set import ActiveSet, Additions, OraclePoint
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.face_dual import FaceSolver
from verifier.bounding.solvers.multipliers import MultiplierVariables
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.bounding.solvers.solver import Certified, Task
from verifier.clock import Clock
from verifier.network.network import Affine, Network
from verifier.operators import Dense

SHORT = Ascent(12, Steps(0.05, 0.01))
SOLVERS: dict[str, Bounder] = {
    "alpha_crown": AlphaCrown(SHORT),
    "big_m": BigM(SHORT),
    "active_set": ActiveSet(SHORT, SHORT, Additions(5, 2, 3)),
    "active_set_shared": ActiveSet(SHORT, SHORT, Additions(5, 1, 3), masks=Form.SHARED, point=OraclePoint.AVERAGE),
}


def instance(family: str, seed: int, count: int = 2) -> tuple[Network, Region, Objective]:
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 0.6, count)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, 3, net.n_out, generator=generator, dtype=torch.float64)
    return net, RootBounds().region(net, lower, upper, Until()), Objective(len(net.layers), weights)


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", SOLVERS)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=2)
def test_the_proof_is_valid_and_says_what_the_search_found(family: str, solver: str, seed: int) -> None:
    net, region, objective = instance(family, seed, count=1)
    proved = Certified(SOLVERS[solver]).bound(net, region, objective, Until())
    assert proved.lower.dtype is torch.float64
    program = (CutLP(rounds=12) if "active" in solver else PlanetLP()).bound(net, region, objective, Until()).lower
    # A finite number of rounds leaves a little of A.
    assert bool((proved.lower <= program + (2e-3 if "active" in solver else 1e-9)).all())
    single = net.to(dtype=torch.float32), region.to(torch.float32), objective.to(torch.float32)
    quick = SOLVERS[solver].bound(*single, Until())
    torch.testing.assert_close(proved.lower, quick.lower.double(), rtol=1e-4, atol=1e-4)
    x = networks.points(region.lower, region.upper, 200, seed)
    assert bool((net.forward(x) @ objective.coefficients[0].T >= proved.lower).all())


@pytest.mark.parametrize("solver", SOLVERS)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=6)
def test_rounding_is_covered_when_terms_cancel(solver: str, seed: int) -> None:
    """Forty passing neurons whose huge contributions cancel, and one small kink: rounding exceeds its relaxation."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(41, 6, generator=generator, dtype=torch.float64) * 1e7
    first[40] = torch.tensor([1.0, 0, 0, 0, 0, 0])
    last = torch.randn(1, 41, generator=generator, dtype=torch.float64) * 1e7
    last[0, 40] = 1.0 if seed % 2 else -1.0
    shift = torch.full((41,), 1e10, dtype=torch.float64)
    lower, upper = networks.box(Network((6,), (), networks.affine("", {0: Dense(first)}, generator)), seed, 0.5)
    shift[40] = -(lower[0, 0] + upper[0, 0]) / 2
    bias = -(last[:, :40] @ shift[:40])
    net = Network(
        (6,),
        (Affine("first", (41,), ((0, Dense(first)),), shift, torch.zeros_like(shift)),),
        Affine("out", (1,), ((1, Dense(last)),), bias, torch.zeros_like(bias)),
    )
    region = RootBounds().region(net, lower, upper, Until())
    assert region.ambiguous(1).nonzero().tolist() == [[0, 40]]
    row = Objective(2, torch.ones(1, 1, 1, dtype=torch.float64))
    found = Certified(SOLVERS[solver]).bound(net, region, row, Until()).lower.item()
    exact = _exact_minimum(net, lower[0], upper[0])
    assert Fraction(found) <= exact
    assert found >= float(exact) - 1e6  # of terms around 1e18


def _exact_minimum(net: Network, lower: torch.Tensor, upper: torch.Tensor) -> Fraction:
    """In rationals, if only the last neuron has a kink and reads only the first input."""

    def rationals(values: torch.Tensor) -> list[Fraction]:
        return [Fraction(v) for v in values.tolist()]

    (_, first), (_, last) = net.groups[0].terms[0], net.output.terms[0]
    assert isinstance(first, Dense)
    assert isinstance(last, Dense)
    weights, shift = rationals(last.weight[0]), rationals(net.groups[0].bias)
    rows = [rationals(row) for row in first.weight]
    low, high = rationals(lower), rationals(upper)
    total = Fraction(net.output.bias.item()) + sum(w * s for w, s in zip(weights[:-1], shift[:-1], strict=True))
    slopes = [sum(w * row[j] for w, row in zip(weights[:-1], rows[:-1], strict=True)) for j in range(len(low))]
    for j in range(1, len(low)):
        total += min(slopes[j] * low[j], slopes[j] * high[j])
    kink = -shift[-1] / rows[-1][0]
    return total + min(
        slopes[0] * x + weights[-1] * max(rows[-1][0] * x + shift[-1], Fraction(0)) for x in (low[0], high[0], kink)
    )


@dataclass(frozen=True)
class Counting(Bounder):
    """Notes the precision of every call and passes it on."""

    inner: Bounder
    calls: list[torch.dtype] = field(default_factory=list)

    @property
    def proves(self) -> bool:
        return self.inner.proves

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        self.calls.append(region.lower.dtype)
        return self.inner.bound(net, region, objective, until)


def test_only_a_bounder_with_proofs_runs_in_single_precision_and_each_runs_once() -> None:
    net, region, objective = instance("dense", 1)
    start = ActiveSet(Ascent(0, SHORT.steps), SHORT, Additions(most=0))
    for inner, dtype in (
        (AlphaCrown(SHORT), torch.float32),
        (BigM(SHORT), torch.float32),
        (start, torch.float32),
        (SaddlePoint(5, initial=start), torch.float32),
        (Linear(), torch.float64),
        (Interval(), torch.float64),
    ):
        counting = Counting(inner)
        found = Certified(counting).bound(net, region, objective, Until())
        assert counting.calls == [dtype]
        assert found.lower.dtype is torch.float64
        assert Certified(inner).proves == (dtype is torch.float32)
        assert found.state is not None or not inner.proves
    assert Certified(BigM()).rigorous
    assert not Certified(PlanetLP()).rigorous


@pytest.mark.parametrize("solver", SOLVERS)
def test_parts_equal_the_whole(solver: str) -> None:
    net, region, objective = instance("residual", 5)
    whole = Certified(SOLVERS[solver]).bound(net, region, objective, Until())
    tight = Certified(replace(SOLVERS[solver], memory_bytes=1), memory_bytes=1)
    apart = tight.bound(net, region, objective, Until())
    torch.testing.assert_close(apart.lower, whole.lower, rtol=0, atol=1e-5)
    shapes = [None if found.x0 is None else found.x0.shape for found in (apart, whole)]
    assert shapes == [None if isinstance(SOLVERS[solver], FaceSolver) else (2, 3, net.n_in)] * 2


@pytest.mark.parametrize("masks", [Form.ROWS, Form.SHARED])
def test_proofs_with_different_numbers_of_masks_join(masks: Form) -> None:
    """A deadline may end one part of an objective before its masks were added, and another after."""
    net, region, objective = instance("conv", 3)
    proofs = []
    for most, at in ((2, 0), (0, 1), (3, 2)):
        solver = ActiveSet(SHORT, SHORT, Additions(2, 1, most), masks=masks)
        proofs.append(solver.bound(net, region, objective.part(at, at + 1), Until()).state)
    states = [state for state in proofs if isinstance(state, MultiplierVariables)]
    task = Task(Sweep.prepare(net, region, objective.layer), objective)
    apart = [state.lower(task.part(i, i + 1)) for i, state in enumerate(states)]
    torch.testing.assert_close(cat(states, dim=1).lower(task), torch.cat(apart, dim=1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_passed_deadline_leaves_the_bound_of_the_start(solver: str) -> None:
    net, region, objective = instance("dense", 2)
    late = Certified(SOLVERS[solver]).bound(net, region, objective, Until(Clock.begin(0.0)))
    crown = Linear().bound(net, region, objective, Until())
    torch.testing.assert_close(late.lower, crown.lower, rtol=1e-5, atol=1e-5)
