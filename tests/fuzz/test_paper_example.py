"""The paper's motivating example ([SCB] sec:preact-example) in rational arithmetic, as in docs/paper-example.md.

The programs are written out here once more, from the formulas of the paper, and solved by the rational simplex method
of the fuzzer; nothing of the package takes part except the network itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import networks
import pytest
from fuzzing.simplex import HalfSpace, minimise

from verifier.operators import Dense

F = Fraction
NOTHING = F(0)
WIDTH = 10  # x0, then x and z of the two groups, two each
Box = tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]  # lower and upper ends of two neurons
Line = tuple[list[Fraction], Fraction]  # a linear function of the variables, and its constant

FIRST: Box = ((F(-3), F(-1)), (F(1), F(3)))
OVER_M: Box = ((F(-9, 4), F(-1, 2)), (F(3), F(9, 4)))
INTERVAL: Box = ((F(-3), F(-2)), (F(4), F(3)))
EXACT: Box = ((F(-2), F(0)), (F(3), F(2)))
MASKS = tuple(itertools.product((0, 1), repeat=2))


def layer(k: int) -> tuple[list[list[Fraction]], list[Fraction]]:
    """Weights and bias of layer k (from 1), as fractions."""
    affine = networks.paper_example()[0].layers[k - 1]
    term = affine.terms[0][1]
    assert isinstance(term, Dense)
    return [[F(w) for w in row] for row in term.weight.tolist()], [F(b) for b in affine.bias.tolist()]


def places(k: int) -> tuple[list[int], list[int], list[int]]:
    """The variables that are the inputs of group k, its x and its z."""
    start = 2 + 4 * (k - 1)
    return ([0, 1] if k == 1 else [start - 4, start - 3]), [start, start + 1], [start + 2, start + 3]


def line(terms: dict[int, Fraction], constant: Fraction = NOTHING) -> Line:
    row = [F(0)] * WIDTH
    for place, weight in terms.items():
        row[place] += weight
    return row, constant


def at_most(left: Line, right: Line) -> HalfSpace:
    """left <= right."""
    return HalfSpace(tuple(a - b for a, b in zip(left[0], right[0], strict=True)), right[1] - left[1])


def pre_activation(k: int, i: int) -> Line:
    weights, bias = layer(k)
    return line(dict(zip(places(k)[0], weights[i], strict=True)), bias[i])


def positive(box: Box) -> Box:
    low, high = ((max(side[0], F(0)), max(side[1], F(0))) for side in box)
    return low, high


def common(k: int, i: int, box: Box) -> list[HalfSpace]:
    """x >= x_hat, and x_hat inside of its bounds; x and z have boxes."""
    x_hat, x = pre_activation(k, i), line({places(k)[1][i]: F(1)})
    low, high = line({}, box[0][i]), line({}, box[1][i])
    return [at_most(x_hat, x), at_most(low, x_hat), at_most(x_hat, high)]


def big_m(k: int, i: int, box: Box) -> list[HalfSpace]:
    """x <= u_hat z and x <= x_hat - l_hat (1 - z)."""
    x, z = line({places(k)[1][i]: F(1)}), places(k)[2][i]
    row, constant = pre_activation(k, i)
    row[z] += box[0][i]
    return [at_most(x, line({z: box[1][i]})), at_most(x, (row, constant - box[0][i]))]


def anderson(k: int, i: int, inputs: Box, masks: Sequence[tuple[int, ...]] = MASKS) -> list[HalfSpace]:
    """x <= sum_j I_j w_j (x_j - l_check_j (1 - z)) + z (b + sum_j (1 - I_j) w_j u_check_j)."""
    weights, bias = layer(k)[0][i], layer(k)[1][i]
    ends = list(zip(weights, *inputs, strict=True))
    l_check, u_check = [lo if w >= 0 else hi for w, lo, hi in ends], [hi if w >= 0 else lo for w, lo, hi in ends]
    found = []
    for mask in masks:
        kept = sum(w * e for w, e, keep in zip(weights, l_check, mask, strict=True) if keep)
        rest = sum(w * e for w, e, keep in zip(weights, u_check, mask, strict=True) if not keep)
        terms = {place: w * keep for place, w, keep in zip(places(k)[0], weights, mask, strict=True)}
        terms[places(k)[2][i]] = bias + kept + rest
        found.append(at_most(line({places(k)[1][i]: F(1)}), line(terms, F(-kept))))
    return found


def spaces(relaxation: str, k: int, box: Box) -> list[HalfSpace]:
    """M, A or A' (the cuts alone: no bounds of x_hat in the upper constraints) of the neurons of one group."""
    inputs: Box = ((F(-1), F(-1)), (F(1), F(1))) if k == 1 else positive(FIRST)
    found = []
    for i in (0, 1):
        found += common(k, i, box)
        found += big_m(k, i, box) if relaxation in ("M", "A") else []
        found += anderson(k, i, inputs) if relaxation in ("A", "A'") else []
    return found


