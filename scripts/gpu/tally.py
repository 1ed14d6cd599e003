"""How often a device is given work, and how often the host waits for it: counts that do not depend on the machine.

    with counted() as tally:
        bounder.bound(...)
    print(tally.launches, tally.waits)

A launch is an operator that computes something: at least one kernel.  The host waits when it has to know a value
(`item`, `bool(tensor)`), when a result's shape depends on values (`nonzero`, masks as indices, `unique`), and when
tensors are copied from one place to the other.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils.flop_counter import flop_registry


class Kind(Enum):
    """What an operator costs besides the host's own time."""

    FREE = "free"  # a view, memory, nothing
    LAUNCHES = "launches"
    WAITS = "waits"  # the host waits for it


@dataclass
class Tally:
    """What happened since it was begun."""

    launches: int = 0
    waits: int = 0
    read_and_written: int = 0  # bytes of all arguments and results of launches
    products: int = 0  # floating-point operations of matrix products and convolutions
    moved: int = 0  # bytes that were copied between host and device
    places: Counter[str] = field(default_factory=Counter)  # file:line operator -> how often the host waited there
    operators: Counter[str] = field(default_factory=Counter)  # launches by operator

    def wait(self, what: str) -> None:
        self.waits += 1
        self.places[f"{_caller()} {what}"] += 1


_open: list[Tally] = []


@contextmanager
def counted() -> Iterator[Tally]:
    """Counts what happens on the stand-in inside of the block; blocks may be nested."""
    tally = Tally()
    _open.append(tally)
    try:
        yield tally
    finally:
        _open.remove(tally)


def note(func: Any, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> None:
    """An operator has run on the device."""
    if not _open or kind is Kind.FREE:
        return
    name = str(func).removeprefix("aten.")
    waits = _waits(name, kind, args, kwargs)
    size = sum(_bytes(x) for x in _pytree.tree_leaves((args, kwargs, found)) if isinstance(x, torch.Tensor))
    formula = flop_registry.get(func.overloadpacket)
    products = 0 if formula is None else formula(*args, **kwargs, out_val=found)
    for tally in _open:
        tally.launches += name != "_local_scalar_dense.default"
        tally.operators[name] += 1
        tally.read_and_written += size
        tally.products += products
        for _ in range(waits):
            tally.wait(name)


def moved(what: str, tensor: torch.Tensor) -> None:
    """A tensor was copied between host and device."""
    for tally in _open:
        tally.moved += _bytes(tensor)
        tally.wait(what)


def _waits(name: str, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How often the host waits for one call."""
    if name.startswith(("index.", "index_put")):  # masks become lists of places, whose lengths the host has to know
        return sum(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    if name.startswith("repeat_interleave") and kwargs.get("output_size") is not None:
        return 0
    return int(kind is Kind.WAITS)


def _bytes(tensor: torch.Tensor) -> int:
    """What a kernel reads of a tensor; entries that are repeated by a stride of zero are read once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= 1 if stride == 0 else size
    return count * tensor.element_size()


def _caller() -> str:
    """The line of the program that asked for an operator."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if "/torch/" not in path and not path.endswith(("gpu/standin.py", "gpu/tally.py", "contextlib.py")):
            return f"{'/'.join(path.split('/')[-3:])}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
