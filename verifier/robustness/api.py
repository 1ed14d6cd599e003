"""The entry points for Python that speak of images: accuracies over a data set, and radii."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from verifier.arguments import LARGEST_SEED, path_name, shown, whole_number
from verifier.batch.jobs import Terms
from verifier.batch.judge import Demands
from verifier.batch.run import run
from verifier.batch.staff import Staff
from verifier.batch.store import opened
from verifier.config import Config, load_config
from verifier.errors import InputError
from verifier.loading import Original, sampled
from verifier.machine import Machine
from verifier.network.models.onnx import load_onnx
from verifier.pipeline import Request
from verifier.property.arrays import Numbers, as_array
from verifier.property.robustness import Number, exact_number
from verifier.robustness.accuracy import Accuracy
from verifier.robustness.bisection import LEAST, Aim, Bisection
from verifier.robustness.dataset import ImageTelling, Inquiry
from verifier.robustness.images import Images, check_fits
from verifier.robustness.neighbourhood import Neighbourhood
from verifier.robustness.place import Place, Unstated
from verifier.robustness.radii import Radii, Sweep
from verifier.robustness.radius import Radius

Path = str | PathLike[str]
Clip = tuple[Number, Number]


def dataset(  # noqa: PLR0913 (a public entry point: all but the question has defaults)
    network: Path,
    images: Numbers,
    labels: Numbers,
    eps: Number,
    *,
    norm: str | float = "inf",
    clip: Clip | None = None,
    mean: Number | Sequence[Number] = 0,
    std: Number | Sequence[Number] = 1,
    limit: int | None = None,
    out: Path | None = None,
    config: Path | Config = "auto",
    timeout: float | None = None,
    jobs: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Accuracy:
    """Clean, certified and attacked accuracy of an ONNX file over images [N, ...] with their classes [N].

        found = verifier.dataset("net.onnx", images, labels, "8/255", clip=(0, 1), timeout=60)
        print(found)
        found.certified  # a proved lower bound of the robust accuracy

    Images, `eps` and `clip` are in units before normalisation, as for `verify robust`.  Each image that is classified
    correctly is decided by worker processes, `timeout` seconds each.  With a folder `out` the results stay there, and
    the same call goes on where an earlier one was ended.  Ctrl-C ends it with what is known.

    Guarantees: see `Accuracy`.  Raises InputError for input that cannot be used.
    """
    if isinstance(network, nn.Module):
        raise InputError("worker processes need an ONNX file; export the module, or ask verifier.radii about it")
    machine = Machine.of(device, threads, timeout)
    terms = Terms(load_config(config), machine, whole_number(seed, "seed", 0, LARGEST_SEED))
    name, found = path_name(network, "an ONNX file"), _images(images, labels)
    count = None if limit is None else whole_number(limit, "limit", 1, 2**31)
    staff = Staff(None if jobs is None else whole_number(jobs, "jobs", 1, 4096))
    model = load_onnx(name, declared=found.x[0].size)
    inquiry = Inquiry(model, name, found, eps, Neighbourhood.of(norm, clip, mean, std), count)
    if out is not None:
        return _dataset(inquiry, path_name(out, "a folder"), terms, staff, progress)
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        return _dataset(inquiry, folder, terms, staff, progress, keeps=False)


def _dataset(inquiry: Inquiry, folder: str, terms: Terms, staff: Staff, progress: bool, keeps: bool = True) -> Accuracy:
    with opened(folder) as store:
        data = inquiry.listed(folder)
        instances = data.instances(folder, terms.machine.timeout)
        verdicts = run(staff.plan(instances, terms, not progress, ImageTelling(data)), store, Demands())
    return data.accuracy(verdicts.records, folder if keeps else None, verdicts.interrupted)


def radius(  # noqa: PLR0913 (as above)
    network: Path | nn.Module,
    x: Numbers,
    label: int | None = None,
    *,
    norm: str | float = "inf",
    clip: Clip | None = None,
    mean: Number | Sequence[Number] = 0,
    std: Number | Sequence[Number] = 1,
    tolerance: float = 0.01,
    max_eps: Number | None = None,
    config: Path | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> Radius:
    """The largest certified and the smallest falsified radius around an input of an ONNX file or a torch module.

        found = verifier.radius("net.onnx", x, clip=(0, 1), timeout=60)
        found.certified, found.falsified

    `x`, `clip` and the radius are in units before normalisation, as for `verify robust`.  Without a label it is the
    class that the network gives to x.  It ends when the gap is `tolerance` times the falsified radius, at the latest
    after `timeout` seconds; nothing beyond `max_eps` is looked at.

    Guarantees: see `Radius`.  Raises InputError for input that cannot be used.
    """
    centre = _array(x, "x")
    model, request, aim = _asked(network, centre.shape, config, (device, threads, timeout), seed, (tolerance, max_eps))
    place = Place.of(
        model,
        centre.reshape(model.input_shape),
        None if label is None else whole_number(label, "label", 0, 2**31),
        Neighbourhood.of(norm, clip, mean, std),
    )
    return Bisection(request, request.status(), place, aim).run()


def radii(  # noqa: PLR0913 (as above)
    network: Path | nn.Module,
    images: Numbers,
    labels: Numbers,
    *,
    norm: str | float = "inf",
    clip: Clip | None = None,
    mean: Number | Sequence[Number] = 0,
    std: Number | Sequence[Number] = 1,
    tolerance: float = 0.01,
    max_eps: Number | None = None,
    config: Path | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> Radii:
    """`radius` for every image [N, ...] that has the class [N] that the network gives it; `timeout` seconds each.

        found = verifier.radii("net.onnx", images, labels, clip=(0, 1), timeout=10)
        found.certified_at(0.03)  # the certified accuracy at that radius

    Guarantees: see `Radii`.  Raises InputError for input that cannot be used.
    """
    found = _images(images, labels)
    model, request, aim = _asked(network, found.shape, config, (device, threads, timeout), seed, (tolerance, max_eps))
    return Sweep(request, request.status(), model, found, Neighbourhood.of(norm, clip, mean, std), aim).run()


def _array(values: Numbers, name: str) -> NDArray[Any]:
    found = as_array(values, name)
    if not found.size:
        raise InputError(f"{name} has no entries")
    return found


def _images(images: Numbers, labels: Numbers) -> Images:
    return Images.of(_array(images, "images"), _array(labels, "labels").astype(np.float64))


def _asked(
    network: Path | nn.Module,
    shape: tuple[int, ...],
    config: Path | Config,
    machine: tuple[object, object, object],
    seed: int,
    aim: tuple[float, Number | None],
) -> tuple[Original, Request, Aim]:
    """The network for inputs of a shape, what to compute with, and when to stop."""
    tolerance, most = aim
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not LEAST <= tolerance < 1:
        raise InputError(f"tolerance is {shown(tolerance)}; it must be a number from {LEAST:g} to 1")
    largest = None if most is None else exact_number(most, "max_eps")
    if largest is not None and largest <= 0:
        raise InputError(f"max_eps is {shown(most)}; it must be positive")
    name = None if isinstance(network, nn.Module) else path_name(network, "an ONNX file or a torch module")
    size = int(np.prod(shape))
    model: Original = sampled(network, shape) if isinstance(network, nn.Module) else load_onnx(str(name), declared=size)
    check_fits(shape, model.input_shape)
    number = whole_number(seed, "seed", 0, LARGEST_SEED)
    request = Request(Unstated(name), load_config(config), Machine.of(*machine), number)
    return model, request, Aim(float(tolerance), largest)
