"""Who listens to a search hears the life of every domain, in every process, and what it takes to repeat its proof."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from falsify import instances
from forks import watched
from search.cases import (
    CUTS,
    GAP,
    Case,
    grow,
    hard,
    ignore,
    narrow,
    nobody,
    random_case,
    root_of,
    unbounded,
    wedge,
)
from search.events import Kept, Lives, tree

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.solver import Certified
from verifier.clock import Clock
from verifier.network.merge import Classes, LayerMerge
from verifier.processes import Fork, Send, Tickets, forkable
from verifier.result.verdict import Reason
from verifier.search.boxes.bounds import Effort
from verifier.search.boxes.space import InputOptions
from verifier.search.domains import Outcome, Progress
from verifier.search.journal import Bounded, By, Closed, Implied, Journal, LeafSolved, Merged, Settled, Split, Stepped
from verifier.search.ladder import Ladder
from verifier.search.loop import BranchAndBound, Limits, run
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.sharpen import Sharpener, Sharpening
from verifier.search.signs.space import Policy, SignSpace

pytestmark = pytest.mark.usefixtures("unchecked")

FORKS = pytest.mark.skipif(not forkable(), reason="forks work on Linux only")


# ---------------------------------------------------------------- one tree of signs


@pytest.fixture(scope="module")
def kept() -> Kept:
    listener, until = Kept(), Until()
    space = SignSpace(root_of(hard()), Policy(batch=32, fill=16), until, nobody, Journal([listener]))
    outcome = run(BranchAndBound(space, Limits()), until)
    assert outcome.reason is None
    assert outcome.progress.domains == sum(len(event.number) for event in listener.of(Bounded))
    return listener


def test_domains_form_a_tree(kept: Kept) -> None:
    nodes = tree(kept)
    assert sorted(nodes) == list(range(len(nodes)))
    children: dict[int, list[int]] = {}
    for number, node in nodes.items():
        children.setdefault(node.parent, []).append(number)
        if node.parent < 0:
            assert not any(node.signs)
            continue
        above = nodes[node.parent]
        assert not above.closed
        assert node.lower >= above.lower
        changed = [k for k, (a, b) in enumerate(zip(above.signs, node.signs, strict=True)) if a != b]
        assert len(changed) == len(node.places)
        assert sorted(node.signs[k] for k in changed) == sorted(sign for _, _, sign in node.places)
    for parent, below in children.items():
        if parent >= 0:  # all combinations of the signs where it was split
            assert len(below) == len({nodes[k].signs for k in below}) == 2 ** len(nodes[below[0]].places)


def test_proofs_can_be_repeated(kept: Kept) -> None:
    """Every domain that was closed by its bound or as an exact leaf, with evidence that proves it in float64."""
    nodes = tree(kept)
    parents = {node.parent for node in nodes.values()}
    proofs = [event.evidence() for event in kept.of(Closed)]
    proved = {tuple(signs) for batch, _ in proofs for signs in batch.signs.tolist()}
    assert proved == {node.signs for number, node in nodes.items() if number not in parents}
    assert {event.by for event in kept.of(Closed) if len(event.number)} >= {By.BOUND, By.LEAF}
    for event, (batch, evidence) in zip(kept.of(Closed), proofs, strict=True):
        assert len(batch) == len(event.number)
        assert bool(evidence.closed(batch.task(torch.float64)).all())


def test_a_listener_changes_nothing(kept: Kept) -> None:
    alone = grow(root_of(hard()), Policy(batch=32, fill=16))
    assert alone.progress.domains == len(tree(kept))
    assert alone.progress.counts.iterations == sum(event.iterations for event in kept.of(Stepped)) > 0
    assert alone.progress.counts.leaves == len(kept.of(LeafSolved)) > 0


def test_nobody_asks_for_evidence_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Closed.__init__

    def init(self: Closed, number: torch.Tensor, by: By, evidence: Callable[[], object]) -> None:
        usual(self, number, by, lambda: pytest.fail("evidence was made"))

    monkeypatch.setattr(Closed, "__init__", init)
    assert grow(root_of(hard()), Policy(batch=32, fill=16)).reason is None


# ---------------------------------------------------------------- numbers, notes, processes


def test_numbers_are_given_once() -> None:
    """Also to several searches that one listener follows."""
    lives, until = Lives(), Until()
    journal = Journal([lives])
    below = Journal(above=journal)
    given = [one.numbers(count) for one, count in ((journal, 3), (below, 0), (below, 1), (journal, 4))]
    assert [list(some) for some in given] == [[0, 1, 2], [], [3], [4, 5, 6, 7]]
    for _ in range(2):
        space = SignSpace(root_of(hard(0.5)), Policy(batch=32, fill=16), until, nobody, Journal(above=journal))
        run(BranchAndBound(space, Limits(max_batches=2)), until)
    assert len(lives.roots) == 2
    assert min(lives.parent) == 8


@FORKS
def test_tickets_are_given_once_to_all_processes() -> None:
    tickets, count = Tickets(), 2000

    def take(send: Send) -> list[int]:
        return [number for _ in range(count) for number in tickets.take(2)]

    with watched():
        forks = [Fork.start(take) for _ in range(3)]
        mine = take(lambda message: None)
        theirs: list[object] = []
        while not all(fork.ended for fork in forks):
            theirs += [message for fork in forks for message in fork.messages()]
    numbers = [*mine, *(number for some in theirs for number in some)]  # type: ignore[attr-defined]
    assert sorted(numbers) == list(range(4 * 2 * count))


def test_another_machine_numbers_by_its_block_and_no_further() -> None:
    home, abroad = Journal(), Journal()
    home.numbers(5)
    below = Journal(above=abroad)
    below.confine(home.numbers(10))
    assert [*below.numbers(3), *abroad.numbers(7)] == list(range(5, 15))
    assert [*home.numbers(2)] == [15, 16]
    with pytest.raises(OverflowError, match="all numbers"):
        below.numbers(1)


def stepped(iterations: int) -> Stepped:
    return Stepped(torch.zeros(0), iterations, 0.0)


def test_every_journal_counts_what_it_and_those_below_it_hear() -> None:
    top = Journal()
    one, other = Journal(above=top), Journal(above=top)
    one.hear(stepped(1))
    other.hear(stepped(10))
    top.hear(stepped(100))
    assert [journal.counts.iterations for journal in (one, other, top)] == [1, 10, 111]
    assert top.counts.batches == 3


def test_what_happens_abroad_is_kept_at_home_and_only_once() -> None:
    """Three journals above each other, and what would be a fork and its fork."""

    def line() -> list[Journal]:
        top = Journal()
        middle = Journal(above=top)
        return [top, middle, Journal(above=middle)]

    home, abroad, further = line(), line(), line()
    for journals in (home, abroad, further):
        journals[2].hear(stepped(1))  # before the forks: a copy knows it, too
    abroad[2].go_abroad()
    assert abroad[2].counts.iterations == 0
    further[2].go_abroad()
    local = Journal(above=further[2])  # a search inside of a fork counts for itself
    local.hear(stepped(1000))
    assert local.counts.iterations == 1000
    abroad[2].hear(stepped(10))
    abroad[2].receive(further[2].sent())
    assert further[2].sent() == []
    home[2].receive(abroad[2].sent())
    assert abroad[2].sent() == []
    assert [journal.counts.iterations for journal in home] == [1011, 1011, 1011]
    assert [journal.counts.iterations for journal in abroad] == [0, 0, 0]


# ---------------------------------------------------------------- laws of whole runs

LOOSE = RootBounds(None)
SHARP = Certified(AlphaCrown(Ascent(10, Steps(0.1, 0.02))))
SMALL = InputOptions(batch=4, least_children=2)
HURRIED = InputOptions(few_kinks=99, patience=0)
PLAIN = narrow(4)

SETTINGS: dict[str, Callable[[], ProblemSearch]] = {
    "signs": lambda: ProblemSearch(PLAIN, splitting=Splitting.RELUS),
    "several levels": lambda: ProblemSearch(Policy(batch=32, fill=16), splitting=Splitting.RELUS),
    "two tiers": lambda: ProblemSearch(
        replace(PLAIN, ladder=Ladder((*PLAIN.ladder.tiers, CUTS), (1.05,))), splitting=Splitting.RELUS
    ),
    "groups": lambda: ProblemSearch(PLAIN, splitting=Splitting.RELUS, root_bytes=1),
    "sharpened": lambda: ProblemSearch(
        PLAIN, intermediate=LOOSE, sharpening=Sharpening(SHARP), splitting=Splitting.RELUS
    ),
    "boxes": lambda: ProblemSearch(splitting=Splitting.INPUTS, inputs=SMALL),
    "rough boxes": lambda: ProblemSearch(splitting=Splitting.INPUTS, inputs=replace(SMALL, effort=Effort(0, 0))),
    "finish": lambda: ProblemSearch(splitting=Splitting.INPUTS, inputs=HURRIED),
    "race": lambda: ProblemSearch(PLAIN, inputs=SMALL),
}
CASES = {
    "two boxes": lambda: random_case("residual", 2, (1, 2, 2, 1), True, 2),
    "three rows": lambda: random_case("dense", 1, (3,)),
    "clipped": lambda: random_case("residual", 1, (3,)),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few domains are worth a process, turns are short, and bounds are sharpened after four steps."""
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    monkeypatch.setattr("verifier.search.race.FIRST_SLICE", 0.02)

    def ready(self: Sharpener, progress: Progress) -> bool:
        return progress.counts.batches >= 4

    monkeypatch.setattr(Sharpener, "ready", ready)


