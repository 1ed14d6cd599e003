"""Brightness and contrast: how light an image is, and how far its values lie apart, may change for all pixels at once.

An image x becomes (1 + c) x + b, for all b and c in two intervals around zero: a set of two dimensions, of which a box
of the inputs knows nothing.  So the question is put to another network, which takes b and c and begins with the layer
that makes the image of them; that network is a file, and the question a property of VNN-LIB 1.0 about two inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from verifier.errors import InputError
from verifier.network.models.front import FrontLayer, put_before
from verifier.network.models.module import ModuleModel
from verifier.network.models.onnx import OnnxModel
from verifier.property.property import Property
from verifier.property.robustness import Number, Robustness, Scaling, exact_number, side_atoms
from verifier.property.vnnlib import parse


@dataclass(frozen=True, slots=True, eq=False)
class Lighting(Robustness):
    """The images (1 + c) `centre` + b with |b| <= `brightness` and |c| <= `contrast`, cut off at `clip` if it is given.

    Requires: all of it in pixel space; `clip` contains the centre.  `fronted` makes the network that `property` asks
    about: b is its first input and c the second.
    """

    brightness: Number = 0
    contrast: Number = 0
    clip: tuple[Number, Number] | None = None
    scaling: Scaling = field(default_factory=Scaling)

    def inputs(self) -> int:
        return 2

    def property(self) -> Property:
        return parse(self.vnnlib())

    def vnnlib(self) -> str:
        self._winner()
        sides = [(-most, most) for most in self._most()]
        lines = [f"(assert {atom})" for i, side in enumerate(sides) for atom in side_atoms(i, side)]
        cut = "" if self.clip is None else f", cut off at {self.clip[0]} and {self.clip[1]}"
        return self._text(f"of every image (1 + X_1) x + X_0{cut}, of the network that makes it of X_0 and X_1", lines)

    def scales(self) -> tuple[list[Fraction], list[Fraction]]:
        return self.scaling.per_value(self.centre.shape)

    def fronted(self, model: OnnxModel | ModuleModel) -> OnnxModel | ModuleModel:
        self._most()
        clip = None if self.clip is None else self._clipping(self.clip)
        ends = None if clip is None else (float(clip[0]), float(clip[1]))
        x, shape = np.array([float(value) for value in self.values()]), self.centre.shape
        layer = FrontLayer(x, np.stack([np.ones_like(x), x]), ends, *self.scaling.floats(shape), shape)
        return put_before(layer, model)

    def _most(self) -> list[Fraction]:
        """How far b and c go.  Raises InputError if one of them is negative."""
        found = []
        for name, value in (("brightness", self.brightness), ("contrast", self.contrast)):
            found.append(exact_number(value, name))
            if found[-1] < 0:
                raise InputError(f"{name} is {value}, it must not be negative")
        return found
