"""Weights balance rows, and bounds of boxes are below the exact minimum."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from search.cases import begun, random_case

from verifier.bounding.core.base import Until
from verifier.bounding.relaxation.form import AffineForm
from verifier.bounding.relaxation.zonotope import propagate
from verifier.bounding.rows import Conjunction
from verifier.property.problem import Problem
from verifier.search.boxes.bounds import DOUBLE, SINGLE, BoxBounder, Care, Effort
from verifier.search.boxes.boxes import BoxDomains, Table, halved
from verifier.search.boxes.climb import best_weights
from verifier.search.boxes.space import InputSpace


def test_weights_balance_rows_that_exclude_each_other() -> None:
    """Rows x and 1 - x on [-1, 2]: no single one is positive, their mean is 1 / 2."""
    low, high = torch.tensor([[-1.0]], dtype=torch.float64), torch.tensor([[2.0]], dtype=torch.float64)
    form, first = AffineForm.of_box(low, high, torch.float64), torch.tensor([0])
    A = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    c = torch.tensor([[0.0, -1.0]], dtype=torch.float64)
    rows = Conjunction(A, None, c, torch.ones(1, 2, dtype=torch.bool))
    assert best_weights(rows, (form, form), first, 10)[0].tolist() == pytest.approx([0.5, 0.5], abs=1e-6)
    alone = best_weights(replace(rows, present=torch.tensor([[True, False]])), (form, form), first, 10)
    assert alone.tolist() == [[1.0, 0.0]]


def roots(problem: Problem) -> BoxDomains:
    def offer(x: torch.Tensor, clauses: torch.Tensor) -> None:
        return None

    return begun(InputSpace(problem, range(len(problem.rows)), offer, Until()))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("family", sorted(networks.FAMILIES))
@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_below_the_exact_minimum_and_a_batch_is_its_members(family: str, seed: int) -> None:
    case = random_case(family, seed, (1, 2), seed % 2 == 1)
    problem = case.problem([-0.05, -0.05])
    boxes = halved(roots(problem))
    bounder = BoxBounder(problem.network, problem.network.to(dtype=torch.float32), Table.of(problem, (0, 1)), Effort())
    together = bounder.bound(boxes)
    for clause in (0, 1):
        assert float(together.lower[:, clause].min()) <= -0.05 + 1e-9
    for d in range(2):
        alone = bounder.bound(boxes.select(torch.tensor([d])))
        torch.testing.assert_close(alone.lower[0], together.lower[d], rtol=1e-3, atol=1e-3)
    exact = bounder.bound(replace(boxes, tier=torch.full_like(boxes.tier, DOUBLE)))
    assert int(boxes.tier[0]) == SINGLE
    torch.testing.assert_close(exact.lower, together.lower, rtol=1e-2, atol=1e-2)


def test_evidence_gives_the_same_bounds_again() -> None:
    """Slopes, weights and bounds of neurons: one sweep over them is what closed the boxes."""
    problem = random_case("residual", 1, (1, 2)).problem([-0.05, -0.05])
    boxes = halved(roots(problem))
    table = Table.of(problem, (0, 1))
    single = problem.network.to(dtype=torch.float32)
    bounder = BoxBounder(problem.network, single, table, Effort(), Care(forms=False))
    found = bounder.bound(boxes)
    evidence = found.evidence
    pairs, clause = bounder._pairs(single, boxes, propagate(single, boxes.low, boxes.high, moving=table.moving))
    assert torch.equal(evidence.clause, table.number[boxes.root[evidence.box], clause])
    again = pairs.each(bounder._traced(pairs, evidence.variables).plane.lower)
    assert torch.equal(again, evidence.lower)
    assert torch.equal(again.amax(dim=1), found.lower[evidence.box, clause])
    assert torch.equal(evidence.l_hat[0], pairs.found.l_hat[0])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("family", sorted(networks.FAMILIES))
@pytest.mark.parametrize("seed", range(3))
def test_forms_close_some_clauses_and_sweeps_the_rest(family: str, seed: int) -> None:
    """With forms nothing is closed that exact minima do not allow, and nothing is lost that sweeps alone find."""
    case = random_case(family, seed, (1, 2), seed % 2 == 1)
    for shift in (-0.5, 0.02, 3.0):
        problem = case.problem([shift, -shift])
        boxes = halved(halved(roots(problem)))
        table, single = Table.of(problem, (0, 1)), problem.network.to(dtype=torch.float32)
        with_forms = BoxBounder(problem.network, single, table, Effort()).bound(boxes)
        alone = BoxBounder(problem.network, single, table, Effort(), Care(forms=False)).bound(boxes)
        assert bool((with_forms.closed | ~alone.closed).all())
        for clause, least in enumerate((shift, -shift)):
            if least < 0:  # some point of the whole box is unsafe
                assert not bool(with_forms.closed[:, clause].all())
        still = (boxes.pending & ~with_forms.closed).any(dim=1)
        assert torch.equal(with_forms.low[~with_forms.some | ~still], boxes.low[~with_forms.some | ~still])
