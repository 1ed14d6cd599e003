"""A layer put before a network: from a few parameters to the images that they stand for, and on to its inputs.

What comes out is a network like any other, so that it can be kept as a file and verified by anybody: an ONNX graph with
a few more nodes at its beginning, or a torch module before another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from verifier.errors import InputError
from verifier.files import digest
from verifier.network.models.base import Array, SourceModel
from verifier.network.models.module import ModuleModel
from verifier.network.models.onnx import OnnxModel

_OLDEST = 7  # operator sets before it have other forms of the nodes below
_CLIP_BY_INPUTS = 11  # from this one on the ends of Clip are inputs, not attributes


@dataclass(frozen=True, eq=False)
class FrontLayer:
    """The image `offset + directions^T p`, cut off at `clip`, and then the input (image - mean) / std of a network.

    Requires: arrays in float64, flat but for `directions` [parameters, n_x].  Whatever is put before a network is
    rounded to that network's precision.
    """

    offset: Array
    directions: Array
    clip: tuple[float, float] | None
    mean: Array
    std: Array
    shape: tuple[int, ...]  # of images

    @property
    def scaled(self) -> bool:
        return bool(self.mean.any() or (self.std != 1).any())

    @property
    def parameters(self) -> int:
        return len(self.directions)


@dataclass(frozen=True, eq=False)
class Front:
    """What stands before the network that was given, by itself; both are run by their own runtime."""

    both: SourceModel  # answers with the image, and with the input that it becomes, one after the other
    behind: SourceModel  # the network that was given
    shape: tuple[int, ...]  # of images

    def image(self, p: Array) -> Array:
        """The image of parameters, before it is normalised."""
        return self.both.run(p)[: self.behind.n_in].reshape(self.shape)

    def answer(self, p: Array) -> Array:
        """What the network that was given says to that image."""
        return self.behind.run(self.both.run(p)[self.behind.n_in :].astype(self.behind.dtype))


def put_before(layer: FrontLayer, model: OnnxModel | ModuleModel) -> OnnxModel | ModuleModel:
    """The network of the parameters, which knows what it is made of.  Raises InputError if the layer does not fit."""
    found = _before_module(layer, model) if isinstance(model, ModuleModel) else _before_file(layer, model)
    found[0].front = Front(found[1], model, layer.shape)
    return found[0]


class _Image(nn.Module):
    """The input of `shape` that parameters [1, k] become; with `both` their image and that input, flat."""

    offset: torch.Tensor
    directions: torch.Tensor
    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, layer: FrontLayer, kind: torch.dtype, shape: Sequence[int], both: bool) -> None:
        super().__init__()
        self.clip, self.scaled, self.shape, self.both = layer.clip, layer.scaled, tuple(shape), both
        for name in ("offset", "directions", "mean", "std"):
            self.register_buffer(name, torch.from_numpy(getattr(layer, name)).to(kind))

    def forward(self, p: torch.Tensor) -> torch.Tensor:
        image = p @ self.directions + self.offset
        image = image if self.clip is None else image.clamp(*self.clip)
        x = (image - self.mean) / self.std if self.scaled else image
        return torch.cat([image, x], dim=1) if self.both else x.reshape(self.shape)


def _before_module(layer: FrontLayer, model: ModuleModel) -> tuple[ModuleModel, ModuleModel]:
    kind = torch.float64 if model.dtype.itemsize == 8 else torch.float32
    parts = (_Image(layer, kind, model.input_shape, both) for both in (False, True))
    size = (1, layer.parameters)
    return model.behind(next(parts), size), ModuleModel(next(parts), size)


def _before_file(layer: FrontLayer, model: OnnxModel) -> tuple[OnnxModel, OnnxModel]:
    if len(model.input_names) != 1:
        raise InputError(f"the network has {len(model.input_names)} inputs; an image is put into one", model.path)
    if model.opset < _OLDEST:
        raise InputError(f"nothing can be put before a network in operator set {model.opset}: convert it", model.path)
    whole = onnx.ModelProto()
    whole.CopyFrom(model.proto)
    nodes = _Nodes(layer, model, _free_prefix(whole.graph))
    before = [value for value in whole.graph.input if value.name != model.input_names[0]]
    own = list(whole.graph.node)
    del whole.graph.input[:], whole.graph.node[:]
    whole.graph.input.extend([nodes.source(), *before])
    whole.graph.node.extend([*nodes.nodes, *own])
    whole.graph.initializer.extend(nodes.constants)
    outputs = [nodes.value(nodes.image, nodes.flat), nodes.value(model.input_names[0], model.input_shape)]
    graph = helper.make_graph(nodes.nodes, "image", [nodes.source()], outputs, nodes.constants)
    alone = helper.make_model(graph, opset_imports=list(whole.opset_import), ir_version=whole.ir_version)
    data = [one.SerializeToString(deterministic=True) for one in (whole, alone)]
    made = [OnnxModel(model.path, one, digest(one), model.threads) for one in data]
    return made[0], made[1]


class _Nodes:
    """The nodes of a layer, which end in the input of the network, and their constants."""

    def __init__(self, layer: FrontLayer, model: OnnxModel, prefix: str) -> None:
        self._prefix, self._dtype = prefix, model.dtype
        self._kind = helper.np_dtype_to_tensor_dtype(model.dtype)
        self._parameters = layer.parameters
        self.flat = (1, model.n_in)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        moved = self._node("MatMul", [f"{prefix}parameters", self._constant("directions", layer.directions)])
        self.image = self._node("Add", [moved, self._constant("offset", layer.offset.reshape(self.flat))])
        if layer.clip is not None and model.opset >= _CLIP_BY_INPUTS:
            ends = [self._constant(name, end) for name, end in zip(("low", "high"), layer.clip, strict=True)]
            self.image = self._node("Clip", [self.image, *ends])
        elif layer.clip is not None:
            self.image = self._node("Clip", [self.image], min=layer.clip[0], max=layer.clip[1])
        x = self.image
        if layer.scaled:
            x = self._node("Sub", [x, self._constant("mean", layer.mean.reshape(self.flat))])
            x = self._node("Div", [x, self._constant("std", layer.std.reshape(self.flat))])
        shape, (name,) = model.input_shape, model.input_names
        self.constants.append(helper.make_tensor(f"{prefix}shape", TensorProto.INT64, [len(shape)], shape))
        self.nodes.append(helper.make_node("Reshape", [x, f"{prefix}shape"], [name], f"{prefix}reshape"))

    def source(self) -> onnx.ValueInfoProto:
        """The parameters."""
        return self.value(f"{self._prefix}parameters", (1, self._parameters))

    def value(self, name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, self._kind, list(shape))

    def _constant(self, name: str, value: Array | float) -> str:
        name = f"{self._prefix}{name}"
        self.constants.append(numpy_helper.from_array(torch.as_tensor(value).numpy().astype(self._dtype), name))
        return name

    def _node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{self._prefix}{kind.lower()}"
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"


def _free_prefix(graph: onnx.GraphProto) -> str:
    """A beginning that no name of the graph has."""
    names = {name for node in graph.node for name in (node.name, *node.input, *node.output)}
    names |= {one.name for part in (graph.initializer, graph.input, graph.output) for one in part}
    prefix = "front_"
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    return prefix
