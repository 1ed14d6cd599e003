"""The paper's data folder as VNN-LIB properties.

For complete verification it holds properties_NAME.csv (one line per property: image, label, target class and radius)
with images.npz; for incomplete verification NETWORK_images.npz (images, labels, one radius).  Networks are in onnx/.

requires:   images as the networks take them, radii in the same space
guarantees: the box of a property is the centre plus and minus the radius, clipped only where the data say so.  All
            decimals are exact: a float32 or float64 value is a finite decimal, and so are sums of them
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError

EXACT = Context(prec=2000, traps=[Inexact])
Ends = tuple[Fraction, Fraction]


@dataclass(frozen=True, eq=False)
class Ball:
    """A class that must win against some others in a ball of the maximum norm."""

    name: str
    centre: NDArray[np.float32]
    radius: Fraction
    label: int
    targets: tuple[int, ...]
    clip: Ends | None = None

    def box(self) -> list[Ends]:
        """The ends of every input, flat in C order."""
        ends = [(Fraction(x) - self.radius, Fraction(x) + self.radius) for x in self.centre.reshape(-1).tolist()]
        if self.clip is None:
            return ends
        low, high = self.clip
        return [(max(a, low), min(b, high)) for a, b in ends]

    def vnnlib(self, classes: int) -> str:
        """The text of the property: a point is unsafe if the label is not above one of the targets."""
        box = self.box()
        lines = [f"; {self.name}: class {self.label} against {', '.join(map(str, self.targets))}"]
        lines += [f"(declare-const X_{i} Real)" for i in range(len(box))]
        lines += [f"(declare-const Y_{j} Real)" for j in range(classes)]
        for i, (low, high) in enumerate(box):
            lines.append(f"(assert (>= X_{i} {exact_text(low)}))")
            lines.append(f"(assert (<= X_{i} {exact_text(high)}))")
        unsafe = [f"(<= Y_{self.label} Y_{target})" for target in self.targets]
        if len(unsafe) == 1:
            return "\n".join([*lines, f"(assert {unsafe[0]})", ""])
        return "\n".join([*lines, "(assert (or", *(f"    (and {atom})" for atom in unsafe), "))", ""])


def exact_text(value: Fraction) -> str:
    """The plain decimal of a value.  Raises decimal.Inexact for one that no decimal equals."""
    text = format(EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)), "f")
    return text if "." in text else text + ".0"


@dataclass(frozen=True)
class DataFolder:
    """The folder of the data."""

    path: Path

    def check(self) -> None:
        """Raises InputError if this cannot be the folder."""
        if not (self.path / "images.npz").is_file() or not (self.path / "onnx").is_dir():
            what = "this is not the folder of the paper's data: it has no images.npz, or no folder onnx"
            raise InputError(what, self.path)

    def network(self, onnx: str) -> Path:
        return self.path / "onnx" / f"{onnx}.onnx"

    def listed(self, table: str) -> Iterator[Ball]:
        """The properties of a csv file: one target each.  Radii are the decimals of the file."""
        images = np.load(self.path / "images.npz")
        place = {int(number): i for i, number in enumerate(images["idx"])}
        centres = images["images"]
        with (self.path / f"{table}.csv").open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                centre = centres[place[int(line["idx"])]]
                radius, label = Fraction(line["eps_normalised"]), int(line["label"])
                yield Ball(line["row"], centre, radius, label, (int(line["target"]),))

    def pictured(self, onnx: str, classes: int) -> Iterator[Ball]:
        """The images of an npz file: the label against all other classes.  The radius is the float of the file."""
        data = np.load(self.path / f"{onnx}_images.npz")
        radius, clip = Fraction(float(data["eps_input"])), data["clip"].tolist()
        finite = None if np.isinf(clip).all() else (Fraction(clip[0]), Fraction(clip[1]))
        for i, (centre, label) in enumerate(zip(data["images"], data["labels"].tolist(), strict=True)):
            others = tuple(k for k in range(classes) if k != label)
            yield Ball(str(i), centre, radius, label, others, finite)


def write_properties(folder: Path, balls: Sequence[Ball], classes: int) -> list[Path]:
    """One compressed file per property, NAME.vnnlib.gz; those that are there already are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{ball.name}.vnnlib.gz" for ball in balls]
    for ball, path in zip(balls, paths, strict=True):
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(gzip.compress(ball.vnnlib(classes).encode(), mtime=0))
            part.replace(path)
    return paths


def write_instances(path: Path, network: Path, properties: Sequence[Path], seconds: float) -> None:
    """A list of instances as VNN-COMP writes it; properties lie below the list."""
    names = [prop.relative_to(path.parent).as_posix().removesuffix(".gz") for prop in properties]
    path.write_text("".join(f"{network.resolve()},{name},{seconds:g}\n" for name in names), encoding="utf-8")
