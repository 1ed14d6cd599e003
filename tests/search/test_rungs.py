"""The tier `bdd_plus` in the tree: it inherits, proves what it says, and decides as the others do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from search.cases import BIG_M, GAP, decide, domains_of, patterns, random_case, root_of, unsigned

import verifier
from verifier.bounding.core.ascent import Steps
from verifier.bounding.core.base import Until
from verifier.bounding.solvers.bdd_plus import BddPlus
from verifier.config import load_config
from verifier.result.verdict import Verdict
from verifier.search import TIERS
from verifier.search.ladder import Ladder
from verifier.search.rungs import multipliers
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.space import Policy
from verifier.search.tiers import Tier

PROPERTIES = Path(__file__).parents[2] / "properties"
LIGHT = multipliers("bdd_plus", BddPlus(10, weights=Steps(0.3, 5.0, linear=True)), 10, together=24)
"""With weights for networks this small."""
LONGER = multipliers("bdd_plus", BddPlus(30, weights=Steps(0.3, 10.0, linear=True)), 30, together=3)
STILL = multipliers("bdd_plus", BddPlus(0), 0)


def some_domains(root: Root) -> Batch:
    """Every clause with all signs of three kinks, the others open."""
    signs = torch.zeros(8 * root.clauses, root.kinks, dtype=torch.int8)
    signs[:, torch.linspace(0, root.kinks - 1, 3).long()] = patterns(3).repeat(root.clauses, 1)
    return domains_of(root, signs, torch.arange(root.clauses).repeat_interleave(8))


@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
@pytest.mark.parametrize("counts", [(1, 1), (3,)])
def test_domains_inherit_and_what_is_said_is_proved(family: str, counts: tuple[int, ...]) -> None:
    """Without iterations a child has what its parent's multipliers give it: no less than the parent."""
    root = unsigned(root_of(random_case(family, 2, counts, mixed=True).problem([GAP] * len(counts))))
    batch, climber = some_domains(root), LONGER.climber(root)
    whole = climber.begin(Batch.whole(root), None, Until())
    assert whole.variables.shape[1] == climber.width == root.net.neurons
    found = climber.climb(batch, whole.variables[batch.clause], Until())
    proved = found.proof.lower(batch.task(torch.float64))[:, 0]
    torch.testing.assert_close(found.lower, proved.float(), rtol=1e-4, atol=1e-4)
    still = STILL.climber(root)
    still.begin(Batch.whole(root), None, Until())
    start = still.climb(batch, whole.variables[batch.clause], Until())
    assert bool((start.lower >= whole.lower[batch.clause] - 1e-4).all())
    assert bool((found.lower >= start.lower - 1e-5).all())
    assert bool((found.lower > start.lower + 1e-3).any())


@pytest.mark.parametrize("tiers", [(LIGHT,), (LIGHT, BIG_M), (BIG_M, LIGHT)], ids=["alone", "below", "above"])
@pytest.mark.parametrize(("margin", "unsafe"), [(GAP, False), (-GAP, True)])
def test_searches_decide_as_the_oracle_does(tiers: tuple[Tier, ...], margin: float, unsafe: bool) -> None:
    policy = Policy(Ladder(tiers, tuple(1.01 for _ in tiers[1:])), batch=32, fill=2)
    outcome = decide(random_case("residual", 1, (2,), mixed=True).problem([margin]), policy)
    assert outcome.reason is None
    assert (outcome.witness is not None) is unsafe


def adopted(below: Tier, above: Tier) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bounds of whole boxes by a tier, by the one above from these multipliers, and by that one from zeros."""
    root = unsigned(root_of(random_case("residual", 3, (1, 1), mixed=True).problem([GAP, GAP])))
    whole = Batch.whole(root)
    lower, upper = below.climber(root), above.climber(root)
    found = lower.begin(whole, None, Until())
    upper.begin(whole, None, Until())
    row = upper.adopt(whole, found.variables, lower)
    assert row is not None
    assert row.shape[1] == upper.width
    again, anew = upper.climb(whole, row, Until()), upper.climb(whole, torch.zeros_like(row), Until())
    return found.lower, again.lower, anew.lower


def test_what_it_adopts_from_big_m_is_worth_what_it_was() -> None:
    found, again, _ = adopted(BIG_M, LIGHT)
    assert bool((again >= found - 1e-4).all())


def test_big_m_goes_on_from_where_it_was() -> None:
    _, again, anew = adopted(LIGHT, BIG_M)
    assert bool((again > anew).all())


def domains(preset: str) -> int:
    """How many there are in the tree of a bundled property."""
    config = load_config(preset, ["falsify.enabled=false"])
    names = PROPERTIES / "onnx" / "digits_fc.onnx", PROPERTIES / "vnnlib" / "fc_branch_1442.vnnlib"
    result = verifier.verify(*names, config=config, threads=1)
    assert result.verdict is Verdict.UNSAT
    return result.statistics.domains


def test_its_trees_are_about_those_of_big_m() -> None:
    """The relaxation is the same; what differs is how near a hundred iterations of either come."""
    bdd_plus, big_m, planet = (domains(f"paper/{name}") for name in ("bdd_plus", "big_m", "planet_lp"))
    assert planet <= bdd_plus
    assert bdd_plus <= 1.5 * big_m


def test_the_published_settings_of_trees_are_the_tiers_own() -> None:
    (tier,) = load_config("paper/bdd_plus").search.policy().ladder.tiers
    assert tier == TIERS.build("bdd_plus")
    assert tier.solver == BddPlus(100, 2, Steps(100.0, 100.0, linear=True), 0.0)
