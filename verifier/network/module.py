"""Torch modules as networks, with the interface of `OnnxModel`."""

from __future__ import annotations

import copy
import hashlib
import math
from typing import Any

import numpy as np
import torch
from torch import nn

from verifier.defaults import default_dtype
from verifier.errors import InputError
from verifier.network.lower import lower
from verifier.network.network import Network

Array = np.ndarray[Any, np.dtype[Any]]


class ModuleModel:
    """A torch module that maps tensors of `input_shape` (batch axis included) to one tensor.

    Works on a copy on the CPU in evaluation mode; the module that was given stays as it is.  Later changes
    to it are not seen.  It is always run with the default type of torch that is set when this is made.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...]) -> None:
        if not input_shape or min(input_shape) < 1:
            raise InputError(f"the input shape {input_shape} must have positive entries")
        self.input_shape = tuple(int(n) for n in input_shape)
        self._module = copy.deepcopy(module).cpu().eval().requires_grad_(False)
        self._default = torch.get_default_dtype()
        self.sha256 = _digest(self._module)
        self._output_shape: tuple[int, ...] | None = None
        for name, tensor in self._module.state_dict().items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise InputError(f"parameter '{name}' holds values that are not finite")

    @property
    def n_in(self) -> int:
        return math.prod(self.input_shape)

    @property
    def n_out(self) -> int:
        return math.prod(self.output_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        if self._output_shape is None:
            self._output_shape = tuple(self._call(torch.zeros(self.input_shape)).shape)
        return self._output_shape

    def run(self, x: Array) -> Array:
        """Outputs [..., n_y] at x [n_x] or [B, n_x], by the module itself in its own precision, point by
        point.
        """
        points = torch.from_numpy(np.asarray(x, dtype=np.float32))
        if points.shape[-1:] != (self.n_in,) or points.dim() > 2:
            raise InputError(f"the module takes {self.n_in} inputs, not an array of shape {tuple(points.shape)}")
        if points.dim() == 1:
            return self._call(points.reshape(self.input_shape)).reshape(-1).numpy()
        rows = [self._call(point.reshape(self.input_shape)).reshape(-1).numpy() for point in points]
        return np.stack(rows) if rows else np.zeros((0, self.n_out), np.float32)

    def network(self) -> Network:
        with default_dtype(self._default):
            return lower(self._module, self.input_shape, {})

    def _call(self, x: torch.Tensor) -> torch.Tensor:
        dtype = next((p.dtype for p in self._module.parameters() if p.is_floating_point()), torch.float32)
        try:
            with torch.no_grad(), default_dtype(self._default):
                found = self._module(x.to(dtype))
        except Exception as error:  # foreign code may raise anything
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"the module cannot be run on an input of shape {self.input_shape}: {reason}") from error
        if isinstance(found, tuple | list) and len(found) == 1:
            found = found[0]
        if not isinstance(found, torch.Tensor):
            raise InputError(f"the module must return one tensor, not a {type(found).__name__}")
        return found


def _digest(module: nn.Module) -> str:
    """A name for the module's structure and weights."""
    total = hashlib.sha256(repr(module).encode())
    for name, tensor in module.state_dict().items():
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
