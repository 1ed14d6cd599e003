"""Which variables a property declares: scalars X_i and Y_j in VNN-LIB 1.0, tensors of one network in 2.0."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from verifier.errors import InputError
from verifier.property.numbers import shorten
from verifier.property.property import Variable

MAX_ELEMENTS = 10_000_000  # of one declared tensor
TYPES_2 = ("real", "float32")

_SCALAR = re.compile(r"([XY])_(0|[1-9][0-9]{0,8})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.'-]*")
_TYPE = re.compile(r"([^\[\]]+)\[([0-9,]*)\]")
_INDEXED = re.compile(r"([^\[\]]+)\[([0-9]+(?:,[0-9]+)*)\]")


class Declarations:
    """The variables seen so far.  A variable is a number: input i is 2 i, output j is 2 j + 1."""

    def __init__(self) -> None:
        self.version = 1
        self.codes: dict[str, int] = {}
        self.lines: dict[int, int] = {}
        self.tensors: dict[str, Variable] = {}
        self.network: str | None = None

    def declare_scalar(self, name: str, kind: str, offset: int) -> None:
        """Takes `(declare-const X_0 Real)`."""
        if self.version == 2:
            raise InputError("'declare-const' belongs to VNN-LIB 1.0, this file says version 2.0")
        match = _SCALAR.fullmatch(name)
        if match is None:
            raise InputError(f"the variable '{shorten(name)}' is neither an input X_i nor an output Y_j")
        if kind != "Real":
            raise InputError(f"the variable '{name}' has type '{shorten(kind)}', only Real is supported")
        if name in self.codes:
            raise InputError(f"the variable '{name}' is declared twice")
        code = 2 * int(match.group(2)) + (match.group(1) == "Y")
        self.codes[name] = code
        self.lines[code] = offset

    def declare_tensor(self, kind: str, name: str, type_and_shape: str, offset: int) -> Variable:
        """Takes `(declare-input X float32 [1,5])`; the type and the shape come as one word."""
        if self.network is not None:
            raise InputError(f"several networks ('{self.network}' and another one) are not supported")
        if _NAME.fullmatch(name) is None:
            raise InputError(f"'{shorten(name)}' is not a name for a tensor")
        if name in self.tensors:
            raise InputError(f"the variable '{name}' is declared twice")
        match = _TYPE.fullmatch(type_and_shape)
        sizes = match.group(2).split(",") if match and match.group(2) else []
        if match is None or "" in sizes:
            raise InputError(f"'{name}' needs a type and a shape (float32 [1,5]), not '{shorten(type_and_shape)}'")
        if match.group(1) not in TYPES_2:
            raise InputError(f"'{name}' has type '{shorten(match.group(1))}', only real and float32 are supported")
        if any(len(size) > 9 for size in sizes):
            raise InputError(f"the tensor '{name}' is too large")
        variable = Variable(name, kind, match.group(1), tuple(int(size) for size in sizes))
        elements = 1
        for size in variable.shape:
            elements *= size
        if not 0 < elements <= MAX_ELEMENTS:
            raise InputError(f"the tensor '{name}' has {elements} elements, 1 to {MAX_ELEMENTS} are allowed")
        if any(other.kind == kind for other in self.tensors.values()):
            raise InputError(f"several {kind} tensors are not supported")
        self.tensors[name] = variable
        self.lines[kind == "output"] = offset
        return variable

    def declare_network(self, name: str, variables: Sequence[Variable]) -> None:
        """Takes `(declare-network f ...)` after its tensors."""
        if self.version == 1:
            raise InputError("'declare-network' needs (vnnlib-version <2.0>) in front")
        if self.network is not None:
            raise InputError(f"several networks ('{self.network}' and '{shorten(name)}') are not supported")
        for kind in ("input", "output"):
            if not any(variable.kind == kind for variable in variables):
                raise InputError(f"the network '{shorten(name)}' declares no {kind}")
        self.network = name

    def find(self, word: str) -> int | None:
        """The variable that a word names, None if it is no variable.  Raises InputError for a bad index."""
        code = self.codes.get(word)
        if code is not None or not self.tensors:
            return code
        match = _INDEXED.fullmatch(word)
        variable = self.tensors.get(match.group(1) if match else word)
        if variable is None:
            return None
        index = [int(i[:10]) for i in match.group(2).split(",")] if match else []
        if match is None and variable.size == 1:
            index = [0] * len(variable.shape)
        if len(index) != len(variable.shape):
            axes = len(variable.shape)
            raise InputError(f"'{shorten(word)}' has {len(index)} indices, '{variable.name}' has {axes} axes")
        if any(i >= n for i, n in zip(index, variable.shape, strict=True)):
            raise InputError(f"'{shorten(word)}' lies outside of the shape {list(variable.shape)}")
        flat = int(np.ravel_multi_index(index, variable.shape)) if index else 0
        self.codes[word] = 2 * flat + (variable.kind == "output")
        return self.codes[word]

    def counts(self) -> tuple[int, int]:
        """The numbers of inputs and outputs.  Raises InputError if there are none or a number is left out."""
        if self.version == 2:
            sizes = {variable.kind: variable.size for variable in self.tensors.values()}
            if self.network is None:
                raise InputError("the file declares no network")
            return sizes["input"], sizes["output"]
        found = []
        for side, letter, word in ((0, "X", "input"), (1, "Y", "output")):
            indices = sorted(code // 2 for code in self.codes.values() if code % 2 == side)
            if not indices:
                raise InputError(f"the file declares no {word} variable {letter}_i")
            gap = next((k for k, i in enumerate(indices) if i != k), None)
            if gap is not None:
                raise InputError(f"{letter}_{indices[-1]} is declared, but {letter}_{gap} is not")
            found.append(len(indices))
        return found[0], found[1]

    def input_name(self, i: int) -> str:
        """How the file writes input i."""
        for variable in self.tensors.values():
            if variable.kind == "input":
                index = ",".join(str(int(k)) for k in np.unravel_index(i, variable.shape)) if variable.shape else ""
                return f"{variable.name}[{index}]" if index else variable.name
        return f"X_{i}"

    def offset_of_input(self, i: int) -> int | None:
        """Where input i is declared."""
        return self.lines.get(0 if self.tensors else 2 * i)
