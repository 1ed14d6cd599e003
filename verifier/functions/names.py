"""Functions by name: the operator of ONNX and the functions of torch that each stands for.

A function is one file.  It registers under the name of its operator, whose attributes are its options, and says which
functions of torch it stands for:

    @FUNCTIONS.register("Sigmoid")
    @stands_for("sigmoid")
    @dataclass(frozen=True)
    class Sigmoid(Curve): ...

`FUNCTIONS.build("Elu", {"alpha": 0.5})` makes the function of a node.  A plugin registers by being imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from verifier.registry import Registry, import_rules

if TYPE_CHECKING:
    from verifier.functions.base import Function

FUNCTIONS: Registry[Function] = Registry("FUNCTIONS", "function", "verifier.functions")
"""Functions of one number, by the names of their operators in ONNX."""

Maker = TypeVar("Maker", bound=Callable[..., Any])

_TORCH: dict[str, Callable[..., Any]] = {}


def stands_for(*names: str) -> Callable[[Maker], Maker]:
    """Decorates what makes the function from the parameters of the functions of torch that have these names.

    The first parameter, which is the tensor, is left out, and so is `inplace`.
    """

    def keep(maker: Maker) -> Maker:
        _TORCH.update(dict.fromkeys(names, maker))
        return maker

    return keep


def known_to_torch(name: str) -> Callable[..., Function] | None:
    """What makes the function that torch calls `name`, if there is one."""
    _import_all()
    return _TORCH.get(name)


@functools.cache
def _import_all() -> None:
    import_rules("verifier.functions", "FUNCTIONS.register")
