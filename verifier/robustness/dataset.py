"""A data set as a batch: a property for every image that the network classifies correctly.

The folder of the results holds the properties (`properties/`), and `dataset.json` with the question and the images.
Results that answer another question (other images, another radius) are refused, as in every batch; more images, or a
network that changed, are not.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verifier.batch.display import Telling
from verifier.batch.instances import Instance
from verifier.batch.records import Record
from verifier.errors import InputError
from verifier.files import blamed, digest, stored
from verifier.network.models.onnx import OnnxModel
from verifier.output import aside
from verifier.property.robustness import Number
from verifier.robustness.accuracy import WORDS, Accuracy, ImageOutcome, Score
from verifier.robustness.images import Images, check_fits, classes
from verifier.robustness.neighbourhood import Neighbourhood

FILE = "dataset.json"
PROPERTIES = "properties"


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
        outcomes = [_outcome(image, known.get(image.file or "")) for image in self.images]
        question = self.question
        return Accuracy(self.network, question["eps"], question["norm"], tuple(outcomes), folder, interrupted)


def _outcome(image: ListedImage, record: Record | None) -> ImageOutcome:
    if record is None:
        return ImageOutcome(image.index, image.label, image.own)
    point = record.witness
    other = None if point is None else max(range(len(point.y)), key=point.y.__getitem__)
    x = None if point is None else point.x
    return ImageOutcome(image.index, image.label, image.own, record.verdict, record.run_time, other, x)


@dataclass(frozen=True, slots=True, eq=False)
class Inquiry:
    """How robust is a network at these images?"""

    model: OnnxModel
    name: str  # of the network, as it was given
    images: Images
    eps: Number
    around: Neighbourhood
    limit: int | None = None

    def __post_init__(self) -> None:
        check_fits(self.images.shape, self.model.input_shape)
        count = self.model.n_out
        wrong = [label for label in self.images.labels.tolist() if not 0 <= label < count]
        if wrong:
            raise InputError(f"label {wrong[0]} is not one of the network's {count} classes")

    @property
    def question(self) -> dict[str, Any]:
        """What results must agree in to stand in one folder."""
        return {
            "eps": str(self.eps),
            **self.around.as_dict(),
            "shape": list(self.images.shape),
            "images_sha256": self.images.sha256,
        }

    def listed(self, folder: str, fresh: bool = False) -> DataSet:
        """Writes what is not there yet, or `fresh` everything: the properties, then `dataset.json`.

        Requires: the folder is there, and no other process writes to it.  Raises InputError if it holds the answers to
        another question.
        """
        place = Path(folder)
        before = None if fresh else read_dataset(place)
        if before is not None and (difference := _difference(before.question, self.question)):
            raise InputError(
                f"the folder holds results {difference}; --fresh starts anew, another --out keeps both", folder
            )
        known = {} if before is None else {image.file: image.sha256 for image in before.images}
        some = self.images.first(self.limit)
        own = classes(self.model, some.x, self.around.scaling)
        with blamed("the folder of the properties cannot be made", place / PROPERTIES):
            (place / PROPERTIES).mkdir(exist_ok=True)
        listed = [
            self._listed(place, i, int(label), int(mine), known)
            for i, (label, mine) in enumerate(zip(some.labels, own, strict=True))
        ]
        found = DataSet(self.name, self.question, tuple(listed))
        text = json.dumps({"network": found.network, "question": found.question, "images": list(map(asdict, listed))})
        _write(place / FILE, text.encode())
        return found

    def _listed(self, place: Path, index: int, label: int, own: int, known: Mapping[Any, str | None]) -> ListedImage:
        if own != label:
            return ListedImage(index, label, own)
        name = f"{PROPERTIES}/image_{index:05}.vnnlib.gz"
        if name in known and (place / name).is_file() and digest((place / name).read_bytes()) == known[name]:
            return ListedImage(index, label, own, name, known[name])
        centre = self.images.x[index].reshape(self.model.input_shape)
        try:
            text = self.around.property(centre, label, self.model.n_out, self.eps).vnnlib()
        except InputError as error:
            raise InputError(f"image {index}: {error}") from error
        packed = gzip.compress(text.encode(), 6, mtime=0)
        _write(place / name, packed)
        return ListedImage(index, label, own, name, digest(packed))


def read_dataset(folder: Path) -> DataSet | None:
    """What `dataset.json` of a folder says; None if there is none.  Raises InputError if it cannot be read."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with blamed("cannot be read", path):
            data = json.loads(path.read_bytes())
        images = tuple(ListedImage(**image) for image in data["images"])
        found = DataSet(data["network"], data["question"], images)
        return found if {"eps", "norm", "shape"} <= found.question.keys() else None
    except (ValueError, TypeError, KeyError) as error:
        raise InputError("this is not the list of a data set; --fresh starts anew", path) from error


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    for name in now:
        if before.get(name) != now[name]:
            if name in ("images_sha256", "shape"):
                return "about other images"
            return f"with {name} {_shown(before.get(name))} instead of {_shown(now[name])}"
    return None


def _shown(value: object) -> str:
    return "none" if value is None else " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _write(path: Path, data: bytes) -> None:
    with blamed("cannot be written", path), aside(str(path)) as temporary:
        temporary.write_bytes(data)


class ImageTelling(Telling):
    """Speaks of images, with the accuracies so far: of the images up to the last one that is done."""

    def __init__(self, data: DataSet) -> None:
        super().__init__()
        self._images = {image.file: image for image in data.images if image.file is not None}
        self._outcomes = {image.index: _outcome(image, None) for image in data.images}
        self._last = 0

    def hear(self, record: Record) -> None:
        image = self._images.get(record.vnnlib)
        if image is not None:
            self._outcomes[image.index] = _outcome(image, record)
            self._last = max(self._last, image.index)

    def note(self, record: Record) -> None:
        self.hear(record)

    def line(self, record: Record) -> str:
        image = self._images[record.vnnlib]
        text = f"{WORDS[record.verdict]:<9} {record.run_time:7.2f} s  image {image.index}, class {image.label}"
        return f"{text}; {self.score()}"

    def score(self) -> str:
        found = Score.of(outcome for index, outcome in self._outcomes.items() if index <= self._last)
        certified, attacked = (100 * found.share(n) for n in (found.certified, found.standing))
        return f"certified {certified:.0f} %, attacked {attacked:.0f} %"

    def name(self, instance: Instance) -> str:
        image = self._images[instance.vnnlib]
        return f"image {image.index}, class {image.label}"
