"""Boxes that cutting does not help are finished by the signs of their ReLUs: verdicts near margins of zero.

The falsifier is off, and nothing is known from the root.
"""

from __future__ import annotations

import pytest
from falsify import instances
from search.cases import Case, ignore, random_case, unbounded

from verifier.clock import Clock
from verifier.search.boxes.space import NAMES, InputOptions
from verifier.search.domains import Outcome
from verifier.search.loop import Limits
from verifier.search.problem import ProblemSearch, Splitting

pytestmark = pytest.mark.usefixtures("unchecked")

# Family, rows per clause, whether rows look at the input, seed.
CASES = [
    ("dense", (1,), False, 0),
    ("dense", (3,), False, 1),
    ("dense", (2,), True, 1),
    ("residual", (1,), False, 1),
    ("residual", (2,), True, 0),
]
HURRIED = InputOptions(few_kinks=99, patience=0)
"""All that a bound leaves open may be handed over."""


def decide(case: Case, margin: float, options: InputOptions) -> Outcome:
    """Boxes only; what they do not decide goes to the search over signs, as in every run."""
    problem = case.problem([margin])
    whole = ProblemSearch(limits=Limits(max_domains=5000), splitting=Splitting.INPUTS, inputs=options)
    outcome = whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), ignore)
    if outcome.witness is not None:
        low, high = case.boxes[0]
        instances.check(problem, outcome.witness, low.tolist(), high.tolist())
    return outcome


def finished(outcome: Outcome) -> bool:
    """Whether something was decided by signs."""
    counts = outcome.progress.counts
    return bool(counts.leaves or set(counts.tiers) - set(NAMES.values()))


@pytest.mark.parametrize("gap", [1e-6, pytest.param(1e-3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [InputOptions(), HURRIED], ids=["patient", "hurried"])
@pytest.mark.parametrize("which", CASES, ids=str)
def test_both_sides_of_the_exact_minimum(
    which: tuple[str, tuple[int, ...], bool, int], options: InputOptions, gap: float
) -> None:
    family, counts, mixed, seed = which
    case = random_case(family, seed, counts, mixed)
    safe = decide(case, gap, options)
    assert safe.witness is None
    assert safe.reason is None
    assert decide(case, -gap, options).witness is not None


@pytest.mark.parametrize("which", CASES, ids=str)
def test_what_single_precision_cannot_tell_is_never_closed(which: tuple[str, tuple[int, ...], bool, int]) -> None:
    """1e-9 is below the rounding of the network itself: a replay may say either, but a proof may not."""
    family, counts, mixed, seed = which
    case = random_case(family, seed, counts, mixed)
    assert decide(case, 1e-9, HURRIED).reason is None
    unsafe = decide(case, -1e-9, HURRIED)
    assert unsafe.witness is not None or unsafe.reason is not None


def test_the_search_over_signs_takes_part() -> None:
    case = random_case("dense", 1, (3,))
    assert finished(decide(case, 1e-6, HURRIED))
    assert not finished(decide(case, 1e-3, InputOptions(few_kinks=-1)))
