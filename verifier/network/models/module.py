"""Torch modules as networks."""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from verifier.errors import InputError, VerifierError, one_line
from verifier.network.lowering.run import lower, only_member, precision
from verifier.network.lowering.tracing import Reading, place_of
from verifier.network.models.base import Array, SourceModel
from verifier.network.models.module_state import changed, module_state, require_readable
from verifier.network.network import Network
from verifier.precision import default_dtype, own_defaults


class ModuleModel(SourceModel):
    """A torch module that maps tensors of `input_shape` (batch axis included) to one tensor.

    Works on a copy on the CPU in evaluation mode; the module that was given stays as it is.  Later changes
    to it are not seen.  It is always run with the default type of torch that is set when this is made, on the CPU and
    outside of any autocast but its own.  `sha256` names its structure and everything that `module_state` covers.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...]) -> None:
        if not input_shape or min(input_shape) < 1:
            raise InputError(f"the input shape {input_shape} must have positive entries")
        self.input_shape = tuple(int(n) for n in input_shape)
        require_readable(module)
        self._default = torch.get_default_dtype()
        self._module = _copied(module)
        self._state = module_state(self._module)
        self.sha256 = _digest(self._module, self._state)
        self.dtype = np.dtype(np.float64 if precision(self._module) == torch.float64 else np.float32)

    def network(self, far_bounds: bool = False) -> Network:
        """The lowered network (`far_bounds` as in `Reading`).

        Raises InputError, with the line of the module's code where there is one, for what is not known, and
        for a module that does not compute the same at every call.
        """
        with self._usual():
            kind = precision(self._module)
            found = lower(self._module, self.input_shape, {}, Reading(kind, kind, far_bounds))
        entry = changed(self._state, module_state(self._module))
        if entry is not None:
            raise InputError(f"the module changes its '{entry}' when it runs, so its answers may differ between calls")
        return found

    def behind(self, first: nn.Module, input_shape: tuple[int, ...]) -> ModuleModel:
        """The same behind another module, which takes inputs of that shape."""
        with default_dtype(self._default):
            return ModuleModel(nn.Sequential(first, self._module), input_shape)

    @contextmanager
    def _usual(self) -> Iterator[None]:
        """Inside, the code of the module runs as it would for its user, but functions are not compiled."""
        with own_defaults(), default_dtype(self._default), torch.no_grad(), _eager():
            yield

    def _call(self, x: Array) -> Array:
        try:
            with self._usual():
                # A copy: the module may write into its input.
                found = self._module(torch.from_numpy(x).to(precision(self._module), copy=True))
        except VerifierError:
            raise
        except Exception as error:  # foreign code may raise anything
            reason = one_line(f"{type(error).__name__}: {error}")
            message = f"the module cannot be run on an input of shape {self.input_shape}: {reason}"
            raise InputError(message, *(place_of(error.__traceback__) or ())) from error
        found = only_member(found)
        if not isinstance(found, torch.Tensor):
            raise InputError(f"the module must return one tensor, not a {type(found).__name__}")
        if found.dtype not in {torch.float32, torch.float64} or found.layout != torch.strided:
            kind = str(found.dtype).removeprefix("torch.")
            raise InputError(f"the module must return numbers of type float32 or float64, not {kind}")
        return found.detach().to(device="cpu").numpy()


def unwrapped(network: Any) -> Any:
    """The module inside of what torch.compile, torch.export or a wrapper for several devices made of it.

    Anything else comes back as it is.
    """
    if type(network).__name__ == "OptimizedModule" and hasattr(network, "_orig_mod"):
        return unwrapped(network._orig_mod)
    if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(network.module)
    if type(network).__name__ == "ExportedProgram":
        return unwrapped(network.module())
    if isinstance(network, fx.GraphModule) and isinstance(network.graph._codegen, fx.graph._PyTreeCodeGen):
        return _plain_graph(network)
    return network


def _plain_graph(exported: fx.GraphModule) -> fx.GraphModule:
    """The same nodes as an ordinary module: it takes a tensor, and may be told to be in evaluation mode."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(exported.graph, {}))
    return fx.GraphModule(exported, graph)


def _eager() -> AbstractContextManager[Any]:
    """Inside, torch.compile does nothing: it would compile the tracing along with the module."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _copied(module: nn.Module) -> nn.Module:
    try:
        with own_defaults():
            return copy.deepcopy(module).cpu().eval().requires_grad_(False)
    except Exception as error:  # foreign code may raise anything
        raise InputError(f"the module cannot be copied to the CPU: {one_line(error)}") from error


def _digest(module: nn.Module, state: Mapping[str, str]) -> str:
    """A name for the module's structure and state."""
    total = hashlib.sha256()
    for path, child in module.named_modules():
        total.update(f"{path} {type(child).__module__}.{type(child).__qualname__} {child.extra_repr()}\n".encode())
    for key, digest in state.items():
        total.update(f"{key} {digest}\n".encode())
    return total.hexdigest()
