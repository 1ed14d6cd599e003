"""From files or arrays to an instance: a network in its original form, and a property."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike

import numpy as np
import torch
from torch import nn

from verifier.arguments import path_name, shown
from verifier.errors import InputError
from verifier.files import digest, read_stored, stored, unpacked
from verifier.naming import Pairs, networks_of, paths_of, text_of
from verifier.network.models.identity import digest_of_several
from verifier.network.models.module import ModuleModel, unwrapped
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.pixels import is_flat
from verifier.precision import default_dtype
from verifier.property.arrays import Around, InputSet, Numbers, Unsafe, check_shape, clause_arrays, property_of_arrays
from verifier.property.joining import JointModel, check_declared
from verifier.property.joint import NamedNetwork
from verifier.property.property import Property
from verifier.property.robustness import Robustness, robustness_of
from verifier.property.vnnlib import parse

log = logging.getLogger(__name__)

Original = OnnxModel | ModuleModel | JointModel
"""A network as the user has it."""
Source = str | PathLike[str] | nn.Module | Mapping[str, str | PathLike[str]]


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
    """An ONNX and a VNN-LIB file; in the place of the first there may be several (`verifier.naming`).

    In the place of the second there may be a statement of local robustness (`LocalRobustness.as_json`).
    """

    network: str
    prop: str

    def load(self) -> Loaded:
        for path in paths_of(self.network):
            if not stored(path).is_file():  # that is said before anything is read
                read_stored(path)
        raw = read_stored(self.prop)
        text = unpacked(raw, self.prop)
        try:
            near = robustness_of(text)
            if near is not None:
                return replace(GivenRobustness(self.network, near, self.prop).load(), property_sha256=digest(raw))
        except InputError as error:
            raise error.located(self.prop)  # noqa: B904 (the same error, with its file)
        prop = parse(text, self.prop)
        return Loaded(load_networks(self.network, prop), prop, digest(raw))

    @property
    def names(self) -> tuple[str | None, str | None]:
        return self.network, self.prop


@dataclass(frozen=True, eq=False)
class GivenArrays(Given):
    """A module or an ONNX file, an input set, and unsafe outputs (see `verify`); None are no clauses at all."""

    network: str | nn.Module
    lower: Numbers | None
    upper: Numbers | None
    unsafe: Unsafe | None = None
    around: Around | None = None
    usual: torch.dtype = field(default_factory=torch.get_default_dtype)  # the user's, with which a module is run
    source: str | None = None  # what messages about the arrays name, if they come from files

    def load(self) -> Loaded:
        try:
            inputs = InputSet.of(self.lower, self.upper, self.around)
            clauses = [] if self.unsafe is None else clause_arrays(self.unsafe)
            model = model_for(self.network, inputs.shape, self.usual)
        except InputError as error:
            raise error if self.source is None else error.located(self.source)  # noqa: B904 (the same error)
        return Loaded(model, property_of_arrays(inputs, clauses, (model.n_in, model.n_out)))

    @property
    def names(self) -> tuple[str | None, str | None]:
        return None if isinstance(self.network, nn.Module) else self.network, None


@dataclass(frozen=True, eq=False)
class GivenRobustness(Given):
    """A module or an ONNX file, and points near an input that must keep their class.

    `near` need not know yet how many classes there are, and its label may be None: the class that the network gives to
    the centre.  `source` is the file of the centre, if it comes from one.
    """

    network: str | nn.Module
    near: Robustness
    source: str | None = None
    usual: torch.dtype = field(default_factory=torch.get_default_dtype)  # as of `GivenArrays`

    def load(self) -> Loaded:
        model, task = self.stated()
        return Loaded(task.fronted(model), task.property())

    def stated(self) -> tuple[OnnxModel | ModuleModel, Robustness]:
        """The network, and what is asked of it.  Warns if it gives another class to the centre: then it cannot hold."""
        try:
            model = self._model()
        except InputError as error:
            raise error if self.source is None else error.located(self.source)  # noqa: B904 (the same error)
        centre = self.near.centre
        keeps = isinstance(model, ModuleModel) or (is_flat(model.input_shape) and not is_flat(centre.shape))
        shaped = centre if keeps else centre.reshape(model.input_shape)
        task = replace(self.near, centre=shaped, classes=model.n_out)
        own = own_class(model, task)
        label = own if task.label is None else task.label
        if own != label:
            log.warning("%s: the network's own class at the input is %d, not %d", self.source or "x", own, label)
        return model, replace(task, label=label)

    def _model(self) -> OnnxModel | ModuleModel:
        """The network for inputs of the centre's shape; an image may stand for the flat input that it is."""
        centre = self.near.centre
        try:
            return model_for(self.network, centre.shape, self.usual)
        except InputError:
            if not is_flat(centre.shape):
                with contextlib.suppress(InputError):
                    model = model_for(self.network, (centre.size,), self.usual)
                    if is_flat(model.input_shape):
                        return model
            raise

    @property
    def names(self) -> tuple[str | None, str | None]:
        return None if isinstance(self.network, nn.Module) else self.network, None


def own_class(model: OnnxModel | ModuleModel, task: Robustness) -> int:
    """The class that a network gives to the centre."""
    return int(np.argmax(model.run(np.array([float(value) for value in task.point()], np.float32))))


