"""Arrays of images: which are which, what fits a network, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from robustness.cases import IMAGES, LABELS, classifier

from verifier.errors import InputError
from verifier.network.models.onnx import load_onnx
from verifier.property.robustness import Scaling
from verifier.robustness.images import Images, check_fits, classes, load_images


@pytest.mark.parametrize(
    ("given", "expected"),
    [((8, 8), (1, 64)), ((64,), (1, 1, 8, 8)), ((8, 8, 1), (1, 1, 8, 8)), ((3, 4, 5), (1, 3, 4, 5)), ((1,), (1, 1))],
)
def test_shapes_that_fit(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    check_fits(given, expected)


@pytest.mark.parametrize(
    ("given", "expected"), [((32, 32, 3), (1, 3, 32, 32)), ((8, 9), (1, 64)), ((63,), (64,)), ((4, 16), (1, 8, 8))]
)
def test_shapes_that_do_not_fit(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="does not fit"):
        check_fits(given, expected)


@pytest.mark.parametrize(
    "names", [("images", "labels"), ("x", "y"), ("x_test", "y_test"), ("pictures", "kinds"), ("a_labels", "b_images")]
)
def test_an_archive_of_two_arrays_is_understood(tmp_path: Path, names: tuple[str, str]) -> None:
    x, y = (LABELS, IMAGES) if names[0] == "a_labels" else (IMAGES, LABELS)
    np.savez(tmp_path / "d.npz", **{names[0]: x, names[1]: y})
    found = load_images(str(tmp_path / "d.npz"), None, None)
    np.testing.assert_array_equal(found.x, IMAGES)
    np.testing.assert_array_equal(found.labels, LABELS)


def test_images_for_testing_come_before_those_for_training(tmp_path: Path) -> None:
    arrays = {"x_train": IMAGES[:1], "y_train": LABELS[:1], "x_test": IMAGES[1:], "y_test": LABELS[1:]}
    np.savez(tmp_path / "d.npz", **arrays)
    assert len(load_images(str(tmp_path / "d.npz"), None, None)) == 3


def test_two_files_are_the_same_as_an_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", IMAGES)
    np.save(tmp_path / "y.npy", LABELS[:, None].astype(np.float32))
    found = load_images(None, str(tmp_path / "x.npy"), str(tmp_path / "y.npy"))
    np.testing.assert_array_equal(found.labels, LABELS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": IMAGES, "b": LABELS, "c": LABELS}, r"which of its arrays \(a, b, c\) are images and labels"),
        ({"images": IMAGES, "labels": LABELS[:3]}, "there are 4 images and 3 labels"),
        ({"images": IMAGES, "labels": LABELS + 0.5}, "labels are a list of whole numbers"),
        ({"images": IMAGES, "labels": np.eye(4)}, "labels are a list of whole numbers"),
        ({"images": LABELS, "labels": LABELS}, "images are an array of numbers, N x ..."),
        ({"images": IMAGES * np.nan, "labels": LABELS}, "the images hold values that are not finite"),
        ({"images": IMAGES.astype(str), "labels": LABELS}, "images are an array of numbers, N x ..."),
    ],
)
def test_what_cannot_be_images_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        load_images(str(tmp_path / "d.npz"), None, None)
    assert "d.npz: " in str(caught.value)


@pytest.mark.parametrize("given", [(None, None, None), ("d.npz", "x.npy", "y.npy"), (None, "x.npy", None)])
def test_one_archive_or_two_files(given: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(InputError, match=r"give either an \.npz file with images and labels, or both"):
        load_images(*given)


def test_the_digest_names_images_and_labels() -> None:
    usual = Images.of(IMAGES, LABELS).sha256
    assert Images.of(IMAGES.copy(), LABELS.astype(np.uint8)).sha256 == usual
    assert Images.of(IMAGES + 1, LABELS).sha256 != usual
    assert Images.of(IMAGES, LABELS + 1).sha256 != usual


def test_classes_are_those_of_normalised_images(tmp_path: Path) -> None:
    model = load_onnx(classifier(tmp_path))
    assert classes(model, IMAGES, Scaling()).tolist() == [0, 1, 2, 0]
    # The first channel is shifted far down and the second scaled up: where it is positive, it wins.
    assert classes(model, IMAGES, Scaling((5, 0, 0), (1, "0.1", 1))).tolist() == [1, 1, 1, 2]
