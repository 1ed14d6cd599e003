"""Counterexamples as pictures: the right pixels, and no failure where files are gone."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from report.lines import line

from verifier.batch.records import Record, parse
from verifier.pixels import ImageLayout, layout, png, span_of
from verifier.property.vnnlib import load_property
from verifier.report import pictures
from verifier.report.pictures import Album


def decoded(data: bytes) -> NDArray[np.uint8]:
    """The pixels of a PNG file without filters and interlacing; checks every chunk."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    channels = {0: 1, 2: 3}[colour]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


def shown(uri: str) -> NDArray[np.uint8]:
    return decoded(base64.b64decode(uri.removeprefix("data:image/png;base64,")))


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
def test_png_files_read_back(height: int, width: int, channels: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels)).astype(np.uint8)
    assert (decoded(png(pixels)) == pixels).all()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 3, 32, 32), ImageLayout((3, 32, 32))),
        ((1, 1, 8, 8), ImageLayout((1, 8, 8))),
        ((1, 32, 32, 3), ImageLayout((32, 32, 3), last=True)),
        ((28, 28, 1), ImageLayout((28, 28, 1), last=True)),
        ((1, 784), ImageLayout((1, 28, 28))),
        ((1, 784, 1), ImageLayout((1, 28, 28))),
        ((1, 3072), ImageLayout((3, 32, 32))),
        ((1, 64), None),  # flat inputs of other sizes may be anything
        ((1, 1, 1, 5), None),
        ((1, 2, 28, 28), None),
        ((1, 28, 28), ImageLayout((1, 28, 28))),
        ((4, 196), None),
        ((), None),
    ],
)
def test_which_inputs_are_images(shape: tuple[int, ...], expected: ImageLayout | None) -> None:
    assert layout(shape) == expected


def test_channels_come_last_in_a_picture() -> None:
    x = np.arange(2 * 4 * 4, dtype=np.float64)[: 3 * 4 * 2].reshape(-1)
    first = ImageLayout((3, 4, 2)).image(x)
    assert first.shape == (4, 2, 3)
    assert first[1, 0, 2] == x[2 * 8 + 1 * 2]
    assert ImageLayout((4, 2, 3), last=True).image(x)[1, 0, 2] == x[1 * 6 + 2]


@pytest.fixture
def digit(root: Path, tmp_path: Path) -> dict[str, Any]:
    """A line about an image of 8 x 8 pixels in a box; its witness is the upper corner in the first pixel only."""
    files = [root / "properties" / "onnx" / "digits_conv.onnx", root / "properties" / "vnnlib" / "conv_sat_1440.vnnlib"]
    copies = [str(shutil.copy(file, tmp_path)) for file in files]
    box = load_property(copies[1]).boxes
    x = ((box.lower_in[0].astype(np.float64) + box.upper_in[0]) / 2).astype(np.float32)
    first = int(np.argmax(box.upper_in[0] - box.lower_in[0]))
    x[first] = box.upper_in[0][first]
    digests = [hashlib.sha256(Path(copy).read_bytes()).hexdigest() for copy in copies]
    return line(
        "p",
        "sat",
        network=copies[0],
        property=copies[1],
        network_sha256=digests[0],
        property_sha256=digests[1],
        counterexample={"x": x.tolist(), "y": [0.0] * 10},
    ) | {"first": first}


def record_of(data: dict[str, Any]) -> Record:
    record = parse(json.dumps(data))
    assert record is not None
    return record


def test_centre_witness_and_difference(digit: dict[str, Any]) -> None:
    centre, witness, difference = Album().pictures(record_of(digit))
    assert (centre.height, centre.width) == (8, 8)
    assert [centre.caption, witness.caption] == ["centre of the box", "counterexample"]
    row, column = divmod(digit["first"], 8)
    a, b, d = (shown(p.uri).astype(int) for p in (centre, witness, difference))
    assert b[row, column, 0] > a[row, column, 0]
    b[row, column] = a[row, column]
    assert (a == b).all()
    assert tuple(d[row, column]) == pictures.POSITIVE  # the largest change has the full colour
    d[row, column] = pictures.ZERO
    assert (np.abs(d - np.array(pictures.ZERO)) <= 1).all()  # the others differ by rounding only


def test_the_witness_alone_without_its_property(digit: dict[str, Any]) -> None:
    Path(digit["property"]).unlink()
    (only,) = Album().pictures(record_of(digit))
    assert only.caption == "counterexample"


def test_a_changed_property_gives_no_centre(digit: dict[str, Any]) -> None:
    with open(digit["property"], "a") as stream:
        stream.write("; another one\n")
    assert len(Album().pictures(record_of(digit))) == 1


def test_a_witness_outside_of_the_box_has_no_centre(digit: dict[str, Any]) -> None:
    digit["counterexample"]["x"][0] = 1e6
    assert len(Album().pictures(record_of(digit))) == 1


@pytest.mark.parametrize("damage", ["gone", "no network", "changed", "another size", "unsat"])
def test_no_picture_and_no_failure(digit: dict[str, Any], damage: str) -> None:
    network = Path(digit["network"])
    if damage == "gone":
        network.unlink()
    elif damage == "no network":
        network.write_bytes(b"nonsense")
        digit["network_sha256"] = None
    elif damage == "changed":
        network.write_bytes(network.read_bytes() + b"\0")
    elif damage == "another size":
        digit["counterexample"]["x"].append(0.0)
    else:
        digit |= {"verdict": "unsat"}
    assert Album().pictures(record_of(digit)) == []


def test_colours_around_grey() -> None:
    image = np.zeros((4, 4, 3))
    changed = image.copy()
    changed[0, 0] = (0.5, -0.5, 0.25)
    difference = shown(pictures._compared(image, changed)[2].uri)
    assert tuple(difference[0, 0]) == (255, 0, 191)
    assert tuple(difference[1, 1]) == (128, 128, 128)


def test_ranges_of_pixels() -> None:
    assert span_of(np.array([0.2, 0.9])) == (0.0, 1.0)
    assert span_of(np.array([3.0, 200.0])) == (0.0, 255.0)
    assert span_of(np.array([-2.0, 2.0])) == (-2.0, 2.0)
    assert span_of(np.array([-1.0, -1.0])) == (-1.0, -1.0 + 1e-12)