def model_for(network: str | nn.Module, shape: tuple[int, ...], usual: torch.dtype) -> OnnxModel | ModuleModel:
    """A network for inputs of that shape.  Raises InputError if it takes others."""
    if isinstance(network, nn.Module):
        with default_dtype(usual):
            return sampled(network, shape)
    model = load_onnx(network, declared=(shape,))
    try:
        check_shape(shape, model.input_shape)
    except InputError:  # an open batch axis has taken a number from the array, which would only confuse
        check_shape(shape, load_onnx(network).input_shape)
        raise
    return model


def load_networks(text: str, prop: Property) -> OnnxModel | JointModel:
    """The network of a property, or all of them as one.  Raises InputError if files and declarations do not match."""
    given = networks_of(text)
    if given is not None and len(given) == 1:
        text, given = given[0][1], None
    declared = () if prop.joint is None else prop.joint.networks
    if len(declared) < 2:
        if given is not None:
            raise InputError(f"{len(given)} networks are given, but the property speaks of one")
        model = load_onnx(text, declared=prop.tensors)
        if prop.variables is not None:
            check_declared(model, _alone(prop) if prop.joint is None else declared[0])
        return model if prop.joint is None else JointModel({declared[0].name: model}, prop.joint, model.sha256)
    assert prop.joint is not None
    files = _files_of(declared, text, given)
    models: dict[str, OnnxModel] = {}
    for network in declared:
        known = next((name for name in models if files[name] == files[network.name]), None)
        repeats = known is not None and _network(declared, known).inputs == network.inputs
        models[network.name] = (
            models[known] if known is not None and repeats else load_onnx(files[network.name], declared=network.inputs)
        )
        check_declared(models[network.name], network)
        if network.equal_to is not None and models[network.name].sha256 != models[network.equal_to].sha256:
            raise InputError(f"'{network.name}' is equal to '{network.equal_to}', but another file is given for it")
    given = given or ((declared[0].name, text),)
    digests = [(name, models[name].sha256) for name, _ in given]
    return JointModel(models, prop.joint, digest_of_several(digests))


def _alone(prop: Property) -> NamedNetwork:
    """The only network of a property that declares tensors."""
    variables = prop.variables or ()
    inputs, outputs = (tuple(v.shape for v in variables if v.kind == kind) for kind in ("input", "output"))
    return NamedNetwork("", inputs, outputs)


def _network(declared: Sequence[NamedNetwork], name: str) -> NamedNetwork:
    return next(network for network in declared if network.name == name)


def _files_of(declared: Sequence[NamedNetwork], text: str, given: Pairs | None) -> dict[str, str]:
    """The file of every declared network; those that are equal to another one need none of their own."""
    files = {declared[0].name: text} if given is None else dict(given)
    names = [network.name for network in declared]
    for name in files:
        if name not in names:
            raise InputError(f"a network '{name}' is given, but the property declares {', '.join(names)}")
    for network in declared:
        if network.name not in files and network.equal_to is not None:
            files[network.name] = files[network.equal_to]
        if network.name not in files:
            wanted = " ".join(f"{name}=NET" for name in names)
            raise InputError(f"the property speaks of {len(names)} networks, give each its file: verify {wanted} PROP")
    return files


def given(
    network: Source,
    prop: str | PathLike[str] | None,
    inputs: tuple[Numbers | None, Numbers | None, Around | None],
    unsafe: Unsafe | None,
    needs_unsafe: bool = True,
) -> Given:
    """Files or arrays, whichever there are; raises InputError for both or none, and for what is neither."""
    lower, upper, around = inputs
    network = unwrapped(network)
    if around is not None and not isinstance(around, Around):
        raise InputError(f"around is a neighbourhood, verifier.Around(centre, eps), not {shown(around)}")
    if isinstance(network, Mapping):
        network = text_of([(str(name), path_name(path, "an ONNX file")) for name, path in network.items()])
    if not isinstance(network, nn.Module):
        network = path_name(network, "an ONNX file or a torch module")
    if prop is not None:
        if not (lower is None and upper is None and unsafe is None and around is None):
            raise InputError("give either a VNN-LIB file, or lower, upper and unsafe, not both")
        if isinstance(network, nn.Module):
            raise InputError("a torch module needs a box and unsafe outputs, not a VNN-LIB file")
        return GivenFiles(network, path_name(prop, "a VNN-LIB file"))
    boxed = lower is not None and upper is not None
    if not (boxed or around is not None) or (needs_unsafe and unsafe is None):
        raise InputError(
            f"give either a VNN-LIB file, or lower{', upper and unsafe' if needs_unsafe else ' and upper'}"
        )
    return GivenArrays(network, lower, upper, unsafe, around)


def given_robustness(network: Source, near: Robustness) -> Given:
    """One network and the points near an input.  Raises InputError for several networks, and for what is none."""
    network = unwrapped(network)
    if isinstance(network, Mapping):
        raise InputError("robustness is asked of one network, not of several")
    if not isinstance(network, nn.Module):
        network = path_name(network, "an ONNX file or a torch module")
    return GivenRobustness(network, near)


def sampled(module: nn.Module, shape: tuple[int, ...]) -> ModuleModel:
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
