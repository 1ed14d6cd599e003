"""A first look by affine forms: below what happens, the same for any grouping, and exact where nothing bends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import networks
import numpy as np
import pytest
import torch
from bounding.test_clauses import margins, problem
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.clauses import ClauseBounder
from verifier.bounding.core.base import Until
from verifier.bounding.core.closing import closes
from verifier.bounding.forms import ClauseTable, FormBounder
from verifier.bounding.relaxation.form import AffineForm
from verifier.bounding.relaxation.least import least_rows
from verifier.bounding.relaxation.zonotope import propagate
from verifier.bounding.rows import Conjunction
from verifier.clock import Clock
from verifier.network.lowering.run import lower
from verifier.network.network import Network
from verifier.property.problem import Problem, canonicalise
from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows

MAKERS = [networks.dense, networks.conv, networks.residual]


def many(network: Network, inputs: bool = False, boxes: int = 21) -> Problem:
    return problem(network, 1, boxes, [1, 3, 2, 2, 1] * 7, inputs)


@pytest.mark.parametrize("make", [*MAKERS, networks.mixed])
@pytest.mark.parametrize("inputs", [False, True])
def test_bounds_are_below_what_happens(make: object, inputs: bool) -> None:
    instance = many(make(3), inputs)  # type: ignore[operator]
    found = FormBounder().bound(instance, Until())
    assert torch.isfinite(found.lower).any()
    for clause in range(len(instance.rows)):
        assert found.lower[clause] <= margins(instance, clause, 500).min()
    assert not found.points
    assert not found.regions


@pytest.mark.parametrize("make", MAKERS)
def test_groups_do_not_change_what_is_closed(make: object) -> None:
    """However many boxes are treated at once, and in whichever precision."""
    instance = many(make(3), inputs=True)  # type: ignore[operator]
    whole = FormBounder(first=64).bound(instance, Until()).lower
    for options in (FormBounder(first=1, most=1), FormBounder(memory_bytes=1), FormBounder(double=True)):
        torch.testing.assert_close(options.bound(instance, Until()).lower, whole, rtol=1e-3, atol=1e-3)


def test_a_linear_network_is_exact() -> None:
    net = networks.dense(0, (3, 4))
    instance = many(net, inputs=True)
    by_forms, by_sweeps = FormBounder().bound(instance, Until()), ClauseBounder().bound(instance, Until())
    torch.testing.assert_close(by_forms.lower, by_sweeps.lower, rtol=1e-5, atol=1e-5)


def test_rounding_is_subtracted() -> None:
    """A row that is zero everywhere: what is left is below zero, by no more than rounding explains."""
    low = torch.tensor([[0.1, -0.7], [1e6, 1e-6]], dtype=torch.float64)
    form = AffineForm.of_box(low, low + 0.3, torch.float64)
    A = torch.tensor([[[0.1, 0.3]], [[0.7, 1e5]]], dtype=torch.float64)
    rows = Conjunction(A, -A, torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.bool))
    found = least_rows(rows, (form, form), torch.arange(2))
    assert bool((found < 0).all())
    assert bool((found > -1e-13 * torch.tensor([[1.0], [1e7]])).all())


def test_what_is_not_finite_bounds_nothing() -> None:
    form = AffineForm.of_box(torch.tensor([[0.0]]).double(), torch.tensor([[1.0]]).double(), torch.float64)
    broken = replace(form, error=torch.full_like(form.error, torch.inf))
    rows = Conjunction(torch.ones(1, 1, 1).double(), None, torch.zeros(1, 1).double(), torch.ones(1, 1).bool())
    assert least_rows(rows, (form, broken), torch.tensor([0])).tolist() == [[-torch.inf]]


def test_a_deadline_leaves_the_rest_open() -> None:
    found = FormBounder(first=1, most=1).bound(many(networks.dense(3)), Until(Clock.begin(0.0)))
    assert not bool(torch.isfinite(found.lower).any())


def test_rows_without_a_loop_are_those_with_one() -> None:
    for inputs in (False, True):
        instance = many(networks.dense(1), inputs)
        for clauses in (list(range(len(instance.rows))), [4, 0, 2]):
            one, other = Conjunction.of(instance, [[k] for k in clauses]), Conjunction.of_each(instance, clauses)
            assert torch.equal(one.A, other.A)
            assert torch.equal(one.c, other.c)
            assert torch.equal(one.present, other.present)
            assert (one.B is None) == (other.B is None)
            assert one.B is None or torch.equal(one.B, other.B)  # type: ignore[arg-type]
    table = ClauseTable.of(instance)
    assert sorted(table.of_boxes(3, 5).tolist()) == sorted([*instance.clauses_of[3], *instance.clauses_of[4]])


@given(st.integers(0, 2**16))
@settings(max_examples=20)
def test_selected_boxes_keep_their_forms(seed: int) -> None:
    net = networks.mixed(seed % 50)
    low, high = networks.box(net, seed, 0.3, 4)
    whole, rows = propagate(net, low, high), torch.tensor([2, 0])
    some = whole.select(rows)
    assert torch.equal(some.output.spread, whole.output.spread[:, rows])
    assert torch.equal(some.ambiguous, whole.ambiguous[rows])
    for a, b in zip((*some.l_hat, *some.u_hat), (*whole.l_hat, *whole.u_hat), strict=True):
        assert torch.equal(a, b[rows])


def test_many_boxes_are_decided_on_either_side_of_the_margin() -> None:
    """The largest value of |x| on 40 intervals that cover [-1, 1] is 1."""
    module = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False), torch.nn.ReLU(), torch.nn.Linear(2, 1, bias=False))
    module[0].weight.data, module[2].weight.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0, 1.0]])
    instance = intervals(module.double(), Fraction(1))
    assert closes(FormBounder().bound(instance(Fraction(1, 1000)), Until()).lower).all()
    assert not closes(FormBounder().bound(instance(Fraction(-1, 1000)), Until()).lower).all()


def intervals(module: torch.nn.Module, largest: Fraction) -> Callable[[Fraction], Problem]:
    """Whether y can be `largest` plus a margin on one of 40 intervals."""
    net = lower(module.eval(), (1, 1), {})
    edges = np.linspace(-1, 1, 41)
    low, high = edges[:-1, None], edges[1:, None]

    def made(margin: Fraction) -> Problem:
        row = ExactRow(((0, Fraction(-1)),), (), -(largest + margin), strict=False)
        clauses = tuple(Clause(k, RoundedRows.of([row], 1, 1, (low[k], high[k]))) for k in range(40))
        return canonicalise(net, Property(1, 1, Boxes.enclosed((low, low), (high, high)), clauses))

    return made
