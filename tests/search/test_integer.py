"""Searches by mixed-integer programs: witnesses count, claims do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from falsify import instances
from search.cases import GAP, Late, ignore, random_case, unbounded

import verifier
from verifier.bounding.lp.integer import MixedInteger
from verifier.clock import Clock
from verifier.config import load_config
from verifier.property.problem import Problem
from verifier.result.verdict import Reason, Verdict
from verifier.search.domains import Outcome
from verifier.search.problem import ProblemSearch, Splitting

PROPERTIES = Path(__file__).parents[2] / "properties"


def decide(problem: Problem, rounds: int = 0, clock: Clock | None = None) -> Outcome:
    whole = ProblemSearch(splitting=Splitting.MIP, integer=MixedInteger(rounds))
    return whole.run(problem, unbounded(problem), instances.target(problem), clock or Clock.begin(60), ignore)


@pytest.mark.parametrize("family", ["dense", "residual"])
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_clause_that_is_unsafe_has_a_witness_and_others_a_claim(family: str, rounds: int) -> None:
    case = random_case(family, 1, (1, 2), mixed=True)
    safe = decide(case.problem([GAP, GAP]), rounds)
    assert (safe.witness, safe.reason, safe.claimed) == (None, Reason.CLAIMED, Verdict.UNSAT)
    assert safe.progress.counts.batches == 2
    for margins in ([GAP, -GAP], [-GAP, GAP]):
        assert decide(case.problem(margins), rounds).witness is not None


def test_a_point_that_the_network_does_not_confirm_is_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.search.offers.Offers.__call__", lambda *_: None)
    outcome = decide(random_case("dense", 1, (1,)).problem([-GAP]))
    assert (outcome.witness, outcome.reason, outcome.claimed) == (None, Reason.CLAIMED, Verdict.SAT)


def test_a_deadline_ends_it() -> None:
    outcome = decide(random_case("dense", 1, (1, 1)).problem([GAP, GAP]), clock=Late(1))
    assert (outcome.reason, outcome.claimed) == (Reason.TIMEOUT, None)


@pytest.mark.parametrize("preset", ["mip", "mip_cuts"])
def test_presets_claim_unsat_and_find_witnesses(preset: str) -> None:
    config = load_config(f"paper/{preset}", ["falsify.enabled=false"])
    net = PROPERTIES / "onnx" / "digits_fc.onnx"
    safe = verifier.verify(net, PROPERTIES / "vnnlib" / "fc_branch_1442.vnnlib", config=config, threads=1)
    assert safe.verdict is Verdict.UNKNOWN
    assert safe.statistics.claimed == "unsat"
    assert "HiGHS claims unsat" in (safe.message or "")
    unsafe = verifier.verify(net, PROPERTIES / "vnnlib" / "fc_sat_1443.vnnlib", config=config, threads=1)
    assert unsafe.verdict is Verdict.SAT
    assert unsafe.statistics.claimed is None
