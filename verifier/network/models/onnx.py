"""ONNX files: read, describe, run by onnxruntime, lower to a `Network`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from onnx import helper

from verifier.errors import InputError, UnsupportedOperator, one_line
from verifier.files import read_stored, stored, unpacked
from verifier.network.lowering.convert import to_graph_module
from verifier.network.lowering.run import lower
from verifier.network.lowering.tracing import Reading
from verifier.network.models.base import Array, SourceModel
from verifier.network.models.identity import digest_of
from verifier.network.models.shapes import Declared, input_shapes
from verifier.network.models.validate import (
    TYPES,
    inputs_and_outputs,
    load_external,
    parsed,
    require_finite,
    require_sane,
)
from verifier.network.network import Network
from verifier.network.rewrite.constants import quiet_session
from verifier.network.rewrite.integers import integer_inputs
from verifier.network.rewrite.normalise import default_opset, folded, normalise, refusals
from verifier.network.rewrite.specialise import Specialised, specialise
from verifier.network.rewrite.widen import may_coarsen, wide_model

_LARGEST_MESSAGE = 2**31 - 2**20  # protobuf writes no more bytes than that


class OnnxModel(SourceModel):
    """A network file, run by onnxruntime.  `input_shape` holds the batch axis as 1 where the file leaves it open.

    Several inputs are one vector, one after the other in the order of the file, and so are several outputs.
    """

    def __init__(self, path: Path, data: bytes, digest: str, threads: int = 1, declared: Declared = None) -> None:
        self.path: Path = path
        self.sha256 = digest
        self.threads = threads
        self.proto = parsed(path, data)
        self.opset = default_opset(self.proto)
        sources, targets = inputs_and_outputs(self.proto)
        self.input_names = tuple(source.name for source in sources)
        self.output_names = tuple(target.name for target in targets)
        found = input_shapes(sources, declared)
        self.input_shapes, self.input_shape = found.shapes, found.joined
        self.dtype = TYPES[sources[0].type.tensor_type.elem_type]
        require_finite(self.proto)
        require_sane(self.proto)
        self.data = data
        self._external = load_external(self.proto, path)
        self._session: ort.InferenceSession | None = None
        self._takes_batches: bool | None = None if found.batches else False

    def __getstate__(self) -> dict[str, Any]:
        """Without the session, which is made again where it is needed."""
        return self.__dict__ | {"_session": None}

    @property
    def numbers(self) -> int:
        """How many numbers its constants hold, zeros included."""
        return sum(math.prod(tensor.dims) for tensor in self.proto.graph.initializer)

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.path)!r}, input_shape={self.input_shape})"

    def network(self, far_bounds: bool = False) -> Network:
        """Normalise, convert, lower (`far_bounds` as in `Reading`).

        Raises UnsupportedOperator or InputError, naming this file.
        """
        try:
            self.session()  # onnxruntime validates the file first: what it refuses needs no further reading
            normal = normalise(self.proto, self.input_shapes)
            precision = torch.float64 if self.dtype == np.float64 else torch.float32
            # Numbers that onnx2torch takes out of tensors and attributes are exact as Python floats.
            reading = Reading(precision, torch.float64, far_bounds)
            return lower(to_graph_module(normal.model), self.input_shape, normal.labels, reading)
        except InputError as error:
            raise error.located(self.path)  # noqa: B904 (the same error, with its file)

    @cached_property
    def rounding(self) -> np.dtype[Any]:
        """That of its inputs, unless it casts to another one on the way."""
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        if self.dtype == np.float16 or not may_coarsen(self.proto, kind):
            return self.dtype
        coarse = folded(self.proto, self.input_shapes).coarse
        return np.dtype(helper.tensor_dtype_to_np_dtype(coarse))

    @cached_property
    def widened(self) -> OnnxModel | None:
        """What is left once constants are folded, in float32; run by onnxruntime as the file itself."""
        if self.rounding != np.float16:
            return None
        wide = wide_model(folded(self.proto, self.input_shapes))
        return OnnxModel(self.path, wide.SerializeToString(), self.sha256, self.threads)

    def refusals(self) -> list[UnsupportedOperator]:
        """All nodes that stand in the way of `network`, as far as the graph alone shows them."""
        try:
            return refusals(self.proto, self.input_shapes)
        except InputError as error:
            raise error.located(self.path)  # noqa: B904 (the same error, with its file)

    @cached_property
    def integer_inputs(self) -> Array:
        """The inputs of which only the integer part counts; none if the graph does not show it."""
        try:
            return integer_inputs(self.proto, self.input_shapes)
        except InputError:
            return np.zeros(0, np.int64)

    def specialised(self, fixed: dict[int, float]) -> Specialised | None:
        """The family of networks that this one is, if it has inputs of which only integers count."""
        if self.rounding == np.float16:
            return None
        return specialise(self.proto, self.input_shapes, fixed)

    def member(self, family: Specialised, chosen: Sequence[Array]) -> Network:
        """The network of some choices."""
        normal = family.normalised(chosen)
        precision = torch.float64 if self.dtype == np.float64 else torch.float32
        reading = Reading(precision, torch.float64, far_bounds=True)
        return lower(to_graph_module(normal.model), (sum(map(math.prod, family.shapes)),), normal.labels, reading)

    def extended(self, family: Specialised) -> OnnxModel:
        """The same file with all outputs that the networks of the family have."""
        return OnnxModel(self.path, family.extended(self.proto).SerializeToString(), self.sha256, self.threads)

    @cached_property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of every output for one sample, as onnxruntime returns it."""
        found = self._answers(np.zeros(self.input_shape, self.dtype))
        return tuple(tuple(np.asarray(y).shape) for y in found)

    def session(self) -> ort.InferenceSession:
        if self._session is None:
            try:
                self._session = quiet_session(self._source(), self.threads)
            except Exception as error:  # onnxruntime's exceptions have no common base of their own
                raise InputError(f"onnxruntime cannot load the network: {one_line(error)}", self.path) from error
        return self._session

    def _source(self) -> bytes | str:
        """What onnxruntime loads: the bytes that were read here, weights of other files included.

        Only a model that is too large for that is read again from its path.
        """
        if not self._external:
            return self.data
        if self.path.suffix != ".gz" and self.proto.ByteSize() >= _LARGEST_MESSAGE:
            return str(self.path)
        whole: bytes = self.proto.SerializeToString()
        return whole

    def _call(self, x: Array) -> Array:
        found = [_floats(y) for y in self._answers(x)]
        if any(y is None for y in found):
            raise InputError("an output of the network is not a tensor of numbers", self.path)
        values = [y for y in found if y is not None]
        return values[0] if len(values) == 1 else np.concatenate([y.reshape(-1) for y in values])

    def _answers(self, x: Array) -> Sequence[object]:
        """What onnxruntime answers, output by output."""
        parts = [x]
        if len(self.input_shapes) > 1:
            ends = np.cumsum([math.prod(shape) for shape in self.input_shapes])[:-1]
            pieces = zip(np.split(x, ends), self.input_shapes, strict=True)
            parts = [piece.reshape(shape) for piece, shape in pieces]
        try:
            found: list[object] = self.session().run(
                list(self.output_names), dict(zip(self.input_names, parts, strict=True))
            )
            return found
        except InputError:
            raise
        except Exception as error:  # as above
            raise InputError(f"onnxruntime cannot run the network: {one_line(error)}", self.path) from error

    def _together(self, points: Array) -> Array | None:
        """All points in one call, or None if the model has a batch of one built in."""
        if self._takes_batches is False:
            return None
        size = (len(points), *self.input_shape[1:])
        try:
            found = self._call(points.reshape(size)).reshape(len(points), -1)
        except (InputError, ValueError):
            self._takes_batches = False
            return None
        if self._takes_batches is None:
            # A Reshape with constants can mix samples without an error, so the first answer is compared.
            pick = (0, len(points) - 1)
            alone = np.stack([self._single(points[i]) for i in pick])
            together = found[list(pick)] if found.shape[1] == alone.shape[1] else alone + np.inf
            self._takes_batches = bool(np.allclose(together, alone, rtol=1e-4, atol=1e-4, equal_nan=True))
        return found if self._takes_batches else None


def _floats(y: object) -> Array | None:
    """An output as floating-point numbers; whole numbers become floats of the same values."""
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "fiub":
        return None
    return y if y.dtype.kind == "f" else y.astype(np.float64)


def load_onnx(path: str | PathLike[str], threads: int = 1, declared: Declared = None) -> OnnxModel:
    """Read a network from `path`, or from `path.gz` if there is no such file.

    `declared` is what a property says about the inputs, where the file itself leaves axes open.

    Raises InputError with one sentence for whatever is wrong with it.  `sha256` is that of the file as it
    lies there, together with the files that hold its weights if there are any.
    """
    raw = read_stored(path)
    found = stored(path)
    try:
        return OnnxModel(found, unpacked(raw, found), digest_of(found, raw), threads, declared)
    except InputError as error:
        raise error.located(found)  # noqa: B904 (the same error, with its file)
