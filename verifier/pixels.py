"""Inputs that are images: their axes, their range of values, and the bytes of a picture."""

from __future__ import annotations

import base64
import io
import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError

SMALLEST = 4
"""Pixels of the shorter side of an image; less is a vector with extra axes."""

LONGEST = 8
"""How many times longer than wide an image of two axes may be; beyond it is a table."""

FLAT = {784: (1, 28, 28), 3072: (3, 32, 32)}
"""The images that flat inputs of these sizes are: MNIST and CIFAR."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2}  # channels -> greyscale or RGB

Image = NDArray[np.float64]


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
    if len(axes) == 2 and min(axes) >= SMALLEST and max(axes) <= LONGEST * min(axes):
        axes = (1, *axes)
    if len(axes) == 3 and axes[0] in (1, 3) and min(axes[1:]) >= SMALLEST:
        return ImageLayout((axes[0], axes[1], axes[2]))
    if len(axes) == 3 and axes[2] in (1, 3) and min(axes[:2]) >= SMALLEST:
        return ImageLayout((axes[0], axes[1], axes[2]), last=True)
    size = math.prod(shape)
    return ImageLayout(FLAT[size]) if is_flat(shape) and size in FLAT else None


def is_flat(shape: tuple[int, ...]) -> bool:
    """Whether all axes but one are 1."""
    return max(shape, default=0) == math.prod(shape)


def span_of(*images: Image) -> tuple[float, float]:
    """The range of values from black to white: that of usual images where it fits, else that of the values."""
    low, high = float(min(i.min() for i in images)), float(max(i.max() for i in images))
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (0.0, 255.0) if low >= 0 and 1 < high <= 255 and high > 16 else (low, max(high, low + 1e-12))


def pixels_of(values: Image) -> NDArray[np.uint8]:
    """Shares of white, from 0 to 1, as bytes; what lies outside is cut off."""
    pixels: NDArray[np.uint8] = np.rint(np.clip(values, 0.0, 1.0) * 255).astype(np.uint8)
    return pixels


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The file of a picture [height, width, channels], with 1 (grey) or 3 (RGB) channels."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.ascontiguousarray(pixels).reshape(height, width * channels)
    filtered = np.hstack([np.zeros((height, 1), np.uint8), rows])  # every row begins with its filter: none
    body = zlib.compress(filtered.tobytes(), 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def image_file(image: NDArray[np.floating], picture: bool) -> bytes:
    """The file of an image in its own shape: a picture (PNG), or an array (.npy) with its values as they are.

    Raises InputError if a picture is wanted of what is no image.
    """
    if not picture:
        stream = io.BytesIO()
        np.save(stream, image, allow_pickle=False)
        return stream.getvalue()
    found = layout(image.shape)
    if found is None:
        raise InputError(f"an array of shape {image.shape} is no picture: take a file that ends in .npy")
    return png(pixels_of(shares_of_white(found.image(image.astype(np.float64)))))


def shares_of_white(image: Image) -> Image:
    """Values from 0, black, to 1."""
    low, high = span_of(image)
    return (image - low) / (high - low)


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """The picture as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
