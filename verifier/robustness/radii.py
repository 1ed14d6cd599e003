"""The radii of many images: how the certified accuracy falls as the radius grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from verifier.loading import Original
from verifier.output import text_table
from verifier.pipeline import Groundwork, Request
from verifier.property.property import Boxes
from verifier.result.result import PHASES, Circumstances
from verifier.result.status import Status
from verifier.result.verdict import Reason
from verifier.robustness.accuracy import percentage
from verifier.robustness.bisection import Aim, Bisection, Reach
from verifier.robustness.images import Images, classes
from verifier.robustness.neighbourhood import Neighbourhood
from verifier.robustness.place import Place
from verifier.robustness.radius import Radius

ROWS = 12
"""Radii in the table."""


@dataclass(frozen=True, slots=True)
class ImageRadius:
    """The radius of one image; none if the network gives it another class than its own."""

    index: int
    label: int
    own: int
    radius: Radius | None = None
    seconds: float = 0.0

    def line(self) -> str:
        """In one line."""
        if self.radius is None:
            return f"image {self.index}, class {self.label}: misclassified as {self.own}"
        ends = [_text(end) for end in (self.radius.certified, self.radius.falsified)]
        text = f"certified {ends[0]:>9}, falsified {ends[1]:>9} {self.seconds:7.1f} s"
        return f"{text}  image {self.index}, class {self.label}"


@dataclass(frozen=True, slots=True)
class Radii(Circumstances):
    """What is known of the images that were reached.

    Guarantees: those of `Radius`, for each.
    """

    norm: str
    radii: tuple[ImageRadius, ...] = ()
    images: int = 0  # that were asked for
    reason: Reason | None = None  # why some were not reached

    def certified_at(self, eps: float) -> float:
        """The share of images that are certified at a radius."""
        return self._share(lambda radius: radius.certified is not None and radius.certified >= eps)

    def attacked_at(self, eps: float) -> float:
        """The share of images that no known counterexample refutes at a radius."""
        return self._share(lambda radius: radius.falsified is None or radius.falsified > eps)

    def _share(self, holds: Callable[[Radius], bool]) -> float:
        found = sum(image.radius is not None and holds(image.radius) for image in self.radii)
        return found / len(self.radii) if self.radii else 0.0

    @property
    def ends(self) -> tuple[float, ...]:
        """All radii at which one of both shares falls, in order."""
        pairs = [(i.radius.certified, i.radius.falsified) for i in self.radii if i.radius is not None]
        return tuple(sorted({end for pair in pairs for end in pair if end is not None}))

    def lines(self) -> list[str]:
        """A table of radii and shares."""
        count, largest = len(self.radii), max(self.ends, default=0.0)
        rows = [["eps", "certified", "attacked"]]
        for k in range(ROWS + 1):
            eps = float(f"{largest * k / ROWS:.2g}")
            shares = (round(share * count) for share in (self.certified_at(eps), self.attacked_at(eps)))
            row = [f"{eps:g}", *(percentage(share, count) for share in shares)]
            rows += [row] if row[0] != rows[-1][0] else []
        words = {Reason.INTERRUPTED: "interrupted, ", Reason.TIMEOUT: "the time limit was reached, "}
        ended = "" if self.reason is None else words.get(self.reason, f"{self.reason.value}, ")
        return [*text_table(rows), f"{ended}{count} of {self.images} images, {self.time.get('total', 0.0):.1f} s"]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"Radii({len(self.radii)} of {self.images} images, norm {self.norm})"

    @property
    def answered(self) -> bool:
        return bool(self.radii)

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        images = [
            {"index": i.index, "label": i.label, "own": i.own, "seconds": round(i.seconds, 6)}
            | {name: getattr(i.radius, name, None) for name in ("certified", "falsified")}
            for i in self.radii
        ]
        curve = [[eps, self.certified_at(eps), self.attacked_at(eps)] for eps in self.ends]
        head = {"norm": self.norm, "reason": None if self.reason is None else self.reason.value}
        return head | self.around(PHASES, {"images": images, "curve": curve})


def _text(end: float | None) -> str:
    return "-" if end is None else f"{end:g}"


@dataclass(eq=False)
class Sweep:
    """Image after image; what is known can be drawn up at any time, also from another thread."""

    request: Request
    status: Status
    model: Original
    images: Images
    around: Neighbourhood
    aim: Aim = field(default_factory=Aim)
    hear: Callable[[ImageRadius], None] = lambda image: None
    done: tuple[ImageRadius, ...] = ()

    def result(self, reason: Reason | None = None) -> Radii:
        """What is known now."""
        missing = len(self.done) < len(self.images)
        ended = reason if missing else None
        return Radii(self.around.norm, self.done, len(self.images), ended, **self.status.circumstances())

    def run(self) -> Radii:
        """The radius of every image; the time limit of the request is that of each."""
        own = classes(self.model, self.images.x, self.around.scaling).tolist()
        pairs = list(zip(self.images.labels.tolist(), own, strict=True))
        shape = self.model.input_shape
        places = {
            index: Place.of(self.model, self.images.x[index].reshape(shape), label, self.around)
            for index, (label, mine) in enumerate(pairs)
            if label == mine
        }
        with self.status.phase("load"):
            reach = _reach(list(places.values()), self.aim, self.request.seed) if places else None
        for index, (label, mine) in enumerate(pairs):
            began, found = time.monotonic(), None
            if index in places:
                found = Bisection(self.request, self.request.status(), places[index], self.aim, reach).run()
            image = ImageRadius(index, label, mine, found, time.monotonic() - began)
            self.done = (*self.done, image)
            self.hear(image)
        return self.result()


def _reach(places: list[Place], aim: Aim, seed: int) -> Reach:
    """The groundwork for the first balls of all places, made for a box that is a little larger than all of them."""
    first = places[0]
    eps = max(place.first(aim.most) for place in places)
    stds = first.around.scaling.floats(first.centre.shape)[1]
    points = np.stack([place.own.astype(np.float64) for place in places])
    room = 1.01 * float(eps) / stds + 1e-3 * (1 + np.abs(points).max(axis=0))
    low, high = (points.min(axis=0) - room)[None], (points.max(axis=0) + room)[None]
    prop = first.property(eps)
    work = Groundwork.of(first.model, replace(prop, boxes=Boxes.enclosed((low, low), (high, high))))
    for boxes in (prop.boxes, Boxes.enclosed((low, low), (high, high))):
        work.check(first.model, boxes, seed)
    return Reach(Fraction(eps), work)
