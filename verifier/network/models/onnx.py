"""ONNX files: read, describe, run by onnxruntime, lower to a `Network`."""

from __future__ import annotations

import math
from os import PathLike
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch

from verifier.errors import InputError, one_line
from verifier.files import read_stored, stored, unpacked
from verifier.network.lowering.convert import to_graph_module
from verifier.network.lowering.run import lower
from verifier.network.lowering.tracing import Reading
from verifier.network.models.base import Array, SourceModel
from verifier.network.models.identity import digest_of
from verifier.network.models.validate import (
    TYPES,
    load_external,
    parsed,
    require_finite,
    require_sane,
    single_input_output,
    static_shape,
)
from verifier.network.network import Network
from verifier.network.rewrite.constants import quiet_session
from verifier.network.rewrite.normalise import default_opset, normalise

_LARGEST_MESSAGE = 2**31 - 2**20  # protobuf writes no more bytes than that


class OnnxModel(SourceModel):
    """A network file, run by onnxruntime.  `input_shape` holds the batch axis as 1 where the file leaves it open."""

    def __init__(self, path: Path, data: bytes, digest: str, threads: int = 1) -> None:
        self.path: Path = path
        self.sha256 = digest
        self.threads = threads
        self.proto = parsed(path, data)
        self.opset = default_opset(self.proto)
        source, target = single_input_output(self.proto)
        self.input_name, self.output_name = source.name, target.name
        self.input_shape, self._open_batch = static_shape(source)
        self.dtype = TYPES[source.type.tensor_type.elem_type]
        require_finite(self.proto)
        require_sane(self.proto)
        self._data = data
        self._external = load_external(self.proto, path)
        self._session: ort.InferenceSession | None = None
        self._takes_batches: bool | None = None if self._open_batch else False

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
            normal = normalise(self.proto, self.input_shape)
            precision = torch.float64 if self.dtype == np.float64 else torch.float32
            # Numbers that onnx2torch takes out of tensors and attributes are exact as Python floats.
            reading = Reading(precision, torch.float64, far_bounds)
            return lower(to_graph_module(normal.model), self.input_shape, normal.labels, reading)
        except InputError as error:
            raise error.located(self.path)  # noqa: B904 (the same error, with its file)

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
            return self._data
        if self.path.suffix != ".gz" and self.proto.ByteSize() >= _LARGEST_MESSAGE:
            return str(self.path)
        whole: bytes = self.proto.SerializeToString()
        return whole

    def _call(self, x: Array) -> Array:
        try:
            (y,) = self.session().run([self.output_name], {self.input_name: x})
        except InputError:
            raise
        except Exception as error:  # as above
            raise InputError(f"onnxruntime cannot run the network: {one_line(error)}", self.path) from error
        if not isinstance(y, np.ndarray) or y.dtype.kind != "f":
            raise InputError("the network's output is not a tensor of floating-point numbers", self.path)
        return y

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


def load_onnx(path: str | PathLike[str], threads: int = 1) -> OnnxModel:
    """Read a network from `path`, or from `path.gz` if there is no such file.

    Raises InputError with one sentence for whatever is wrong with it.  `sha256` is that of the file as it
    lies there, together with the files that hold its weights if there are any.
    """
    raw = read_stored(path)
    found = stored(path)
    try:
        return OnnxModel(found, unpacked(raw, found), digest_of(found, raw), threads)
    except InputError as error:
        raise error.located(found)  # noqa: B904 (the same error, with its file)
