"""Builds proofs byte by byte, as docs/proofs.md says, and small networks for them."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from checker.kits import KIT, Kit
from onnx import ModelProto, TensorProto, helper, numpy_helper

from verifier.checker.rationals import Array

KINDS = ("<u1", "<u2", "<f4", "<f8")


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def members(numbers: Sequence[int]) -> bytes:
    """A set as a list."""
    found = varint(3) + varint(len(numbers))
    last = -1
    for number in numbers:
        found += varint(number - last - 1)
        last = number
    return found


def bits(flags: Sequence[bool], keep: bool = False) -> bytes:
    """A set as bits."""
    return varint(2 if keep else 1) + raw_bits(flags)


def raw_bits(flags: Sequence[bool]) -> bytes:
    return np.packbits(np.asarray(flags, np.bool_), bitorder="little").tobytes()


def values(numbers: Any, kind: int = 3) -> bytes:
    scale = (255.0, 65535.0, 1.0, 1.0)[kind]
    scaled = np.asarray(numbers, np.float64).reshape(-1) * scale
    return varint(kind) + (np.rint(scaled) if kind < 2 else scaled).astype(KINDS[kind]).tobytes()


ALL = varint(0)


def split(group: int, neuron: int) -> bytes:
    return varint(1) + varint(group) + varint(neuron)


def cut(axis: int, value: float) -> bytes:
    return varint(2) + varint(axis) + struct.pack("<d", value)


def default(first: int = 1, kinds: int = 1) -> bytes:
    return varint(3) + varint(first) + varint(kinds)


def improve(group: int, lower: Sequence[int], upper: Sequence[int], witness: bytes) -> bytes:
    return varint(4) + varint(group) + members(lower) + members(upper) + witness


def shrink(
    planes: Sequence[tuple[int, bytes]], ends: Sequence[tuple[int, int, float]], each: Sequence[int] | None = None
) -> bytes:
    """Planes are (clause, lambdas and witness), `each` says how many lambdas; ends are (input, side, value)."""
    counts = [1] * len(planes) if each is None else each
    found = varint(5) + varint(len(planes))
    found += b"".join(varint(c) + varint(count) + rest for (c, rest), count in zip(planes, counts, strict=True))
    return found + varint(len(ends)) + b"".join(varint(2 * j + side) + struct.pack("<d", v) for j, side, v in ends)


def empty(group: int, neuron: int) -> bytes:
    return varint(6) + varint(group) + varint(neuron)


def close(clause: int, weights: bytes = b"", witness: bytes | None = None) -> bytes:
    return varint(7) + varint(clause) + weights + (NOTHING if witness is None else witness)


def part(clauses: Sequence[int]) -> bytes:
    return varint(8) + members(clauses)


KEEP, RECALL = varint(9), varint(10)


def witness(sections: Sequence[bytes], rows: int = 1) -> bytes:
    return varint(rows) + varint(len(sections)) + b"".join(sections)


NOTHING = witness([])


def section(
    group: int, slopes: bytes = b"", deltas: bytes = b"", cuts: Sequence[bytes] = (), plain: bool = False
) -> bytes:
    flags = bool(slopes) + 2 * bool(deltas) + 4 * bool(cuts) + 8 * plain
    inner = slopes + deltas + (varint(len(cuts)) + b"".join(cuts) if cuts else b"")
    return varint(group) + varint(flags) + inner


def weights(numbers: Sequence[float]) -> bytes:
    return ALL + b"".join(struct.pack("<d", number) for number in numbers)


CONSTANT = 0


def repeats(neuron: int) -> int:
    return 1 + 2 * neuron


def mirrors(neuron: int) -> int:
    return 2 + 2 * neuron


def merged_group(others: Mapping[int, int], kept: Sequence[int], multiplied: bool = True) -> bytes:
    """Of a group: who does not stand for itself, each with its code, and who is left."""
    found = varint(int(multiplied)) + members(sorted(others))
    return found + b"".join(varint(others[i]) for i in sorted(others)) + members(kept)


def merged_output(multiplied: bool = True) -> bytes:
    return varint(int(multiplied))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_proof(
    path: Path,
    network: Path,
    prop: Path,
    body: bytes,
    changes: dict[str, Any] | None = None,
    merged: bytes | None = None,
) -> Path:
    header = {"format": "strata-proof", "version": 1, "network": digest(network), "property": digest(prop)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({**header, **(changes or {})}))
        if merged is not None:
            archive.writestr("merged.bin", merged)
        archive.writestr("proof.bin", body)
    return path


def network_of(n_in: int, layers: Sequence[Sequence[tuple[int, Array] | Array]], kit: Kit = KIT) -> Any:
    """Layers as lists of (source, matrix) and bias vectors."""
    found, sizes = [], [n_in]
    for layer in layers:
        total = None
        for item in layer:
            if isinstance(item, tuple):
                source, matrix = item
                own = kit.expression.variable(source, (sizes[source],))
                own = own.applied(kit.maps.Dense(np.asarray(matrix, float)), (len(matrix),))
            else:
                own = kit.expression.constant(np.asarray(item, float))
            total = own if total is None else total.plus(own)
        assert total is not None
        found.append(total.layer())
        sizes.append(total.size)
    return kit.network.pruned(n_in, found)


def two_layers(weights: Array, bias: Array, last: Array) -> ModelProto:
    """Y = last relu(weights X + bias), as a file holds it."""
    constants = {"W": weights, "b": bias, "V": last}
    nodes = [
        helper.make_node("Gemm", ["X", "W", "b"], ["h"], "first", transB=1),
        helper.make_node("Relu", ["h"], ["a"], "bend"),
        helper.make_node("Gemm", ["a", "V"], ["Y"], "last", transB=1),
    ]
    sizes = {"X": weights.shape[1], "Y": last.shape[0]}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in sizes.items())
    stored = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "two layers", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