def lived(
    case: Case, margins: Sequence[float], search: ProblemSearch, found: ClauseBounds | None = None
) -> tuple[Lives, Outcome]:
    lives, problem = Lives(), case.problem(margins)
    whole = replace(search, journal=Journal([lives]))
    bounds = found or unbounded(problem)
    outcome = whole.run(problem, bounds, instances.target(problem), Clock.begin(60), ignore)
    assert whole.journal.counts.domains == lives.counts.domains
    return lives, outcome


def same_counts(lives: Lives, progress: Progress) -> bool:
    known, heard = progress.counts, lives.counts
    tiers = {name: count for name, count in heard.tiers.items() if count}
    return (
        {name: count for name, count in known.tiers.items() if count} == tiers
        and (known.leaves, known.batches, known.iterations) == (heard.leaves, heard.batches, heard.iterations)
        and known.domains == len(lives.tier)
    )


# One process searches all cases that say something, several one each.
FEW = {("two boxes", 1), ("three rows", 1), ("two boxes", 2), ("three rows", 3)}
CLIPPING = {"boxes", "rough boxes", "finish", "race"}
RUNS = [
    pytest.param(
        setting,
        which,
        cores,
        marks=[] if (which, cores) in FEW or (setting in CLIPPING and cores == 1) else pytest.mark.slow,
    )
    for setting, which, cores in itertools.product(SETTINGS, CASES, (1, 2, 3))
]


