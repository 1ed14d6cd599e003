"""A data set as a batch: a property for every image that the network classifies correctly.

The folder of the results holds the properties (`properties/`), and `dataset.json` with the question and the images.
Results that answer another question (other images, another radius) are refused, as in every batch; more images, or a
network that changed, are not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verifier.batch.display import Telling
from verifier.batch.instances import Instance
from verifier.batch.records import Record
from verifier.errors import InputError
from verifier.files import blamed, digest
from verifier.network.models.onnx import OnnxModel
from verifier.output import aside
from verifier.property.robustness import Number
from verifier.robustness.accuracy import WORDS, Score
from verifier.robustness.images import Images, check_fits, classes
from verifier.robustness.listing import FILE, PROPERTIES, DataSet, ListedImage, outcome_of, read_dataset
from verifier.robustness.neighbourhood import Neighbourhood


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
        name = f"{PROPERTIES}/image_{index:05}.{'vnnlib' if self.around.norm == 'inf' else 'json'}.gz"
        if name in known and (place / name).is_file() and digest((place / name).read_bytes()) == known[name]:
            return ListedImage(index, label, own, name, known[name])
        centre = self.images.x[index].reshape(self.model.input_shape)
        try:
            text = self.around.text(centre, label, self.model.n_out, self.eps)
        except InputError as error:
            raise InputError(f"image {index}: {error}") from error
        packed = gzip.compress(text.encode(), 6, mtime=0)
        _write(place / name, packed)
        return ListedImage(index, label, own, name, digest(packed))


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
        self._outcomes = {image.index: outcome_of(image, None) for image in data.images}
        self._last = 0

    def hear(self, record: Record) -> None:
        image = self._images.get(record.vnnlib)
        if image is not None:
            self._outcomes[image.index] = outcome_of(image, record)
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
