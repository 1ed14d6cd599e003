"""A data set in the folder of its results: which images, what is asked about them, and what is known.  No torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.batch.instances import Instance
from verifier.batch.records import Record
from verifier.errors import InputError
from verifier.files import blamed, stored
from verifier.robustness.accuracy import Accuracy, ImageOutcome

FILE = "dataset.json"
PROPERTIES = "properties"
"""The folder of the properties, beside the results."""


@dataclass(frozen=True, slots=True)
class ListedImage:
    """An image with its class, the network's own class at it, and the file of its property if these are the same."""

    index: int
    label: int
    own: int
    file: str | None = None  # relative to the folder
    sha256: str | None = None  # of the property's file

    @property
    def category(self) -> str:
        """The family in which a batch counts it."""
        return f"class {self.label}"


@dataclass(frozen=True, slots=True)
class DataSet:
    """What is asked about which images of which network: what stands in `dataset.json`."""

    network: str
    question: Mapping[str, Any]
    images: tuple[ListedImage, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image as it was given."""
        return tuple(self.question["shape"])

    def instances(self, folder: str, timeout: float | None) -> tuple[Instance, ...]:
        """One for every property."""
        network = os.path.realpath(stored(self.network))
        return tuple(
            Instance(
                image.category,
                self.network,
                image.file,
                network,
                os.path.realpath(os.path.join(folder, image.file)),
                timeout,
            )
            for image in self.images
            if image.file is not None
        )

    def accuracy(self, records: Iterable[Record], folder: str | None = None, interrupted: bool = False) -> Accuracy:
        """What results say about the images."""
        known = {record.vnnlib: record for record in records}
        outcomes = [outcome_of(image, known.get(image.file or "")) for image in self.images]
        question = self.question
        return Accuracy(self.network, question["eps"], question["norm"], tuple(outcomes), folder, interrupted)


def outcome_of(image: ListedImage, record: Record | None) -> ImageOutcome:
    """What a result says about an image; None: nothing is known yet."""
    if record is None:
        return ImageOutcome(image.index, image.label, image.own)
    point = record.witness
    other = None if point is None else max(range(len(point.y)), key=point.y.__getitem__)
    x = None if point is None else point.x
    return ImageOutcome(image.index, image.label, image.own, record.verdict, record.run_time, other, x)


def read_dataset(folder: Path) -> DataSet | None:
    """What `dataset.json` of a folder says; None if there is none.  Raises InputError if it cannot be read."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with blamed("cannot be read", path):
            data = json.loads(path.read_bytes())
        images = tuple(ListedImage(**image) for image in data["images"])
        question = {name: data["question"][name] for name in ("eps", "norm", "shape")} | data["question"]
        return DataSet(str(data["network"]), question, images)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError("this is not the list of a data set; --fresh starts anew", path) from error
