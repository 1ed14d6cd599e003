"""The paper's data as VNN-LIB: boxes and rows are those of the data, exactly."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from dataclasses import replace
from decimal import Inexact
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from paper.data import Ball, DataFolder, exact_text, write_instances, write_properties
from paper.plan import CLASSES, LISTED, PICTURED
from paper_data import write

from verifier.batch.instances import read_instances
from verifier.errors import InputError
from verifier.property.vnnlib import load_property

BOUND = re.compile(r"\(assert \(([<>]=) X_(\d+) (-?\d+\.\d+)\)\)")


def box_of(text: str) -> list[tuple[Fraction, Fraction]]:
    """The decimals of a property as they stand there."""
    sides: dict[str, dict[int, Fraction]] = {">=": {}, "<=": {}}
    for side, i, number in BOUND.findall(text):
        sides[side][int(i)] = Fraction(number)
    assert list(sides[">="]) == list(sides["<="]) == list(range(len(sides[">="])))
    return list(zip(sides[">="].values(), sides["<="].values(), strict=True))


def expected_box(ball: Ball) -> list[tuple[Fraction, Fraction]]:
    """From the arrays, in another way than the writer's."""
    low, high = ball.clip or (None, None)
    found = []
    for x in ball.centre.astype(np.float64).ravel():
        numerator, denominator = float(x).as_integer_ratio()
        ends = [Fraction(numerator, denominator) + sign * ball.radius for sign in (-1, 1)]
        found.append(
            (ends[0] if low is None or ends[0] > low else low, ends[1] if high is None or ends[1] < high else high)
        )
    return found


def some(data: DataFolder) -> Iterable[Ball]:
    """One property of each kind: from a list, from images, from images with a clipped box."""
    yield from islice(data.listed(LISTED[-1].table), 1)
    for pictured in (PICTURED[0], PICTURED[-1]):
        yield from islice(data.pictured(pictured.onnx, CLASSES), 1)


@pytest.fixture(params=["tiny", "given"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> DataFolder:
    if request.param == "tiny":
        return DataFolder(write(tmp_path / "data"))
    return DataFolder(request.getfixturevalue("benchmarks") / "oval_paper")


def test_boxes_are_exact(data: DataFolder) -> None:
    balls = list(some(data))
    assert len(balls) == 3
    for ball in balls:
        assert box_of(ball.vnnlib(CLASSES)) == expected_box(ball)


def test_a_listed_radius_is_the_decimal_and_an_array_s_the_float(data: DataFolder) -> None:
    listed = next(iter(data.listed(LISTED[0].table)))
    assert 10**6 % listed.radius.denominator == 0
    pictured = next(iter(data.pictured(PICTURED[0].onnx, CLASSES)))
    assert float(pictured.radius).as_integer_ratio() == pictured.radius.as_integer_ratio()


def test_the_reader_takes_boxes_and_rows_as_they_were_meant(data: DataFolder, tmp_path: Path) -> None:
    for k, ball in enumerate(some(data)):
        [path] = write_properties(tmp_path / str(k), [ball], CLASSES)
        read = load_property(path)
        low, high = read.boxes.lower[0], read.boxes.upper[0]
        inner = np.nextafter(low, np.inf), np.nextafter(high, -np.inf)
        for i, (a, b) in enumerate(expected_box(ball)):
            assert low[i] <= a < inner[0][i]
            assert inner[1][i] < b <= high[i]
        rows = [np.eye(CLASSES)[ball.label] - np.eye(CLASSES)[target] for target in ball.targets]
        np.testing.assert_array_equal(np.concatenate([clause.rows.A for clause in read.clauses]), rows)
        assert all((clause.rows.c == 0).all() for clause in read.clauses)


def test_mnist_is_clipped_and_nothing_else(data: DataFolder) -> None:
    clips = {network.name: next(iter(data.pictured(network.onnx, CLASSES))).clip for network in PICTURED}
    assert clips == {"sgd": None, "madry": None, "mnist": (0, 1)}


def test_what_no_decimal_equals_is_refused() -> None:
    assert exact_text(Fraction(-3, 8)) == "-0.375"
    assert exact_text(Fraction(12)) == "12.0"
    assert Fraction(exact_text(Fraction(2.0**-149))) == Fraction(1, 2**149)
    with pytest.raises(Inexact):
        exact_text(Fraction(1, 3))


def test_a_property_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    ball = Ball("7", np.zeros(1, np.float32), Fraction(1), 0, (1,))
    [path] = write_properties(tmp_path, [ball], 2)
    before = path.read_bytes()
    write_properties(tmp_path, [replace(ball, label=1, targets=(0,))], 2)
    assert path.read_bytes() == before
    assert "class 0 against 1" in gzip.decompress(before).decode()


def test_lists_lead_to_the_files(tmp_path: Path) -> None:
    data = DataFolder(write(tmp_path / "data"))
    balls = list(data.listed(LISTED[0].table))
    paths = write_properties(tmp_path / "properties" / "base", balls, CLASSES)
    write_instances(tmp_path / "properties" / "base.csv", data.network(LISTED[0].onnx), paths, 2.5)
    instances = read_instances([str(tmp_path / "properties" / "base.csv")])
    assert [Path(instance.prop) for instance in instances] == [path.resolve() for path in paths]
    assert all(Path(instance.network).is_file() and instance.timeout == 2.5 for instance in instances)


def test_another_folder_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not the folder of the paper's data"):
        DataFolder(tmp_path).check()
