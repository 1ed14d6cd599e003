"""The text of a local-robustness property, from a network file and the options of `verify robust`."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.network.onnx import OnnxModel, load_onnx
from verifier.property.robustness import LocalRobustness, Scaling

log = logging.getLogger(__name__)


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
    try:
        centre = np.load(source, allow_pickle=False)
    except OSError as error:
        raise InputError(f"the input cannot be read: {error.strerror or error}", source) from error
    except (ValueError, EOFError) as error:
        raise InputError("the input is not a NumPy file of numbers", source) from error
    if not isinstance(centre, np.ndarray) or centre.size != model.n_in:
        size = centre.size if isinstance(centre, np.ndarray) else "several arrays of"
        raise InputError(f"the input has {size} values, but the network takes {model.n_in}", source)
    return centre if centre.ndim > 1 else centre.reshape(model.input_shape)


def _own_class(model: OnnxModel, centre: LocalRobustness) -> int:
    x = np.array([float(low) for low, _ in centre.bounds()], np.float32)
    return int(np.argmax(model.run(x)))