def least(goal: Line, given: list[HalfSpace], second: Box) -> Fraction:
    """The least value of a linear function."""
    (low1, high1), (low2, high2) = positive(FIRST), positive(second)
    unit = (F(0), F(0)), (F(1), F(1))
    lower = [F(-1), F(-1), *low1, *unit[0], *low2, *unit[0]]
    upper = [F(1), F(1), *high1, *unit[1], *high2, *unit[1]]
    found = minimise(goal[0], lower, upper, given)
    assert found is not None
    return found.value + goal[1]


def output() -> Line:
    weights, bias = layer(3)
    return line(dict(zip(places(2)[1], weights[0], strict=True)), bias[0])


def bound(relaxation: str, second: Box) -> Fraction:
    return least(output(), spaces(relaxation, 1, FIRST) + spaces(relaxation, 2, second), second)


def test_bounds_of_the_hidden_neurons() -> None:
    """Of the first group by intervals, which are exact there; of the second one by intervals and over M."""
    weights, bias = layer(1)
    reach = [sum(abs(w) for w in row) for row in weights]
    assert list(FIRST[0]) == [b - r for b, r in zip(bias, reach, strict=True)]
    assert list(FIRST[1]) == [b + r for b, r in zip(bias, reach, strict=True)]
    for relaxation, expected in (("boxes", INTERVAL), ("M", OVER_M), ("A", OVER_M)):
        given = spaces(relaxation, 1, FIRST) if relaxation != "boxes" else []
        for i in (0, 1):
            row, constant = pre_activation(2, i)
            assert least((row, constant), given, INTERVAL) == expected[0][i]
            assert -least(([-w for w in row], -constant), given, INTERVAL) == expected[1][i]


def test_the_network_itself() -> None:
    """All of it depends on t = x0[0] - x0[1], piece by piece linearly; its kinks are among the ends of these pieces."""

    def applied(k: int, x: list[Fraction]) -> list[Fraction]:
        return [sum((w * v for w, v in zip(row, x, strict=True)), b) for row, b in zip(*layer(k), strict=True)]

    reads, values = [], []
    for t in (F(-2), F(-1), F(-1, 2), F(0), F(1), F(2)):  # kinks of x1 at -1 and 1, of x2 at 0
        x1 = [max(v, NOTHING) for v in applied(1, [t / 2, -t / 2])]
        reads.append(applied(2, x1))
        values += applied(3, [max(v, NOTHING) for v in reads[-1]])
    assert (min(values), max(values)) == (F(-1), F(5))
    assert tuple(min(column) for column in zip(*reads, strict=True)) == EXACT[0]
    assert tuple(max(column) for column in zip(*reads, strict=True)) == EXACT[1]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (OVER_M, {"M": F(-27, 22), "A'": F(-9, 7), "A": F(-81, 76)}),
        (INTERVAL, {"M": F(-9, 5), "A'": F(-9, 7), "A": F(-9, 7)}),
        (EXACT, {"M": F(-1), "A'": F(-9, 7), "A": F(-1)}),
    ],
    ids=["over M", "intervals", "exact"],
)
def test_bounds_of_the_output(second: Box, expected: dict[str, Fraction]) -> None:
    assert {name: bound(name, second) for name in expected} == expected


def test_without_its_bounds_the_tighter_family_is_the_looser_one() -> None:
    assert bound("A'", OVER_M) < bound("M", OVER_M) < bound("A", OVER_M)


def test_one_mask_of_the_last_neuron_is_all_that_the_cuts_need() -> None:
    """x2[1] <= x1[1], with the mask (0, 1); over M both Big-M constraints of that neuron are needed instead."""
    given = spaces("A'", 1, FIRST) + common(2, 0, OVER_M) + anderson(2, 0, positive(FIRST)) + common(2, 1, OVER_M)
    alone = given + anderson(2, 1, positive(FIRST), [(0, 1)])
    assert least(output(), alone, OVER_M) == bound("A'", OVER_M)
    others = given + anderson(2, 1, positive(FIRST), [(0, 0), (1, 0), (1, 1)])
    assert least(output(), others, OVER_M) < bound("A'", OVER_M)
    shared = spaces("M", 1, FIRST) + common(2, 0, OVER_M) + big_m(2, 0, OVER_M) + common(2, 1, OVER_M)
    for one in big_m(2, 1, OVER_M):
        assert least(output(), [*shared, one], OVER_M) < bound("M", OVER_M)


def test_the_page_says_these_numbers(root: Path) -> None:
    text = (root / "docs" / "paper-example.md").read_text()
    for name, second in (("intervals", INTERVAL), ("over M", OVER_M), ("exact", EXACT)):
        row = " | ".join(str(bound(relaxation, second)) for relaxation in ("M", "A'", "A"))
        assert f"| {name} | {row} |" in text
    for second in (INTERVAL, OVER_M, EXACT):
        assert " | ".join(f"({side[0]}, {side[1]})" for side in second) in text
