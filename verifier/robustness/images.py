"""Inputs and their classes: NumPy files or arrays, in the shape that a network takes.  They are called images here."""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.network.models.base import SourceModel
from verifier.property.arrays import Shape
from verifier.property.robustness import Scaling

NAMES = (
    ("x_test", "y_test"),
    ("test_images", "test_labels"),
    ("images", "labels"),
    ("inputs", "labels"),
    ("x", "y"),
    ("X", "y"),
    ("data", "target"),
)
"""What images and labels are called in an archive, those for testing first."""

TOGETHER = 256
"""Images that a network runs at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """N inputs before normalisation, and the class that each of them has."""

    x: NDArray[Any]  # [N, ...]
    labels: NDArray[np.int64]  # [N]

    @classmethod
    def of(cls, x: NDArray[Any], labels: NDArray[Any]) -> Images:
        """Raises InputError, in one sentence, for arrays that cannot be images and their classes."""
        if x.dtype.kind not in "fiub" or x.ndim < 2 or not x.size:
            raise InputError(f"images are an array of numbers, N x ..., not one of type {x.dtype} and shape {x.shape}")
        if not np.isfinite(x).all():
            raise InputError("the images hold values that are not finite")
        flat = labels.reshape(-1)
        whole = labels.dtype.kind in "iu" or (labels.dtype.kind == "f" and bool((flat == np.floor(flat)).all()))
        if not whole or labels.ndim == 0 or labels.size != len(labels):
            kind = f"an array of type {labels.dtype} and shape {labels.shape}"
            raise InputError(f"labels are a list of whole numbers, not {kind}")
        if len(flat) != len(x):
            raise InputError(f"there are {len(x)} images and {len(flat)} labels")
        return cls(x, flat.astype(np.int64))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> Shape:
        """Of one image."""
        return tuple(self.x.shape[1:])

    @property
    def sha256(self) -> str:
        """What names the images and their labels."""
        parts = [str((self.x.dtype.str, self.x.shape)).encode(), np.ascontiguousarray(self.x).tobytes()]
        return hashlib.sha256(b"".join([*parts, self.labels.tobytes()])).hexdigest()

    def first(self, limit: int | None) -> Images:
        """The first ones only."""
        return Images(self.x[:limit], self.labels[:limit])


def check_fits(given: Shape, expected: Shape, source: str | None = None) -> None:
    """Raises InputError unless an array of shape `given` is an input of shape `expected`, axes of size 1 aside.

    A flat array fits if it has the size, and so does any array if the network takes a flat input.  Another shape of the
    same size, as of an image with its channels last, would be read in the wrong order.  `source` is the array's file.
    """
    bare, wanted = (tuple(n for n in shape if n != 1) for shape in (given, expected))
    alike = bare == wanted or min(len(bare), len(wanted)) <= 1
    if math.prod(given) != math.prod(expected) or not alike:
        size = math.prod(expected)
        raise InputError(f"the network takes inputs of shape {expected}, {size} numbers; {given} does not fit", source)


def classes(model: SourceModel, x: NDArray[Any], scaling: Scaling) -> NDArray[np.int64]:
    """The network's own class at every image [N, ...], normalised first.  Requires: the images fit."""
    mean, std = scaling.floats(model.input_shape)
    found = []
    for start in range(0, len(x), TOGETHER):
        points = x[start : start + TOGETHER].reshape(-1, model.n_in).astype(np.float64)
        found.append(np.argmax(model.run(((points - mean) / std).astype(model.dtype)), axis=1))
    return np.concatenate(found).astype(np.int64)


def load_array(source: str) -> NDArray[Any]:
    """The array of an `.npy` file, or the only one of an `.npz` file."""
    found = _load(source)
    if not isinstance(found, Mapping):
        return found
    if len(found) == 1:
        return next(iter(found.values()))
    raise InputError(f"the file holds {len(found)} arrays ({_listed(found)}); one is expected", source)


def load_images(archive: str | None, inputs: str | None, labels: str | None) -> Images:
    """Images from an `.npz` file with both arrays, or from two files.  Raises InputError, naming the file."""
    if (archive is None) == (inputs is None or labels is None) or (archive and (inputs or labels)):
        raise InputError("give either an .npz file with images and labels, or both --inputs and --labels")
    source = str(archive or inputs)
    pair = _pair(source) if labels is None else (load_array(source), load_array(labels))
    try:
        return Images.of(*pair)
    except InputError as error:
        raise error.located(source)  # noqa: B904 (the same error, with its file)


def _pair(source: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images and labels of an archive: by their names, or the only two arrays, of which one is a list."""
    found = _load(source)
    if not isinstance(found, Mapping):
        raise InputError("the file holds one array, the images; give the labels too: --inputs X --labels Y", source)
    for x, y in NAMES:
        if x in found and y in found:
            return found[x], found[y]
    if len(found) == 2:
        labels, images = sorted(found.values(), key=lambda array: array.size)
        if images.ndim > 1 and len(images) == labels.size:
            return images, labels
    known = ", ".join(f"{x} and {y}" for x, y in NAMES)
    raise InputError(f"which of its arrays ({_listed(found)}) are images and labels? Names are {known}", source)


def _load(source: str) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of an `.npy` file, or those of an `.npz` file by their names."""
    try:
        with open(source, "rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            return {name: np.asarray(found[name]) for name in found.files}
    except OSError as error:
        raise InputError(f"the input cannot be read: {error.strerror or error}", source) from error
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputError("the input is not a NumPy file of numbers", source) from error


def _listed(found: Mapping[str, object]) -> str:
    return ", ".join([*found][:3]) + (", ..." if len(found) > 3 else "")
