"""A look before the climb: cuts go on where they save more of the tree than they cost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from search.cases import STILL, decide, hard, nobody, root_of
from search.events import Kept
from search.test_ladder import Rung, RungClimber, Seconds, rung, schedule

from verifier.bounding.core.base import Until
from verifier.search import ladder
from verifier.search import rungs as tiers_by_name
from verifier.search.domains import Counts
from verifier.search.journal import Journal, Looked
from verifier.search.ladder import LATER, Ladder, Schedule
from verifier.search.look import LEVELS, Look
from verifier.search.loop import BranchAndBound, Limits, run
from verifier.search.signs.root import Batch
from verifier.search.signs.space import Policy, SignSpace
from verifier.search.tiers import Climbed

NAMES = ("propagated", "alpha_crown")


def look(dear: list[float], cheap: list[float], ratio: float) -> Look | None:
    return Look.at(NAMES, (torch.tensor(dear), torch.tensor(cheap)), (ratio, 1.0))


def three(bounds: tuple[float, float, float], costs: tuple[float, float, float]) -> Look:
    found = Look.at(("learned", "kept", "plain"), [torch.tensor([bound]) for bound in bounds], costs)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("part", "ratio", "cuts"),
    [(0.25, 4.0, True), (0.19, 4.0, False), (0.11, 2.0, True), (0.09, 2.0, False), (0.0, 1.0, True), (0.0, 1.1, False)],
)
def test_a_part_of_ten_levels_is_weighed_against_the_cost(part: float, ratio: float, cuts: bool) -> None:
    """Bounds that are better by a quarter save a quarter of ten levels: 2.5 doublings, worth 4 times the cost."""
    found = look([-3.0 * (1 - part), -1.0 * (1 - part)], [-3.0, -1.0], ratio)
    assert found is not None
    dear, cheap = found.tried
    assert found.levels(cheap) - found.levels(dear) == pytest.approx(LEVELS * part, abs=1e-5)
    assert found.work(dear) - found.levels(dear) == pytest.approx(math.log2(ratio))
    assert found.chosen == NAMES[0 if cuts else 1]
    assert found.clear == (2 * LEVELS * part < math.log2(ratio))


@pytest.mark.parametrize(
    ("bounds", "costs", "chosen"),
    [
        ((-0.70, -0.80, -1.0), (4.0, 2.0, 1.0), "learned"),  # one level more for each doubling of the cost, or more
        ((-0.795, -0.80, -1.0), (4.0, 2.0, 1.0), "kept"),  # what is learned counts ten times
        ((-0.785, -0.80, -1.0), (4.0, 2.0, 1.0), "learned"),
        ((-0.85, -0.80, -1.0), (4.0, 2.0, 1.0), "kept"),
        ((-0.91, -0.92, -1.0), (4.0, 2.0, 1.0), "plain"),
        ((-0.70, -0.95, -1.0), (4.0, 2.0, 1.0), "learned"),
        ((-1.0, -0.95, -0.9), (4.0, 2.0, 1.0), "plain"),
    ],
)
def test_of_three_ways_the_one_with_the_least_work_goes_on(
    bounds: tuple[float, float, float], costs: tuple[float, float, float], chosen: str
) -> None:
    found = three(bounds, costs)
    assert found.chosen == chosen
    assert {one.tier: found.work(one) for one in found.tried}[chosen] == min(map(found.work, found.tried))


def test_cuts_lose_clearly_only_if_all_kinds_of_them_do() -> None:
    assert three((-0.98, -0.99, -1.0), (4.0, 2.0, 1.0)).clear
    assert not three((-0.85, -0.99, -1.0), (4.0, 2.0, 1.0)).clear
    assert not three((-0.98, -0.94, -1.0), (4.0, 2.0, 1.0)).clear


def test_only_domains_that_all_leave_open_count() -> None:
    found = look([-1.0, 5.0, -1.0], [-2.0, -9.0, 5.0], 2.0)
    assert found is not None
    assert found.domains == 1
    assert [one.bound for one in found.tried] == [-1.0, -2.0]
    assert look([1.0, -1.0], [-1.0, 1.0], 2.0) is None
    assert Look.at(NAMES, (-torch.ones(2), -torch.ones(2)), (0.0, 1.0)) is None


@pytest.mark.parametrize(("dear", "cheap"), [(-3.0, -2.0), (-math.inf, -math.inf), (-1.0, -math.inf)])
def test_bounds_that_are_worse_or_infinite_save_nothing(dear: float, cheap: float) -> None:
    found = look([dear], [cheap], 2.0)
    assert found is not None
    assert all(0.0 <= found.levels(one) <= LEVELS for one in found.tried)
    assert found.chosen == (NAMES[0] if dear > cheap else NAMES[1])


def test_it_says_what_was_found_and_what_goes_on() -> None:
    found = look([-1.0], [-1.25], 3.0)
    assert found is not None
    said = (
        "1 domains have mean bounds of propagated -1 at 3.0 times the cost, alpha_crown -1.25 at 1.0 times the cost: "
        "propagated goes on (groups with cuts: none)"
    )
    assert str(found) == said
    assert str(replace(found, groups=(1, 3))) == said.replace("none", "1, 3")
    assert found.as_dict() == {
        "tried": [
            {"tier": "propagated", "bound": -1.0, "cost": 3.0, "levels": pytest.approx(8.0)},
            {"tier": "alpha_crown", "bound": -1.25, "cost": 1.0, "levels": pytest.approx(10.0)},
        ],
        "domains": 1,
        "groups": (),
        "chosen": "propagated",
    }


def paired(seconds: float, plain_seconds: float, clock: Seconds) -> Rung:
    """A tier of three variables whose first two are those of the same without cuts."""
    plain = rung((-4.0, -4.0), 2, tree_seconds=plain_seconds, clock=clock)
    return replace(rung((-4.0, -4.0), 3, tree_seconds=seconds, clock=clock), plain=plain)


def ask(made: Schedule, look: int) -> None:
    """Let it look after so many domains."""
    made.ladder, made._next_look = replace(made.ladder, look=look), look


@pytest.mark.parametrize(("seconds", "name"), [(2.0, "rung2"), (1.0, "rung3"), (0.5, "rung3")])
def test_the_cheaper_tier_takes_over_where_it_wins(monkeypatch: pytest.MonkeyPatch, seconds: float, name: str) -> None:
    """Both give the same bounds here, so cost decides; children of the old tier start with their first variables."""
    clock = Seconds()
    monkeypatch.setattr(ladder, "time", clock)
    climb = RungClimber.climb
    monkeypatch.setattr(RungClimber, "climb", lambda *args: replace(climb(*args), lower=-torch.ones(len(args[1]))))
    made, whole = schedule(paired(seconds, 1.0, clock))
    ask(made, 4)
    start = torch.tensor([[1.0, 2.0, 3.0]]).expand(len(whole), -1)
    made.climb(0, whole, start, Until())
    assert made.looked is None  # two domains of four
    made.climb(0, whole, start, Until())
    assert made.looked is not None
    assert made.looked.tried[0].cost == pytest.approx(max(1.0, seconds))
    assert made.name(0) == name
    found = made.climb(0, whole, start, Until())
    width = made.widths[0]
    assert made.climbers[0].starts[-1] == [[1.0, 2.0, 3.0][:width]] * len(whole)  # type: ignore[attr-defined]
    seen = torch.full((len(whole),), -1.0), torch.full((len(whole),), 0.1)
    assert made.place(0, whole, found.variables, seen)[1].shape[1] == 3  # the table of variables keeps its width


def test_it_looks_at_domains_that_are_open_and_at_no_more_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch is closed, and of the second one five domains are open."""
    clock, lowers = Seconds(), [[1.0] * 8, [1.0, -1.0, -2.0, -3.0, 1.0, -4.0, -5.0, 1.0]]
    monkeypatch.setattr(ladder, "time", clock)
    climb, asked = RungClimber.climb, list[tuple[str, list[float]]]()

    def told(climber: RungClimber, batch: Batch, start: torch.Tensor, until: Until) -> Climbed:
        asked.append((climber.name, start[:, 0].tolist()))
        found = climb(climber, batch, start, until)
        return replace(found, lower=torch.tensor(lowers.pop(0)) if len(batch) == 8 else -torch.ones(len(batch)))

    monkeypatch.setattr(RungClimber, "climb", told)
    made, whole = schedule(paired(2.0, 1.0, clock))
    ask(made, 7)
    eight, everyone = whole.select(torch.zeros(8, dtype=torch.long)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    start = torch.tensor(everyone).unsqueeze(1).expand(-1, 3)
    made.climb(0, eight, start, Until())
    assert made.looked is None
    made.climb(0, eight, start, Until())
    assert made.looked is not None
    assert made.looked.domains == 3
    some = [1.0, 3.0, 6.0]
    assert asked == [("rung3", everyone), ("rung3", everyone), ("rung3", some), ("rung2", some)]


def three_rungs(seconds: tuple[float, float, float], clock: Seconds) -> Rung:
    """Those of `paired`, and one of three variables for masks that stay as they are."""
    made = paired(seconds[0], seconds[2], clock)
    kept = replace(rung((-4.0, -4.0), 3, tree_seconds=seconds[1], clock=clock), name="kept")
    return replace(made, kept=kept)


def test_it_looks_again_when_the_tree_is_much_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the variables of cuts are there; masks that are kept may be learned again."""
    clock = Seconds()
    monkeypatch.setattr(ladder, "time", clock)
    climb, seconds = RungClimber.climb, {"rung3": 4.0, "kept": 2.0, "rung2": 8.0}

    def told(climber: RungClimber, batch: Batch, start: torch.Tensor, until: Until) -> Climbed:
        found = climb(climber, batch, start, until)
        clock.now += seconds[climber.name]
        return replace(found, lower=-torch.ones(len(batch)))

    monkeypatch.setattr(RungClimber, "climb", told)
    made, whole = schedule(three_rungs((0.0, 0.0, 0.0), clock))
    made.climbers[0].learned = {0: torch.ones(2, 1)}
    ask(made, 2)
    start, names = torch.zeros(len(whole), 3), list[str]()
    for count in range(1, 2 * LATER**2 + 1):
        if count == LATER:
            seconds["kept"] = 16.0
        elif count == LATER**2:
            seconds["rung2"] = 1.0
        made.climb(0, whole, start[:, : made.widths[0]], Until())
        names.append(made.name(0))
    assert names == ["kept"] * (LATER - 1) + ["rung3"] * (LATER**2 - LATER) + ["rung2"] * (LATER**2 + 1)
    assert made.climbers[0].learned == {}


def test_masks_that_are_kept_are_those_of_the_climber_beside() -> None:
    root = root_of(hard())
    plan = Schedule(Ladder((_cuts(learn=True),), look=1), root)
    whole = Batch.whole(root)
    (found,) = plan.begin(whole, Until())
    first = plan.climbers[0]
    assert first.learned
    kept = plan.ladder.tiers[0].kept
    assert kept is not None
    beside = first.beside(kept)
    assert (beside.masks, beside.weights, beside.learned) == (first.masks, first.weights, first.learned)
    assert beside.width == first.width
    climbed = beside.climb(whole, found.variables, Until())
    assert bool((climbed.lower >= found.lower - 1e-6).all())
    masks = beside._masks_of(beside._state(climbed.variables))
    before = first._masks_of(first._state(found.variables))
    assert all(torch.equal(masks[k], before[k]) for k in before)


def test_nobody_looks_if_not_asked_or_if_there_are_no_cuts() -> None:
    for made in (Ladder(), Ladder(look=1), Ladder((_cuts(),))):
        root = root_of(hard())
        plan = Schedule(made, root)
        whole = Batch.whole(root)
        (found,) = plan.begin(whole, Until())
        plan.climb(0, whole, found.variables, Until())
        assert plan.looked is None


def _cuts(learn: bool = False) -> ladder.Tier:
    return tiers_by_name.cuts(STILL, STILL, learn=learn)


def test_where_cuts_clearly_lose_the_next_search_has_none() -> None:
    whole = Ladder((_cuts(), tiers_by_name.cuts(STILL, STILL, (0.5, 0.5))), patience=3, look=5)
    assert whole.after(None) is whole
    assert whole.after(look([-1.0], [-1.1], 2.0)) is whole  # a close call
    (only,) = whole.after(look([-1.0], [-1.01], 4.0)).tiers
    assert only.name == "alpha_crown"
    assert whole.lowest().look == 5


@pytest.mark.parametrize("learn", [False, True])
def test_a_search_that_looks_gives_the_same_verdict_and_tells_the_journal(learn: bool) -> None:
    kept = Kept()
    journal = Journal([kept])
    policy = Policy(Ladder((_cuts(learn),), look=1), batch=8, fill=2)
    space = SignSpace(root_of(hard()), policy, Until(), nobody, journal)
    outcome = run(BranchAndBound(space, Limits()), Until())
    assert (outcome.witness, outcome.reason) == (None, None)
    assert decide(hard()).reason is None
    looks = [event.look for event in kept.of(Looked)]
    assert looks
    names = ("propagated", "propagated_kept", "alpha_crown") if learn else ("propagated", "alpha_crown")
    for one in looks:
        assert tuple(tried.tier for tried in one.tried) == names
        assert one.groups
        assert set(one.groups) <= set(range(1, space.root.layer))
    assert len(set(map(id, looks))) == len(looks)
    assert journal.counts.looks == tuple(looks)
    assert (Counts(looks=(looks[0],)) + Counts(looks=(looks[0],))).looks == (looks[0], looks[0])
