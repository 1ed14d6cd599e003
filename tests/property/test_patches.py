"""Patches: which inputs move at which place, what the text says, and what is refused."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.property.changes import Change
from verifier.property.patches import Patches
from verifier.property.property import Property
from verifier.property.robustness import Scaling
from verifier.property.vnnlib import parse

RNG = np.random.default_rng(0)
PLAIN = Scaling()


def image(*shape: int) -> NDArray[np.float32]:
    """Values that no patch of the range 0 to 1 can be confused with."""
    return RNG.uniform(0.25, 0.75, shape).astype(np.float32)


def moved(prop: Property, shape: tuple[int, ...]) -> list[set[tuple[int, ...]]]:
    """Per box the entries that move."""
    return [
        {tuple(map(int, entry)) for entry in np.argwhere((upper > lower + 0.1).reshape(shape))}
        for lower, upper in zip(prop.boxes.lower, prop.boxes.upper, strict=True)
    ]


@pytest.mark.parametrize(
    ("shape", "rows", "columns"), [((4, 5), -2, -1), ((2, 4, 5), -2, -1), ((1, 3, 4, 5), -2, -1), ((1, 5, 4, 3), 1, 2)]
)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 4)])
def test_every_place_is_a_box_and_only_its_pixels_move(
    shape: tuple[int, ...], rows: int, columns: int, size: tuple[int, int]
) -> None:
    centre = image(*shape)
    prop = Patches(centre, 1, 3, size, (0, 1)).property()
    height, width = shape[rows], shape[columns]
    expected = [
        {
            entry
            for entry in itertools.product(*map(range, shape))
            if i <= entry[rows] < i + size[0] and j <= entry[columns] < j + size[1]
        }
        for i in range(height - size[0] + 1)
        for j in range(width - size[1] + 1)
    ]
    assert moved(prop, shape) == expected
    assert sorted({clause.box for clause in prop.clauses}) == list(range(len(expected)))
    assert len(prop.clauses) == 2 * len(expected)
    flat = centre.reshape(-1)
    still = prop.boxes.upper < prop.boxes.lower + 0.1
    assert (prop.boxes.lower[still] == np.broadcast_to(flat, still.shape)[still]).all()
    assert (prop.boxes.upper[still] == np.broadcast_to(flat, still.shape)[still]).all()
    assert (prop.boxes.lower[~still] == 0).all()
    assert (prop.boxes.upper[~still] == 1).all()


@pytest.mark.parametrize("at", [None, (0, 0), (2, 1)])
@pytest.mark.parametrize("scaling", [PLAIN, Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
def test_the_text_read_back_gives_the_same_boxes(at: tuple[int, int] | None, scaling: Scaling) -> None:
    task = Patches(image(3, 4, 3), 1, 4, (2, 2), ("0.1", 0.9), at, scaling)
    asked, read = task.property(), parse(task.vnnlib())
    assert (read.n_x, read.n_y, len(read.boxes)) == (36, 4, 6 if at is None else 1)
    assert (read.boxes.lower <= asked.boxes.lower).all()
    assert (asked.boxes.upper <= read.boxes.upper).all()
    assert np.allclose(read.boxes.lower, asked.boxes.lower, rtol=1e-15, atol=1e-15)
    assert np.allclose(read.boxes.upper, asked.boxes.upper, rtol=1e-15, atol=1e-15)
    for prop in (asked, read):
        rows = {(clause.box, tuple(clause.rows.A[0])) for clause in prop.clauses}
        assert rows == set(itertools.product(range(len(prop.boxes)), [(-1, 1, 0, 0), (0, 1, -1, 0), (0, 1, 0, -1)]))


def test_each_channel_is_normalised_by_its_own_numbers() -> None:
    prop = Patches(np.full((2, 1, 2), 0.5), 0, 2, (1, 1), (0, 1), (0, 1), Scaling((0.5, 0.25), (0.5, 0.25))).property()
    assert prop.boxes.lower.tolist() == [[0, -1, 1, -1]]
    assert prop.boxes.upper.tolist() == [[0, 1, 1, 3]]


def test_boxes_are_rounded_outward() -> None:
    """Thirds are no floats: what stays lies between two neighbours, and the ends of a patch lie inside."""
    prop = Patches(np.full((2, 2), 0.25), 0, 2, (1, 1), (0, 1), (0, 0), Scaling((0.5,), (0.3,))).property()
    exact = [(Fraction(-5, 3), Fraction(5, 3))] + [(Fraction(-5, 6), Fraction(-5, 6))] * 3
    for i, (low, high) in enumerate(exact):
        lower, upper = prop.boxes.lower[0, i], prop.boxes.upper[0, i]
        assert Fraction(lower) < low < Fraction(np.nextafter(lower, np.inf))
        assert Fraction(np.nextafter(upper, -np.inf)) < high < Fraction(upper)


def test_flat_inputs_of_usual_sizes_are_images() -> None:
    task = Patches(np.zeros((1, 784)), 0, 2, (28, 27), (0, 1))
    assert len(task.property().boxes) == 2
    assert task.point() == [Fraction(0)] * 784


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Patches(image(4, 4), 2, 2, (1, 1), (0, 1)), "label 2 is not one of 2 classes"),
        (Patches(image(4, 4), 0, 2, (5, 1), (0, 1)), "patch: 5 x 1 pixels do not fit into an image of 4 x 4"),
        (Patches(image(4, 4), 0, 2, (0, 1), (0, 1)), "patch is 0; it must be a whole number from 1"),
        (Patches(image(4, 4), 0, 2, 3, (0, 1)), "patch is a pair of whole numbers, rows and columns, not 3"),  # type: ignore[arg-type]
        (Patches(image(4, 4), 0, 2, (2, 2), (0, 1), (3, 0)), "leaves the image of 4 x 4; the last place is 2, 2"),
        (Patches(image(4, 4), 0, 2, (2, 2), (0, 1), (-1, 0)), "at is -1; it must be a whole number from 0"),
        (Patches(image(4, 4), 0, 2, (2, 2), (1, 0)), "clip is 1 to 0: there is nothing between"),
        (Patches(image(4, 4) + 1, 0, 2, (2, 2), (0, 1)), "is not in the clipping range"),
        (Patches(image(1, 64), 0, 2, (2, 2), (0, 1)), "patch: an input of shape (1, 64) is no image"),
        (Patches(image(2, 2, 4, 4), 0, 2, (2, 2), (0, 1)), "patch: an input of shape (2, 2, 4, 4) is no image"),
        (Patches(image(3, 80, 80), 0, 50, (2, 2), (0, 1)), "patch: 6241 places are too many with 19200 inputs"),
        (Patches(image(4, 4), 0, 2, (2, 2), (0, "x")), "clip is 'x', which is not a finite number"),
    ],
)
def test_what_makes_no_sense_is_refused(task: Patches, message: str) -> None:
    for asked in (task.vnnlib, task.property):
        with pytest.raises(InputError) as caught:
            asked()
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Change(clip=(0, 1)), "how may the input change"),
        (Change(0.1, at=(0, 0)), "at is the place of a patch"),
        (Change(0.1, patch=(1, 1), clip=(0, 1)), "eps and patch are two kinds of change"),
        (Change(norm=2, patch=(1, 1), clip=(0, 1)), "norm is that of a ball: it has no meaning with patch"),
        (Change(patch=(1, 1)), "patch needs clip"),
    ],
)
def test_one_kind_of_change_is_described(change: Change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        change.around(image(4, 4), 0, PLAIN)