@FORKS
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("setting", "which", "cores"), RUNS)
def test_every_domain_ends_exactly_once(setting: str, which: str, cores: int) -> None:
    """Split, closed or superseded, or it is open at the end: `Lives` hears of no second end."""
    case = CASES[which]()
    search = replace(SETTINGS[setting](), cores=cores)
    lives, outcome = lived(case, [GAP] * len(case.claims), search)
    assert (outcome.witness, outcome.reason) == (None, None)
    assert same_counts(lives, outcome.progress)
    assert set(lives.tier) == set(lives.parent), "all were bounded"
    if setting == "race":
        assert len(lives.open) < len(lives.parent)
    else:
        assert not lives.open
    assert not {number for number, end in lives.end.items() if end == "undecided"}
    assert bool(lives.moved or lives.covered) <= (setting == "sharpened")
    for parent in {number for number, end in lives.end.items() if end == "split"}:
        assert lives.below(parent) != {parent}


@pytest.mark.usefixtures("quick")
def test_all_kinds_of_ends_are_met() -> None:
    seen = set()
    for setting, which in (("signs", "two boxes"), ("rough boxes", "clipped"), ("finish", "three rows")):
        lives, _ = lived(CASES[which](), [GAP] * len(CASES[which]().claims), SETTINGS[setting]())
        seen |= {by for by, count in lives.by.items() if count}
    assert seen >= {"bound", "leaf", "clipped", "finished"}
    lives, _ = lived(CASES["two boxes"](), [GAP] * 4, SETTINGS["sharpened"]())
    assert lives.covered
    assert lives.moved | {number for number, by in lives.covered.items() if by >= 0}


