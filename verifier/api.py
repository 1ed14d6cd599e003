"""The entry points for Python: an instance, as files or as a module with arrays, and what is to be known about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike

import numpy as np
import torch

from verifier.arguments import LARGEST_SEED, positive_number, shown, whole_number
from verifier.bounding import BOUNDERS, HIDDEN
from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.base import Bounder, Objective, Region, Until, unit_objectives
from verifier.bounding.hidden import Ends, GroupBounds, intersect
from verifier.config import Config, iteration_overrides, load_config
from verifier.errors import InputError
from verifier.loading import Loaded, Source, given, given_robustness
from verifier.machine import Machine
from verifier.network.judge import check_against, faithful_network
from verifier.network.magnitudes import beyond, spoiled
from verifier.pipeline import Request, decide
from verifier.precision import full_precision, own_defaults
from verifier.property.arrays import Around, Numbers, Unsafe, as_array
from verifier.property.changes import Change
from verifier.property.robustness import Number, Scaling
from verifier.ranging.ranger import Ranger
from verifier.result.lower_bounds import PHASES, LowerBounds
from verifier.result.ranges import Ranges
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
    around: Around | None = None,
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

    asks whether y_0 <= y_1 is possible anywhere in the box.  `around` is another input set, `verifier.Around(x, eps,
    norm)`: all points near x in a norm; with a box, those of them that lie in it.  `timeout` counts seconds from the
    call.

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
    request = Request(given(network, prop, (lower, upper, around), unsafe), resolved, machine, number)
    status = request.status()
    with watched(status, progress, cancel) as ended:
        return ended(decide(request, status))


def robust(  # noqa: PLR0913 (a public entry point: all but the instance has defaults)
    network: Source,
    x: Numbers,
    eps: Number | None = None,
    label: int | None = None,
    *,
    norm: str | float = "inf",
    patch: tuple[int, int] | None = None,
    at: tuple[int, int] | None = None,
    brightness: Number | None = None,
    contrast: Number | None = None,
    clip: tuple[Number, Number] | None = None,
    mean: Number | Sequence[Number] = 0,
    std: Number | Sequence[Number] = 1,
    config: str | PathLike[str] | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
    progress: Callable[[Snapshot], object] | None = None,
    cancel: threading.Event | None = None,
) -> Result:
    """Decides local robustness: do all inputs within `eps` of `x` have the class `label`?  `unsat`: they have.

        verifier.robust(module, image, 0.5, norm=2, clip=(0, 1), mean=0.1307, std=0.3081)

    `x`, `eps` and `clip`, the range of valid inputs, are in units before normalisation: the network gets (x - mean) /
    std, with one number or one per channel.  The norm is 'inf', 2 or 1.  Without a label it is the class that the
    network gives to x.  A float stands for the decimal that Python prints for it; 8/255 may be given as "8/255".

        verifier.robust(module, image, patch=(3, 3), clip=(0, 1))

    asks about patches instead: the pixels of one rectangle of (rows, columns), in all channels, take any values of
    `clip`, all others stay.  It lies `at` a place (row and column of its first pixel, from 0), or anywhere.  `x` has
    the axes of an image then, although the network may take it flat.

        verifier.robust(module, image, brightness=0.1, contrast=0.2, clip=(0, 1))

    asks about other light: images (1 + c) x + b, cut off at `clip` if it is given, with all b and c up to these
    numbers.  A counterexample has the inputs b and c, and its `image` beside them, which the network itself confirms.

    `progress` and `cancel`, and what is guaranteed, are those of `verify`.
    """
    resolved, machine = load_config(config), Machine.of(device, threads, timeout)
    number = whole_number(seed, "seed", 0, LARGEST_SEED)
    change = Change(eps, norm, patch, at, brightness, contrast, clip)
    near = change.around(as_array(x, "x"), label, Scaling.of(mean, std))
    request = Request(given_robustness(network, near), resolved, machine, number)
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
    around: Around | None = None,
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
    request = Request(given(network, prop, (lower, upper, around), unsafe), resolved, machine, number)
    return Survey.of(request, [method], request.status(PHASES)).run()[0]


def ranges(  # noqa: PLR0913 (a public entry point: all but the instance has defaults)
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    around: Around | None = None,
    rows: Numbers | None = None,
    gap: float = 1e-3,
    config: str | PathLike[str] | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> Ranges:
    """Certified minimum and maximum of every output over an input set, by branch and bound.

        print(verifier.ranges(module, lower=x - 0.1, upper=x + 0.1))

    The input set is that of a property (all of its boxes), a box, or `around` as for `verify`.  `rows` [m, outputs]
    are other linear functions of the outputs, in their place.  Ends are certified to a `gap` from a value that the
    network reaches at a point; of values beyond 1 it is a share.  With a time limit they are as good as it allows.

    Guarantees: see `Ranges`.  Raises InputError for input that cannot be used.
    """
    width = positive_number(gap, "gap")
    resolved, machine = load_config(config), Machine.of(device, threads, timeout)
    number = whole_number(seed, "seed", 0, LARGEST_SEED)
    matrix = None if rows is None else np.atleast_2d(as_array(rows, "rows"))
    instance = given(network, prop, (lower, upper, around), None, needs_unsafe=False)
    request = Request(instance, resolved, machine, number)
    return Ranger(request, request.status(), matrix, width).run()


def bounds(
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    around: Around | None = None,
    method: str = "best",
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Lower and upper bounds of every layer before its ReLU: a pair of tensors [N, n_k] per group, last the output.

    N counts the input boxes of the property, or is 1 for a box given by `lower` and `upper` (see `verify`); neurons
    are flattened.  `method` is one of `verifier.bounding.HIDDEN.names()`, or a method of `lower_bounds` such as
    "alpha_crown" or "propagated" (but for linear programs), which then bounds every neuron that may be on either side
    of zero, and all outputs, from both sides.
    Guarantees: valid in exact arithmetic; the tensors are float64 and rounded outward.  They are infinite where numbers
    are too large for the error model (docs/numerics.md).  Raises InputError for input that cannot be used.
    """
    rigorous = BOUNDERS.names(without="reference")
    names = dict.fromkeys((*HIDDEN.names(), *rigorous))
    if not isinstance(method, str) or method not in names:
        raise InputError(f"method {shown(method)} is unknown; there are {', '.join(names)}")
    instance = given(network, prop, (lower, upper, around), None, needs_unsafe=False)
    with own_defaults(), full_precision():
        if method in HIDDEN.names():
            return _layer_bounds(instance.load(), HIDDEN.build(method))
        options = load_config("auto", [f"bounding.sharpen={method}"]).bounding
        return _layer_bounds(instance.load(), options.hidden(), options.bounder(method))


def _layer_bounds(instance: Loaded, method: GroupBounds, last: Bounder | None = None) -> list[Ends]:
    """The bounds of all layers on the boxes of a property, the output included; that by `last`, if it is given."""
    boxes = instance.property.boxes
    sides = boxes.lower, boxes.upper
    net = faithful_network(instance.model, sides)
    check_against(instance.model, net, sides)
    lower, upper = (torch.from_numpy(side) for side in sides)
    inputs = Region(lower, upper, ball=InputBall.of(instance.property.ball, lower))
    if beyond(net, torch.maximum(lower.abs(), upper.abs()).amax(dim=0)) is not None:
        net = spoiled(net)
    whole = replace(net, groups=net.layers, output=net.output)
    region = method.completed(whole, inputs, Until())
    if last is not None:
        every, known = torch.arange(net.n_out), len(net.layers)
        rows = Objective(known, unit_objectives(net.n_out, every, lower))
        hidden = replace(region, l_hat=region.l_hat[:-1], u_hat=region.u_hat[:-1], functions=region.functions[:-1])
        intersect(region.l_hat[-1], region.u_hat[-1], every, last.bound(net, hidden, rows, Until()).lower)
    return list(zip(region.l_hat, region.u_hat, strict=True))
