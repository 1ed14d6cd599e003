"""Values as bytes: numbers, texts, tuples, tensors, and dataclasses of a given list.

The first line is JSON and says what there is; the numbers of all tensors follow.  Unlike with pickle, nothing is
executed by reading: whoever gets such bytes from somebody else risks no more than nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from verifier.result.verdict import Reason

ALIGNED = 16
"""Tensors begin at a multiple of it."""


def encoded(value: object) -> bytes:
    """Bytes from which `decoded` makes the same value.  Raises TypeError for what has no form."""
    arrays: list[np.ndarray] = []
    head = json.dumps(_plain(value, arrays)).encode()
    line = json.dumps([[str(a.dtype), list(a.shape)] for a in arrays]).encode()
    parts = [head, b"\n", line, b"\n"]
    length = len(head) + len(line) + 2
    for array in arrays:
        gap = -length % ALIGNED
        data = array.tobytes()
        parts += [bytes(gap), data]
        length += gap + len(data)
    return b"".join(parts)


def decoded(raw: bytes, classes: Iterable[type]) -> Any:
    """The value.  Require: bytes of `encoded`, of a value with no other dataclasses than these."""
    head, line, _ = raw.split(b"\n", 2)
    place, arrays = len(head) + len(line) + 2, []
    for name, shape in json.loads(line):
        place += -place % ALIGNED
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(raw, np.dtype(name), count, place)
        arrays.append(torch.from_numpy(array.reshape(shape).copy()))
        place += array.nbytes
    if place != len(raw):
        raise ValueError(f"{len(raw) - place} bytes belong to nothing")
    return _value(json.loads(head), arrays, {cls.__name__: cls for cls in classes})


def _plain(value: object, arrays: list[np.ndarray]) -> Any:
    """The value for JSON: lists begin with a letter that says what they are."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Reason):
        return ["reason", value.value]
    if isinstance(value, torch.Tensor):
        arrays.append(value.detach().cpu().numpy())
        return ["tensor", len(arrays) - 1]
    if isinstance(value, tuple):
        return ["tuple", *(_plain(item, arrays) for item in value)]
    if isinstance(value, dict):
        return ["dict", *([_plain(key, arrays), _plain(item, arrays)] for key, item in value.items())]
    if is_dataclass(value) and not isinstance(value, type):
        return ["class", type(value).__name__, *(_plain(getattr(value, f.name), arrays) for f in fields(value))]
    raise TypeError(f"{type(value).__name__} has no form in a checkpoint")


def _value(plain: Any, arrays: list[torch.Tensor], classes: dict[str, type]) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *items = plain
    match kind:
        case "reason":
            return Reason(items[0])
        case "tensor":
            return arrays[items[0]]
        case "tuple":
            return tuple(_value(item, arrays, classes) for item in items)
        case "dict":
            return {_value(key, arrays, classes): _value(item, arrays, classes) for key, item in items}
        case "class":
            cls = classes[items[0]]
            names = [f.name for f in fields(cls)]
            return cls(**{n: _value(item, arrays, classes) for n, item in zip(names, items[1:], strict=True)})
    raise ValueError(f"a list of the kind {kind} is not known")
