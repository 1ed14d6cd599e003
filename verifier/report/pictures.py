"""Counterexamples of networks that look at images, as pictures: the centre of the box, the witness, the difference.

The result holds the witness only.  Shape and box come from the files of the instance, if they are still the same.
"""

from __future__ import annotations

import base64
import logging
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from verifier.batch.records import Record, StoredWitness
from verifier.errors import InputError
from verifier.files import read_stored, unpacked
from verifier.network.models.identity import digest_of

log = logging.getLogger(__name__)

SMALLEST = 4
"""Pixels of the shorter side of an image; less is a vector with extra axes."""

FLAT = {784: (1, 28, 28), 3072: (3, 32, 32)}
"""The images that flat inputs of these sizes are: MNIST and CIFAR."""

NEGATIVE, ZERO, POSITIVE = (0, 114, 178), (255, 255, 255), (213, 94, 0)
"""Colours of a difference of grey values."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2}  # channels -> greyscale or RGB

Image = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture with what is written below it."""

    caption: str
    uri: str
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """How a flat input is an image: its axes, and which of them are the channels."""

    shape: tuple[int, int, int]
    last: bool = False  # channels last

    def image(self, x: NDArray[np.float64]) -> Image:
        """The image [height, width, channels] of a flat input."""
        image = x.reshape(self.shape)
        return image if self.last else image.transpose(1, 2, 0)


def layout(shape: tuple[int, ...]) -> ImageLayout | None:
    """How an input of this shape is an image of one or three channels, or None if it is none."""
    axes = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    axes = (1, *axes) if len(axes) == 2 and min(axes) >= SMALLEST else axes
    if len(axes) == 3 and axes[0] in (1, 3) and min(axes[1:]) >= SMALLEST:
        return ImageLayout((axes[0], axes[1], axes[2]))
    if len(axes) == 3 and axes[2] in (1, 3) and min(axes[:2]) >= SMALLEST:
        return ImageLayout((axes[0], axes[1], axes[2]), last=True)
    size = math.prod(shape)
    flat = max(shape, default=0) == size  # all axes but one are 1
    return ImageLayout(FLAT[size]) if flat and size in FLAT else None


class Album:
    """Makes the pictures of records; a network's file is opened once."""

    def __init__(self) -> None:
        self._layout: Callable[[str, str | None], ImageLayout | None] = cache(_layout)

    def pictures(self, record: Record, shape: tuple[int, ...] | None = None) -> list[Picture]:
        """Centre, witness and difference; the witness alone if the property is gone; nothing if it is no image.

        `shape` is that of the images, if it is known better than from the network: one may take flat inputs.
        """
        point = record.witness
        given = None if shape is None else layout(shape)
        found = None if point is None else given or self._layout(record.files[0], record.digests[0])
        if point is None or found is None or len(point.x) != math.prod(found.shape):
            return []
        witness = found.image(np.array(point.x))
        centre = _attempt(lambda: _centre(record.files[1], record.digests[1], point))
        if centre is None:
            return [_plain("counterexample", witness, _span(witness))]
        return _compared(found.image(centre), witness)


def _compared(centre: Image, witness: Image) -> list[Picture]:
    span = _span(centre, witness)
    difference = witness - centre
    largest = float(np.abs(difference).max())
    changed = int((np.abs(difference) > 0).any(axis=2).sum())
    caption = f"difference: {changed:,} pixel{'' if changed == 1 else 's'}, by at most {largest:.3g}"
    return [
        _plain("centre of the box", centre, span),
        _plain("counterexample", witness, span),
        _picture(caption, _signed(difference / largest if largest else difference)),
    ]


def _span(*images: Image) -> tuple[float, float]:
    """The range of values from black to white: that of usual images where it fits, else that of the values."""
    low, high = float(min(i.min() for i in images)), float(max(i.max() for i in images))
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (0.0, 255.0) if low >= 0 and 1 < high <= 255 and high > 16 else (low, max(high, low + 1e-12))


def _plain(caption: str, image: Image, span: tuple[float, float]) -> Picture:
    return _picture(caption, (image - span[0]) / (span[1] - span[0]))


def _signed(share: Image) -> Image:
    """Values in [-1, 1] as colours in [0, 1]: grey values between two colours, channels around middle grey."""
    if share.shape[2] == 3:
        return (share + 1) / 2
    ends = np.where(share < 0, np.array(NEGATIVE), np.array(POSITIVE))
    colours: Image = (np.array(ZERO) + np.abs(share) * (ends - np.array(ZERO))) / 255
    return colours


def _picture(caption: str, values: Image) -> Picture:
    pixels = np.rint(np.clip(values, 0.0, 1.0) * 255).astype(np.uint8)
    return Picture(caption, data_uri(pixels), pixels.shape[0], pixels.shape[1])


def _layout(path: str, digest: str | None) -> ImageLayout | None:
    shape = _attempt(lambda: _input_shape(path, digest))
    return None if shape is None else layout(shape)


def _input_shape(path: str, digest: str | None) -> tuple[int, ...]:
    from verifier.network.models.shapes import input_shapes
    from verifier.network.models.validate import inputs_and_outputs, parsed

    sources, _ = inputs_and_outputs(parsed(Path(path), _unchanged(path, digest)))
    return input_shapes(sources).joined


def _centre(path: str, digest: str | None, witness: StoredWitness) -> NDArray[np.float64] | None:
    """The centre of the first box in which the witness lies, or that of a ball."""
    from verifier.property.robustness import robustness_of
    from verifier.property.vnnlib import parse

    text = _unchanged(path, digest)
    ball = robustness_of(text)
    if ball is not None:
        return np.array([float(value) for value in ball.near().centre])
    boxes = parse(text, path).boxes
    x = np.array(witness.x, np.float32)
    if boxes.lower.shape[1:] != x.shape:
        return None
    inside = np.flatnonzero(((boxes.lower_in <= x) & (x <= boxes.upper_in)).all(axis=1))
    if not len(inside):
        return None
    middle: NDArray[np.float64] = (boxes.lower[inside[0]] + boxes.upper[inside[0]]) / 2
    return middle


def _unchanged(path: str, digest: str | None) -> bytes:
    """The bytes of a plain or compressed file, if it is still the one that the result speaks of."""
    raw = read_stored(path)
    if digest is not None and digest_of(path, raw) != digest:
        raise InputError("the file has changed since the run", path)
    return unpacked(raw, path)


def _attempt(work: Callable[[], T]) -> T | None:
    """What `work` returns, or None without files that can be read: a report tells what it knows."""
    try:
        return work()
    except (InputError, OSError) as error:
        log.info("no picture: %s", error)
        return None


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The file of a picture [height, width, channels], with 1 (grey) or 3 (RGB) channels."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.ascontiguousarray(pixels).reshape(height, width * channels)
    filtered = np.hstack([np.zeros((height, 1), np.uint8), rows])  # every row begins with its filter: none
    body = zlib.compress(filtered.tobytes(), 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """The picture as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
