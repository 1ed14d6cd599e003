"""The text of a local-robustness property, from a network file and the options of `verify robust`."""

from __future__ import annotations

import logging
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.cli.files import prepare, write_whole
from verifier.errors import InputError
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.property.arrays import check_shape
from verifier.property.robustness import LocalRobustness, Scaling
from verifier.streams import say_document

log = logging.getLogger(__name__)


def write_property(output: str, net: str, source: str, label: int, **ball: Any) -> None:
    """Writes `property_text` to a file, or to stdout if that is '-'.  An older file is gone if this fails."""
    prepare([output], [net, source])
    text = property_text(net, source, label, **ball)
    if output == "-":
        say_document(text)
    else:
        write_whole(output, text)


def property_text(net: str, source: str, label: int, **ball: Any) -> str:
    """VNN-LIB text of the ball `ball` (eps, norm, mean, std, clip) around the array in the file `source`.

    Warns if the network does not give the centre the class `label`: then the property cannot hold.
    """
    model = load_onnx(net)
    scaling = Scaling(ball["mean"].split(","), ball["std"].split(","))
    centre = _centre(source, model)
    clip = tuple(ball["clip"]) if ball["clip"] else None
    found = LocalRobustness(centre, label, model.n_out, ball["eps"], clip, scaling)
    text = found.vnnlib()
    own = _own_class(model, LocalRobustness(centre, label, model.n_out, 0.0, None, scaling))
    if own != label:
        log.warning("%s: the network's own class at the input is %d, not %d", source, own, label)
    return text


def _centre(source: str, model: OnnxModel) -> NDArray[Any]:
    """The array of the file, in the shape of the network."""
    centre = _load(source)
    try:
        check_shape(centre.shape, model.input_shape)
    except InputError as error:
        raise error.located(source)  # noqa: B904 (the same error, with its file)
    return centre.reshape(model.input_shape)


def _load(source: str) -> NDArray[Any]:
    """The array of an `.npy` file, or the only one of an `.npz` file."""
    try:
        with open(source, "rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            names = found.files
            if len(names) == 1:
                return np.asarray(found[names[0]])
    except OSError as error:
        raise InputError(f"the input cannot be read: {error.strerror or error}", source) from error
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputError("the input is not a NumPy file of numbers", source) from error
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    raise InputError(f"the file holds {len(names)} arrays ({listed}); one is expected", source)


def _own_class(model: OnnxModel, centre: LocalRobustness) -> int:
    x = np.array([float(low) for low, _ in centre.bounds()], np.float32)
    return int(np.argmax(model.run(x)))
