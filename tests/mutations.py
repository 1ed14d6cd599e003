"""Damage for files: seeded, so that a failure can be had again from its number."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Bytes = Callable[[bytes, random.Random], bytes]
Text = Callable[[str, random.Random], str]
Model = Callable[[onnx.ModelProto, random.Random], None]

NUMBERS = (
    "0 -0 1 -1 7 100 1e3 -1e3 1e-3 1e308 1e999 -1e999 1e-400 nan inf -inf 0x10 1_0 1.2.3 .5 5. +3 --1 1e ∞ é".split()
)
WORDS = (
    "assert and or not <= >= < > == != = + - * / => X_0 X_1 X_9 Y_0 Y_99 Z X Y X[0,0] Y[0,0] Real Int float32 "
    'declare-const declare-input declare-output declare-network vnnlib-version <2.0> ( ) () [1,4] [] " ; |'
).split()
DIMENSIONS = (-(2**40), -7, -1, 0, 1, 2, 3, 5, 1000, 2**20, 2**31, 2**40, 2**62)


def _span(size: int, rng: random.Random, longest: int = 40) -> tuple[int, int]:
    start = rng.randrange(size + 1)
    return start, min(size, start + rng.randint(1, longest))


def flip(data: bytes, rng: random.Random) -> bytes:
    """A few bits."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(data: bytes, rng: random.Random) -> bytes:
    """A short run of bytes, by random ones or by one value."""
    start, stop = _span(len(data), rng)
    new = (
        rng.randbytes(stop - start) if rng.random() < 0.5 else bytes([rng.choice((0, 127, 128, 255))]) * (stop - start)
    )
    return data[:start] + new + data[stop:]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def cut(data: bytes, rng: random.Random) -> bytes:
    """A piece is missing, from the middle on average."""
    start, stop = _span(len(data), rng, 1 + len(data) // 4)
    return data[:start] + data[stop:]


def insert(data: bytes, rng: random.Random) -> bytes:
    """Random bytes, or a second copy of a piece, in between."""
    start, stop = _span(len(data), rng)
    piece = rng.randbytes(rng.randint(1, 9)) if rng.random() < 0.5 else data[start:stop]
    return data[:start] + piece + data[start:]


def noise(data: bytes, rng: random.Random) -> bytes:
    """Nothing of the file is left."""
    return rng.randbytes(rng.choice((0, 1, 10, 1000)))


def _on_tokens(change: Callable[[list[str], list[int], random.Random], None]) -> Text:
    """A change of a text's tokens; everything between them stays as it is."""

    def apply(text: str, rng: random.Random) -> str:
        pieces = re.split(r"(\s+|[()])", text)
        places = [i for i, piece in enumerate(pieces) if piece.strip()]
        change(pieces, places, rng)
        return "".join(pieces)

    apply.__name__ = change.__name__.strip("_")
    return apply


def _numbers(pieces: list[str], places: list[int], rng: random.Random) -> None:
    numeric = [i for i in places if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", pieces[i])]
    for _ in range(rng.randint(1, 3)):
        pieces[rng.choice(numeric)] = rng.choice(NUMBERS)


def _words(pieces: list[str], places: list[int], rng: random.Random) -> None:
    for _ in range(rng.randint(1, 2)):
        pieces[rng.choice(places)] = rng.choice(WORDS)


def _swaps(pieces: list[str], places: list[int], rng: random.Random) -> None:
    for _ in range(rng.randint(1, 2)):
        a, b = rng.choice(places), rng.choice(places)
        pieces[a], pieces[b] = pieces[b], pieces[a]


def _drops(pieces: list[str], places: list[int], rng: random.Random) -> None:
    for _ in range(rng.randint(1, 2)):
        pieces[rng.choice(places)] = ""


def lines(text: str, rng: random.Random) -> str:
    """Lines are dropped, doubled, exchanged or joined."""
    rows = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        a, b = rng.randrange(len(rows)), rng.randrange(len(rows))
        kind = rng.randrange(4)
        if kind == 0 and len(rows) > 1:
            del rows[a]
        elif kind == 1:
            rows.insert(b, rows[a])
        elif kind == 2:
            rows[a], rows[b] = rows[b], rows[a]
        else:
            rows[a] = rows[a].rstrip("\n")
    return "".join(rows)


def _initializer(model: onnx.ModelProto, rng: random.Random) -> TensorProto:
    return rng.choice(list(model.graph.initializer))


def values(model: onnx.ModelProto, rng: random.Random) -> None:
    """One weight, or all of a tensor, is special."""
    tensor = _initializer(model, rng)
    array = numpy_helper.to_array(tensor).copy()
    special = rng.choice([0.0, np.nan, np.inf, -np.inf, 3e38, 1e-45, 1e30])
    if array.dtype != np.float32 or not array.size:
        array = array + rng.choice(DIMENSIONS)
    elif rng.random() < 0.5:
        array.flat[rng.randrange(array.size)] = special
    else:
        array[...] = special
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def shapes(model: onnx.ModelProto, rng: random.Random) -> None:
    """A tensor, the input or the output claims another shape than it has."""
    kind = rng.randrange(3)
    if kind == 0:
        tensor = _initializer(model, rng)
        place = rng.randrange(len(tensor.dims) + 1)
        tensor.dims[place : place + 1] = [rng.choice(DIMENSIONS)]
    elif kind == 1:
        tensor = _initializer(model, rng)
        array = numpy_helper.to_array(tensor)
        other = array.T if rng.random() < 0.5 else array[..., None] if rng.random() < 0.5 else array.reshape(-1)[1:]
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(other), tensor.name))
    else:
        dims = rng.choice([*model.graph.input, *model.graph.output]).type.tensor_type.shape.dim
        if rng.random() < 0.3 and dims:
            del dims[rng.randrange(len(dims))]
        elif dims:
            rng.choice(list(dims)).dim_value = rng.choice(DIMENSIONS)


