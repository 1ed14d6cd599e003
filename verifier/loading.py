"""From files or arrays to an instance: a network in its original form, and a property."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from os import PathLike

import torch
from torch import nn

from verifier.arguments import path_name
from verifier.errors import InputError
from verifier.files import digest, read_stored, unpacked
from verifier.network.models.module import ModuleModel
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.precision import default_dtype
from verifier.property.arrays import Numbers, Unsafe, box_arrays, check_shape, clause_arrays, property_of_arrays
from verifier.property.property import Property
from verifier.property.vnnlib import parse

Original = OnnxModel | ModuleModel
"""A network as the user has it."""
Source = str | PathLike[str] | nn.Module


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A network in its original form, and a property."""

    model: Original
    property: Property
    property_sha256: str | None = None


class Given(ABC):
    """An instance as it was given; nothing is loaded yet."""

    @abstractmethod
    def load(self) -> Loaded:
        """Network and property.  Raises InputError for those that cannot be used."""

    @property
    def names(self) -> tuple[str | None, str | None]:
        """The files of network and property, where there are any."""
        return None, None


@dataclass(frozen=True, slots=True)
class GivenFiles(Given):
    """An ONNX and a VNN-LIB file."""

    network: str
    prop: str

    def load(self) -> Loaded:
        model, raw = load_onnx(self.network), read_stored(self.prop)
        return Loaded(model, parse(unpacked(raw, self.prop), self.prop), digest(raw))

    @property
    def names(self) -> tuple[str | None, str | None]:
        return self.network, self.prop


@dataclass(frozen=True, eq=False)
class GivenArrays(Given):
    """A module or an ONNX file, an input box, and unsafe outputs (see `verify`); None are no clauses at all."""

    network: str | nn.Module
    lower: Numbers
    upper: Numbers
    unsafe: Unsafe | None = None
    usual: torch.dtype = field(default_factory=torch.get_default_dtype)  # the user's, with which a module is run

    def load(self) -> Loaded:
        box = box_arrays(self.lower, self.upper)
        clauses = [] if self.unsafe is None else clause_arrays(self.unsafe)
        shape = box[0].shape
        if isinstance(self.network, nn.Module):
            with default_dtype(self.usual):
                model: Original = _sampled(self.network, shape)
        else:
            model = load_onnx(self.network)
            check_shape(shape, model.input_shape)
        return Loaded(model, property_of_arrays(box, clauses, (model.n_in, model.n_out)))

    @property
    def names(self) -> tuple[str | None, str | None]:
        return None if isinstance(self.network, nn.Module) else self.network, None


def given(
    network: Source,
    prop: str | PathLike[str] | None,
    box: tuple[Numbers | None, Numbers | None],
    unsafe: Unsafe | None,
    needs_unsafe: bool = True,
) -> Given:
    """Files or arrays, whichever there are; raises InputError for both or none, and for what is neither."""
    lower, upper = box
    if not isinstance(network, nn.Module):
        network = path_name(network, "an ONNX file or a torch module")
    if prop is not None:
        if not (lower is None and upper is None and unsafe is None):
            raise InputError("give either a VNN-LIB file, or lower, upper and unsafe, not both")
        if isinstance(network, nn.Module):
            raise InputError("a torch module needs a box and unsafe outputs, not a VNN-LIB file")
        return GivenFiles(network, path_name(prop, "a VNN-LIB file"))
    if lower is None or upper is None or (needs_unsafe and unsafe is None):
        raise InputError(
            f"give either a VNN-LIB file, or lower{', upper and unsafe' if needs_unsafe else ' and upper'}"
        )
    return GivenArrays(network, lower, upper, unsafe)


def _sampled(module: nn.Module, shape: tuple[int, ...]) -> ModuleModel:
    """The module for samples of that shape; a batch axis of 1 in it is noticed if the module needs it to be."""
    model = ModuleModel(module, (1, *shape))
    try:
        _ = model.output_shape
    except InputError:
        if shape[:1] != (1,):
            raise
        model = ModuleModel(module, shape)
        _ = model.output_shape
    return model
