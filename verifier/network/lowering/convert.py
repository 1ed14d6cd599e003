"""A normal-form ONNX model as a torch graph, by onnx2torch."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import torch
from torch import fx, nn

from verifier.errors import InputError, VerifierError, one_line
from verifier.functions import Function
from verifier.functions.names import FUNCTIONS
from verifier.network.lowering.smooth import neurons
from verifier.network.rewrite.graph import DOMAIN


class _Extremum(nn.Module):
    """Max or Min of several tensors, two at a time.  onnx2torch stacks them, which hides constants."""

    def __init__(self, largest: bool) -> None:
        super().__init__()
        self.largest = largest

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        pick = torch.maximum if self.largest else torch.minimum
        values = list(operands)
        while len(values) > 1:
            values = [pick(*values[i : i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
        return values[0]


class _BroadcastPRelu(nn.Module):
    """PRelu whose slope is broadcast from the last axis, as ONNX says; onnx2torch may take it for
    channels.
    """

    def forward(self, x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        return torch.prelu(x, slope.reshape((1,) * (x.dim() - slope.dim()) + tuple(slope.shape)))


class _Neurons(nn.Module):
    """A function of one number at every entry."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return neurons(x, self.function)


def _teach(operators: Iterable[str]) -> None:
    """Registers the functions of one number with onnx2torch, as operators of our own domain."""
    registry, common = (
        importlib.import_module(f"onnx2torch.{n}") for n in ("node_converters.registry", "utils.common")
    )

    def converted(node: Any, graph: Any) -> Any:
        function = FUNCTIONS.build(node.operation_type, dict(node.attributes))
        return common.OperationConverterResult(_Neurons(function), common.onnx_mapping_from_node(node))

    for name in operators:
        if name not in _TAUGHT:
            registry.add_converter(operation_type=name, version=1, domain=DOMAIN)(converted)
            _TAUGHT.add(name)


_TAUGHT: set[str] = set()


def to_graph_module(model: onnx.ModelProto) -> fx.GraphModule:
    """Convert a model in normal form.

    Requires what `normalise` guarantees.  The result is in evaluation mode and without gradients.
    """
    convert = load_onnx2torch().convert
    _teach({node.op_type for node in model.graph.node if node.domain == DOMAIN})
    with _without_inference(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # read-only arrays and deprecations inside onnx2torch: not the user's concern
        try:
            module: fx.GraphModule = convert(model)
        except Exception as error:  # onnx2torch raises whatever its converters run into
            raise InputError(f"onnx2torch cannot convert the network: {one_line(error)}") from error
    for name, child in list(module.named_children()):
        kind = type(child).__name__
        if kind == "OnnxMinMax":
            setattr(module, name, _Extremum(getattr(child, "_op_type", "") == "Max"))
        elif kind == "OnnxPReLU":
            setattr(module, name, _BroadcastPRelu())
    return module.eval().requires_grad_(False)


@contextlib.contextmanager
def _without_inference() -> Iterator[None]:
    """Shapes are known already; onnx2torch's own inference would only copy all weights twice."""
    converter = sys.modules.get("onnx2torch.converter")
    original = getattr(converter, "safe_shape_inference", None)
    if original is None:
        yield
        return
    try:
        converter.safe_shape_inference = lambda model: model  # type: ignore[union-attr]
        yield
    finally:
        converter.safe_shape_inference = original  # type: ignore[union-attr]


def load_onnx2torch() -> Any:
    """Import onnx2torch without torchvision.

    onnx2torch imports torchvision for two operators that are not used here.  It is large, and
    fails to import when it was built for another torch.  So an empty stand-in takes its place for the length
    of the import, and is removed afterwards: the user's own torchvision is neither loaded nor hidden.
    """
    if "onnx2torch" in sys.modules:
        return sys.modules["onnx2torch"]
    with _stand_in("torchvision"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("onnx2torch")
        except ImportError as error:
            raise VerifierError(
                "reading ONNX files needs onnx2torch, which is missing or broken: pip install onnx2torch"
            ) from error


@contextlib.contextmanager
def _stand_in(name: str) -> Iterator[None]:
    if name in sys.modules:
        yield
        return
    package, ops = types.ModuleType(name), types.ModuleType(f"{name}.ops")
    ops.roi_align = None  # type: ignore[attr-defined]
    package.ops = ops  # type: ignore[attr-defined]
    sys.modules[name], sys.modules[f"{name}.ops"] = package, ops
    try:
        yield
    finally:
        for key, stub in ((name, package), (f"{name}.ops", ops)):
            if sys.modules.get(key) is stub:
                del sys.modules[key]
