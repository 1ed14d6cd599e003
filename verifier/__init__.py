"""Strata: a complete verifier for neural networks.

    import verifier
    result = verifier.verify("net.onnx", "prop.vnnlib", timeout=60)

`verify` decides an instance and `robust` local robustness; `lower_bounds` bounds the rows of an instance by one method,
without a search; `ranges` gives certified ranges of outputs, and `bounds` bounds the hidden neurons.  `dataset` tells
how many images are classified robustly, `radius` and `radii` how far they may move.  Nothing heavy is imported here:
these load torch when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verifier.api import bounds, lower_bounds, ranges, robust, verify
    from verifier.errors import InputError
    from verifier.property.arrays import Around
    from verifier.result.lower_bounds import LowerBounds
    from verifier.result.ranges import Ranges
    from verifier.result.result import Result
    from verifier.result.status import Snapshot
    from verifier.result.verdict import Reason, Verdict
    from verifier.robustness.accuracy import Accuracy
    from verifier.robustness.api import dataset, radii, radius
    from verifier.robustness.radii import Radii
    from verifier.robustness.radius import Radius

__version__ = "0.1.0"
__all__ = [
    "Accuracy",
    "Around",
    "InputError",
    "LowerBounds",
    "Radii",
    "Radius",
    "Ranges",
    "Reason",
    "Result",
    "Snapshot",
    "Verdict",
    "bounds",
    "dataset",
    "lower_bounds",
    "radii",
    "radius",
    "ranges",
    "robust",
    "verify",
]

_HOMES = {
    "Accuracy": "verifier.robustness.accuracy",
    "Around": "verifier.property.arrays",
    "InputError": "verifier.errors",
    "LowerBounds": "verifier.result.lower_bounds",
    "Radii": "verifier.robustness.radii",
    "Radius": "verifier.robustness.radius",
    "Ranges": "verifier.result.ranges",
    "Reason": "verifier.result.verdict",
    "Result": "verifier.result.result",
    "Snapshot": "verifier.result.status",
    "Verdict": "verifier.result.verdict",
    "bounds": "verifier.api",
    "dataset": "verifier.robustness.api",
    "lower_bounds": "verifier.api",
    "radii": "verifier.robustness.api",
    "radius": "verifier.robustness.api",
    "ranges": "verifier.api",
    "robust": "verifier.api",
    "verify": "verifier.api",
}


def __dir__() -> list[str]:
    """What there is to be used, for completion: nothing has to be loaded for it."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'verifier' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
