"""Tiers of linear programs: tight in every domain, small trees, and a place above cheaper tiers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from search.cases import BIG_M, GAP, decide, domains_of, patterns, random_case, root_of, unsigned

import verifier
from verifier.bounding.core.base import Until
from verifier.config import load_config
from verifier.result.verdict import Verdict
from verifier.search import TIERS
from verifier.search.ladder import Ladder
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.space import Policy
from verifier.search.tiers import Climbed, Tier

PROPERTIES = Path(__file__).parents[2] / "properties"
PLANET, CUT = TIERS.build("planet_lp"), TIERS.build("cut_lp")


def some_domains(root: Root) -> Batch:
    """Every clause with all signs of three kinks, the others open."""
    batches = patterns(3)
    places = torch.linspace(0, root.kinks - 1, 3).long()
    signs = torch.zeros(root.clauses * len(batches), root.kinks, dtype=torch.int8)
    signs[:, places] = batches.repeat(root.clauses, 1)
    return domains_of(root, signs, torch.arange(root.clauses).repeat_interleave(len(batches)))


def climbed(tier: Tier, root: Root, batch: Batch) -> tuple[Climbed, torch.Tensor]:
    """Bounds of domains from those of the whole boxes, and what is proved of them."""
    climber = tier.climber(root)
    whole = climber.begin(Batch.whole(root), None, Until())
    found = climber.climb(batch, whole.variables[batch.clause], Until())
    return found, found.proof.lower(batch.task(torch.float64))[:, 0]


@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
@pytest.mark.parametrize("counts", [(1, 1), (3,)])
def test_in_every_domain_planet_is_above_big_m_and_cuts_above_planet(family: str, counts: tuple[int, ...]) -> None:
    root = unsigned(root_of(random_case(family, 2, counts, mixed=True).problem([GAP] * len(counts))))
    batch = some_domains(root)
    lower = [climbed(tier, root, batch)[1] for tier in (BIG_M, PLANET, CUT)]
    empty = (lower[1] > 0) & (lower[2] > 0)
    assert bool(((lower[1] >= lower[0] - 1e-6) | empty).all())
    assert bool(((lower[2] >= lower[1] - 1e-6) | empty).all())
    assert bool((lower[1] > lower[0] + 1e-4).any()), "Big-M was cut short: it is not at the optimum everywhere"


@pytest.mark.parametrize("tier", [PLANET, CUT], ids=["planet_lp", "cut_lp"])
def test_what_a_tier_says_is_what_its_proof_says(tier: Tier) -> None:
    root = unsigned(root_of(random_case("residual", 5, (2, 1), mixed=True).problem([GAP, GAP])))
    found, proved = climbed(tier, root, some_domains(root))
    torch.testing.assert_close(found.lower, proved.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tiers", [(PLANET,), (CUT,), (BIG_M, CUT), (PLANET, CUT)], ids=lambda t: t[-1].name)
@pytest.mark.parametrize(("margin", "unsafe"), [(GAP, False), (-GAP, True)])
def test_searches_decide_as_the_oracle_does(tiers: tuple[Tier, ...], margin: float, unsafe: bool) -> None:
    for seed in (1, 2):
        ratios = tuple(2.0 for _ in tiers[1:])
        policy = Policy(Ladder(tiers, ratios), batch=16, fill=2)
        outcome = decide(random_case("residual", seed, (2,), mixed=True).problem([margin]), policy)
        assert outcome.reason is None
        assert (outcome.witness is not None) is unsafe


def domains(preset: str) -> int:
    """How many there are in the tree of a bundled property."""
    config = load_config(preset, ["falsify.enabled=false"])
    names = PROPERTIES / "onnx" / "digits_fc.onnx", PROPERTIES / "vnnlib" / "fc_branch_1442.vnnlib"
    result = verifier.verify(*names, config=config, threads=1)
    assert result.verdict is Verdict.UNSAT
    assert result.statistics.leaves_lp == 0
    return result.statistics.domains


def test_trees_shrink_with_tighter_programs() -> None:
    big_m, planet, cut = (domains(f"paper/{name}") for name in ("big_m", "planet_lp", "cut_lp"))
    assert cut < planet <= big_m


@pytest.mark.parametrize("preset", ["planet_lp+cut_lp", "big_m+cut_lp"])
def test_hard_subtrees_go_up_to_programs(preset: str) -> None:
    assert domains(f"paper/{preset}") <= domains("paper/planet_lp")