def names(model: onnx.ModelProto, rng: random.Random) -> None:
    """A name is empty, unknown, or that of something else."""
    graph = model.graph
    known = [t.name for t in graph.initializer] + [name for node in graph.node for name in (*node.input, *node.output)]
    wrong = rng.choice([*known, "", "nobody"])
    node = rng.choice(list(graph.node))
    kind = rng.randrange(4)
    if kind == 0:
        rng.choice([*graph.input, *graph.output, *graph.initializer]).name = wrong
    elif kind == 1:
        node.output[rng.randrange(len(node.output))] = wrong
    else:
        node.input[rng.randrange(len(node.input))] = wrong


def nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    """Nodes and other parts are dropped, doubled, exchanged, or of another type."""
    graph = model.graph
    kind = rng.randrange(5)
    part = rng.choice([graph.node, graph.initializer, graph.input, graph.output])
    if kind == 0 and part:
        del part[rng.randrange(len(part))]
    elif kind == 1 and part:
        part.add().CopyFrom(rng.choice(list(part)))
    elif kind == 2:
        order = list(graph.node)
        rng.shuffle(order)
        del graph.node[:]
        graph.node.extend(order)
    else:
        others = "Relu Sin Gemm MatMul Add Conv Flatten Reshape Transpose MaxPool Softmax Loop If Nonsense".split()
        rng.choice(list(graph.node)).op_type = rng.choice(["", *others])


def attributes(model: onnx.ModelProto, rng: random.Random) -> None:
    """An attribute, the type of a tensor, the operator set or the version is another one."""
    node = rng.choice(list(model.graph.node))
    kind = rng.randrange(5)
    if kind == 0:
        some = rng.choice(
            "axis alpha beta transA transB strides pads dilations group kernel_shape perm axes to".split()
        )
        value: object = rng.choice([-1, 0, 2, 2.5, "text", [1], [0, 0], [-1, 5, 2**40], [1, 1, 1, 1]])
        del node.attribute[:]
        node.attribute.append(helper.make_attribute(some, value))
    elif kind == 1:
        for attribute in node.attribute:
            attribute.i, attribute.f = rng.choice(DIMENSIONS), rng.choice([0.0, -1.0, 1e38])
            attribute.ints[:] = [rng.choice(DIMENSIONS) for _ in attribute.ints]
    elif kind == 2:
        chosen = rng.choice([*model.graph.input, *model.graph.output])
        chosen.type.tensor_type.elem_type = rng.choice([0, 1, 2, 6, 7, 8, 9, 10, 11, 16, 99])
    elif kind == 3:
        _initializer(model, rng).data_type = rng.choice([0, 2, 6, 7, 8, 9, 10, 11, 16, 99])
    else:
        model.opset_import[0].version = rng.choice([0, 1, 5, 9, 11, 13, 18, 99])
        model.ir_version = rng.choice([0, 3, 8, 99])


def on_model(change: Model) -> Bytes:
    """A change of a network that leaves the file well-formed."""

    def apply(data: bytes, rng: random.Random) -> bytes:
        model = onnx.load_from_string(data)
        change(model, rng)
        return bytes(model.SerializeToString())

    apply.__name__ = change.__name__
    return apply


def on_text(change: Text) -> Bytes:
    def apply(data: bytes, rng: random.Random) -> bytes:
        return change(data.decode(), rng).encode()

    apply.__name__ = change.__name__
    return apply


ANY_FILE: tuple[Bytes, ...] = (flip, overwrite, truncate, cut, insert, noise)
NETWORK: tuple[Bytes, ...] = tuple(on_model(change) for change in (values, shapes, names, nodes, attributes))
PROPERTY: tuple[Bytes, ...] = tuple(
    on_text(change) for change in (lines, *(_on_tokens(c) for c in (_numbers, _words, _swaps, _drops)))
)
