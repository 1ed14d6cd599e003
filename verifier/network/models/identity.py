"""What a network's identity is: all of its bytes, also those that lie in other files.

Needs no torch and, for files that hold all of their weights, not even onnx: a batch asks it for every instance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from verifier.errors import InputError
from verifier.files import unpacked

if TYPE_CHECKING:
    import onnx

_KEY = b"location"  # stands in every file that refers to others


def digest_of(path: str | PathLike[str], raw: bytes) -> str:
    """SHA-256 of a network file with the bytes `raw`, and of the files that it refers to.

    Without such files it is the SHA-256 of the file as it lies there.  Of a file that is missing the name counts.
    """
    total = hashlib.sha256(raw)
    for location in _locations(raw):
        total.update(b"\0" + location.encode() + b"\0" + (_file_digest(Path(path).parent / location) or b"missing"))
    return total.hexdigest()


def digest_of_several(networks: Sequence[tuple[str, str]]) -> str:
    """One digest of several networks by their names and digests; that of the only one as it is."""
    if len(networks) == 1:
        return networks[0][1]
    return hashlib.sha256("".join(f"{name}\0{digest}\0" for name, digest in networks).encode()).hexdigest()


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model: initializers and attributes, also those of subgraphs and functions."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _tensors_of_node(node)


def _tensors_of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from _tensors_of_node(node)


def _tensors_of_node(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        yield from attribute.tensors
        if attribute.HasField("t"):
            yield attribute.t
        if attribute.HasField("g"):
            yield from _tensors_of_graph(attribute.g)
        for graph in attribute.graphs:
            yield from _tensors_of_graph(graph)


def _locations(raw: bytes) -> list[str]:
    """The files that a model refers to, each once; none if it cannot be read."""
    try:
        data = unpacked(raw, "")
    except InputError:
        return []
    if _KEY not in data:
        return []
    import onnx

    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # protobuf's errors have no common base; a broken file refers to nothing
        return []
    entries = (entry for tensor in tensors_of(model) for entry in tensor.external_data)
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _file_digest(path: Path) -> bytes | None:
    total = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            while part := stream.read(1 << 20):
                total.update(part)
    except (OSError, ValueError):  # ValueError: a name with a NUL byte
        return None
    return total.digest()
