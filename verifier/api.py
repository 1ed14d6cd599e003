"""The entry points for Python: an instance, as files or as a module with arrays, and what is to be known about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from os import PathLike

import torch

from verifier.arguments import LARGEST_SEED, shown, whole_number
from verifier.bounding import HIDDEN
from verifier.bounding.core.base import Region, Until
from verifier.bounding.hidden import GroupBounds
from verifier.config import Config, iteration_overrides, load_config
from verifier.errors import InputError
from verifier.loading import Loaded, Source, given
from verifier.machine import Machine
from verifier.network.judge import check_against, faithful_network
from verifier.network.magnitudes import beyond, spoiled
from verifier.pipeline import Request, decide
from verifier.precision import full_precision, own_defaults
from verifier.property.arrays import Numbers, Unsafe
from verifier.result.lower_bounds import PHASES, LowerBounds
from verifier.result.result import Result
from verifier.result.status import Snapshot
from verifier.result.watching import watched
from verifier.survey import Survey

MOST_ITERATIONS = 2**31 - 1


def verify(  # noqa: PLR0913 (the public entry point: all but the instance has defaults)
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    unsafe: Unsafe | None = None,
    config: str | PathLike[str] | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
    progress: Callable[[Snapshot], object] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Decides one instance.

    Either `network` and `prop` are files (ONNX and VNN-LIB), or `network` is a torch module (or an ONNX file) and the
    property is given as arrays: the input box `lower <= x <= upper` and `unsafe`, a list of pairs (A, c).  An output y
    is unsafe if for some pair all rows of A y <= c hold.  For a file the box has the shape of the network's input,
    with or without leading ones, or is flat; for a module it has the shape of one sample, with or without a batch
    axis of 1.

        verifier.verify(module, lower=x - 0.1, upper=x + 0.1, unsafe=[([[1.0, -1.0]], [0.0])])

    asks whether y_0 <= y_1 is possible anywhere in the box.  `timeout` counts seconds from the call.

    `progress` is called a few times per second, in a thread of its own, with where the run is; if it returns False or
    raises an error, the run ends.  It also ends once `cancel` is set.  Its result is then `unknown` with the reason
    `interrupted` and all that is known; an error of `progress` is raised again.

    Guarantees: `sat` comes with a counterexample that the original network confirmed, `unsat` with bounds that
    include all rounding errors.  `arithmetic` of the result says whether real arithmetic confirms a counterexample,
    too.  Raises InputError for input that cannot be used.
    """
    resolved = load_config(config)
    machine = Machine.of(device, threads, timeout)
    number = whole_number(seed, "seed", 0, LARGEST_SEED)
    request = Request(given(network, prop, (lower, upper), unsafe), resolved, machine, number)
    status = request.status()
    with watched(status, progress, cancel) as ended:
        return ended(decide(request, status))


def lower_bounds(  # noqa: PLR0913 (a public entry point: all but the instance has defaults)
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    unsafe: Unsafe | None = None,
    method: str = "alpha_crown",
    iterations: int | None = None,
    config: str | PathLike[str] | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> LowerBounds:
    """Lower bounds of every row of an instance, by one method and without a search: incomplete verification.

    The instance is given as for `verify`.  `method` is one of `verifier.bounding.BOUNDERS.names()`; its options stand
    in the configuration under `bounding`, and `iterations` replaces the number of its iterations.  (`verifier.bounds`
    bounds the hidden neurons instead.)

    Guarantees: see `LowerBounds`.  Raises InputError for input that cannot be used.
    """
    if not isinstance(method, str):
        raise InputError(f"a method is given by its name, not by {shown(method)}")
    count = None if iterations is None else whole_number(iterations, "iterations", 0, MOST_ITERATIONS)
    resolved = load_config(config)
    if count is not None:
        resolved = load_config(resolved, iteration_overrides([method], count))
    machine = Machine.of(device, threads, timeout)
    number = whole_number(seed, "seed", 0, LARGEST_SEED)
    request = Request(given(network, prop, (lower, upper), unsafe), resolved, machine, number)
    return Survey.of(request, [method], request.status(PHASES)).run()[0]


def bounds(
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    method: str = "best",
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Lower and upper bounds of every layer before its ReLU: a pair of tensors [N, n_k] per group, last the output.

    N counts the input boxes of the property, or is 1 for a box given by `lower` and `upper` (see `verify`); neurons
    are flattened.  `method` is one of `verifier.bounding.HIDDEN.names()`.
    Guarantees: valid in exact arithmetic; the tensors are float64 and rounded outward.  They are infinite where numbers
    are too large for the error model (docs/numerics.md).  Raises InputError for input that cannot be used.
    """
    if not isinstance(method, str) or method not in HIDDEN.names():
        raise InputError(f"method {shown(method)} is unknown; there are {', '.join(HIDDEN.names())}")
    instance = given(network, prop, (lower, upper), None, needs_unsafe=False)
    with own_defaults(), full_precision():
        region = _layer_bounds(instance.load(), HIDDEN.build(method))
    return list(zip(region.l_hat, region.u_hat, strict=True))


def _layer_bounds(instance: Loaded, method: GroupBounds) -> Region:
    """The boxes of a property with bounds of all layers, the output included."""
    boxes = instance.property.boxes
    sides = boxes.lower, boxes.upper
    net = faithful_network(instance.model, sides)
    check_against(instance.model, net, sides)
    lower, upper = (torch.from_numpy(side) for side in sides)
    if beyond(net, torch.maximum(lower.abs(), upper.abs()).amax(dim=0)) is not None:
        net = spoiled(net)
    whole = replace(net, groups=net.layers, output=net.output)
    return method.region(whole, lower, upper, Until())