@FORKS
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("setting", ["signs", "boxes", "sharpened"])
def test_what_waits_at_a_limit_is_open(setting: str, cores: int) -> None:
    case = CASES["two boxes"]()
    for most in (2, 6, 9):
        search = replace(SETTINGS[setting](), cores=cores, limits=Limits(max_batches=most))
        lives, outcome = lived(case, [GAP] * 4, search)
        if outcome.reason is None:
            continue
        assert outcome.reason is Reason.LIMIT
        assert same_counts(lives, outcome.progress)
        if cores == 1:
            assert len(lives.open) == outcome.progress.open > 0


@FORKS
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_statistics_are_sums_over_events_with_a_witness_too(setting: str, cores: int) -> None:
    case = CASES["two boxes"]()
    lives, outcome = lived(case, [GAP, GAP, GAP, -GAP], replace(SETTINGS[setting](), cores=cores))
    assert outcome.witness is not None
    assert same_counts(lives, outcome.progress)


@pytest.mark.parametrize("splitting", [Splitting.RELUS, Splitting.INPUTS])
def test_what_nobody_can_decide_is_told(splitting: Splitting) -> None:
    """A box that is a point, on the border of the unsafe set, which a strict row excludes."""
    box = instances.boxes([["0.5"]], [["0.5"]])
    problem = instances.problem(wedge(), box, [(0, [instances.row({0: 1}, "0.25", strict=True)])])
    lives = Lives()
    whole = ProblemSearch(splitting=splitting, journal=Journal([lives]))
    outcome = whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), ignore)
    assert outcome.reason is Reason.NUMERICS
    assert "undecided" in lives.end.values()
    assert not lives.open
    assert same_counts(lives, outcome.progress)


# ---------------------------------------------------------------- what happens before a search


def test_clauses_that_the_root_has_closed_are_told() -> None:
    case, kept = CASES["two boxes"](), Kept()
    problem = case.problem([GAP] * 4)
    found = ClauseBounds(torch.tensor([1.0, -1.0, 2.0, -1.0], dtype=torch.float64), {}, {})
    whole = ProblemSearch(PLAIN, Limits(max_batches=1), splitting=Splitting.RELUS, journal=Journal([kept]))
    gone = LayerMerge(Classes.of_one_each(9), torch.arange(9) < 2, False)
    whole.run(replace(problem, merged=(gone,)), found, instances.target(problem), Clock.begin(60), ignore)
    (settled,) = kept.of(Settled)
    assert (settled.clauses, settled.evidence()) == ((0, 2), found)
    assert [event.neurons for event in kept.of(Merged)] == [7]
    assert [event.clause.tolist() for event in kept.of(Split)] == [[1, 3]]


def test_implied_signs_are_told() -> None:
    """|x - 1/4| <= -1: the rows imply that both neurons block."""
    problem = instances.problem(wedge(), instances.boxes([[-1]], [[1]]), [(0, [instances.row({0: 1}, -1)])])
    kept = Kept()
    space = SignSpace(root_of(problem), Policy(), Until(), nobody, Journal([kept]))
    BranchAndBound(space, Limits()).step()
    (implied,) = kept.of(Implied)
    assert implied.places() == [[(1, 0, -1), (1, 1, -1)]]
    assert implied.number.tolist() == [0]
