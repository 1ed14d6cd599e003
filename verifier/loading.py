"""From files or arrays to an instance: a network in its original form, and a property."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import torch
from torch import nn

from verifier.arguments import path_name
from verifier.defaults import default_dtype
from verifier.errors import InputError
from verifier.network.models.module import ModuleModel
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.property.arrays import Numbers, Unsafe, box_arrays, check_shape, clause_arrays, property_of_arrays
from verifier.property.property import Property
from verifier.property.vnnlib import load_property

Model = OnnxModel | ModuleModel
Source = str | PathLike[str] | nn.Module


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A network in its original form, and a property."""

    model: Model
    property: Property
    property_sha256: str | None = None


Loader = Callable[[], Instance]


def loader(
    network: Source,
    prop: str | PathLike[str] | None,
    box: tuple[Numbers | None, Numbers | None],
    unsafe: Unsafe | None,
    needs_unsafe: bool = True,
) -> Loader:
    """Files or arrays, whichever is given; raises InputError for both or none, and for what is neither."""
    lower, upper = box
    if not isinstance(network, nn.Module):
        network = path_name(network, "an ONNX file or a torch module")
    if prop is not None:
        if not (lower is None and upper is None and unsafe is None):
            raise InputError("give either a VNN-LIB file, or lower, upper and unsafe, not both")
        if isinstance(network, nn.Module):
            raise InputError("a torch module needs a box and unsafe outputs, not a VNN-LIB file")
        return from_files(network, path_name(prop, "a VNN-LIB file"))
    if lower is None or upper is None or (needs_unsafe and unsafe is None):
        raise InputError(
            f"give either a VNN-LIB file, or lower{', upper and unsafe' if needs_unsafe else ' and upper'}"
        )
    return from_arrays(network, lower, upper, unsafe)


def from_files(network: str | PathLike[str], prop: str | PathLike[str]) -> Loader:
    """Loads an instance from an ONNX and a VNN-LIB file."""

    def load() -> Instance:
        return Instance(load_onnx(network), load_property(prop), _digest(Path(prop)))

    return load


def from_arrays(network: Source, lower: Numbers, upper: Numbers, unsafe: Unsafe | None) -> Loader:
    """Takes a module or an ONNX file, an input box, and unsafe outputs (see `verify`); None are no clauses at all."""
    usual = torch.get_default_dtype()  # the user's, with which a module is to be run

    def load() -> Instance:
        box, clauses = box_arrays(lower, upper), [] if unsafe is None else clause_arrays(unsafe)
        shape = box[0].shape
        if isinstance(network, nn.Module):
            with default_dtype(usual):
                model: Model = _sampled(network, shape)
        else:
            model = load_onnx(network)
            check_shape(shape, model.input_shape)
        return Instance(model, property_of_arrays(box, clauses, (model.n_in, model.n_out)))

    return load


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


def file_name(source: Source | None) -> str | None:
    """The path of a network or property as text; None for a module or for nothing."""
    return None if source is None or isinstance(source, nn.Module) else fspath(source)


def _digest(path: Path) -> str:
    """SHA-256 of a property's file as it lies there, compressed or not."""
    found = path if path.exists() else path.with_name(path.name + ".gz")
    return hashlib.sha256(found.read_bytes()).hexdigest()
