"""Which variables a property declares: scalars X_i and Y_j in VNN-LIB 1.0, tensors of networks in 2.0."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verifier.errors import InputError
from verifier.property.joint import NamedNetwork
from verifier.property.numbers import shorten
from verifier.property.property import Variable

MAX_ELEMENTS = 10_000_000  # of one declared tensor
TYPES_2 = ("real", "float16", "float32", "float64")

_SCALAR = re.compile(r"([XY])_(0|[1-9][0-9]{0,8})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.'-]*")
_TYPE = re.compile(r"([^\[\]]+)\[([0-9,]*)\]")
_RELATIONS = {"equal-to": "equal_to", "isomorphic-to": "isomorphic_to"}
_INDEXED = re.compile(r"([^\[\]]+)\[([0-9]+(?:,[0-9]+)*)\]")


@dataclass(frozen=True, slots=True)
class Relation:
    """`(equal-to f)` or `(isomorphic-to f)` inside of the declaration of another network."""

    kind: str
    name: str


class Declarations:
    """The variables seen so far.  A variable is a number: input i is 2 i, output j is 2 j + 1.

    Inputs and outputs are counted over all tensors of all networks, in the order of the file.
    """

    def __init__(self) -> None:
        self.version = 1
        self.codes: dict[str, int] = {}
        self.lines: dict[int, int] = {}
        self.tensors: dict[str, Variable] = {}
        self.networks: dict[str, NamedNetwork] = {}
        self._starts: dict[str, int] = {}  # where a tensor begins among all inputs, or among all outputs
        self._sizes = {"input": 0, "output": 0}

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
        if _NAME.fullmatch(name) is None:
            raise InputError(f"'{shorten(name)}' is not a name for a tensor")
        if name in self.tensors:
            raise InputError(f"the variable '{name}' is declared twice")
        match = _TYPE.fullmatch(type_and_shape)
        sizes = match.group(2).split(",") if match and match.group(2) else []
        if match is None or "" in sizes:
            raise InputError(f"'{name}' needs a type and a shape (float32 [1,5]), not '{shorten(type_and_shape)}'")
        if match.group(1) not in TYPES_2:
            known = f"only {', '.join(TYPES_2[:-1])} and {TYPES_2[-1]} are supported"
            raise InputError(f"'{name}' has type '{shorten(match.group(1))}', {known}")
        if any(len(size) > 9 for size in sizes):
            raise InputError(f"the tensor '{name}' is too large")
        variable = Variable(name, kind, match.group(1), tuple(int(size) for size in sizes))
        elements = 1
        for size in variable.shape:
            elements *= size
        if not 0 < elements <= MAX_ELEMENTS:
            raise InputError(f"the tensor '{name}' has {elements} elements, 1 to {MAX_ELEMENTS} are allowed")
        self.tensors[name] = variable
        self._starts[name] = self._sizes[kind]
        self._sizes[kind] += elements
        if self._sizes[kind] > MAX_ELEMENTS:
            raise InputError(f"all {kind}s together have {self._sizes[kind]} elements, {MAX_ELEMENTS} are allowed")
        if kind == "input":
            self.lines.setdefault(2 * self._starts[name], offset)
        return variable

    def declare_network(self, name: str, variables: Sequence[Variable], relation: Relation | None = None) -> None:
        """Takes `(declare-network f ...)` after its tensors."""
        if self.version == 1:
            raise InputError("'declare-network' needs (vnnlib-version <2.0>) in front")
        if name in self.networks:
            raise InputError(f"the network '{shorten(name)}' is declared twice")
        shapes = {kind: tuple(v.shape for v in variables if v.kind == kind) for kind in ("input", "output")}
        for kind, found in shapes.items():
            if not found:
                raise InputError(f"the network '{shorten(name)}' declares no {kind}")
        related = {} if relation is None else {_RELATIONS[relation.kind]: relation.name}
        network = NamedNetwork(name, shapes["input"], shapes["output"], **related)
        if relation is not None:
            other = self.networks.get(relation.name)
            if other is None:
                raise InputError(f"'{relation.kind}' names '{shorten(relation.name)}', which is not declared before")
            if [*map(math.prod, network.inputs)] != [*map(math.prod, other.inputs)] or [
                *map(math.prod, network.outputs)
            ] != [*map(math.prod, other.outputs)]:
                raise InputError(f"'{shorten(name)}' is {relation.kind} '{other.name}', but has other tensors")
        self.networks[name] = network

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
        self.codes[word] = 2 * (self._starts[variable.name] + flat) + (variable.kind == "output")
        return self.codes[word]

    def counts(self) -> tuple[int, int]:
        """The numbers of inputs and outputs.  Raises InputError if there are none or a number is left out."""
        if self.version == 2:
            if not self.networks:
                raise InputError("the file declares no network")
            return self._sizes["input"], self._sizes["output"]
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
        variable = self._tensor_of(i)
        if variable is None:
            return f"X_{i}"
        place = i - self._starts[variable.name]
        index = ",".join(str(int(k)) for k in np.unravel_index(place, variable.shape)) if variable.shape else ""
        return f"{variable.name}[{index}]" if index else variable.name

    def offset_of_input(self, i: int) -> int | None:
        """Where input i is declared."""
        variable = self._tensor_of(i)
        return self.lines.get(2 * (i if variable is None else self._starts[variable.name]))

    def _tensor_of(self, i: int) -> Variable | None:
        """The tensor that input i belongs to."""
        for variable in self.tensors.values():
            if variable.kind == "input" and 0 <= i - self._starts[variable.name] < variable.size:
                return variable
        return None
