"""What the front end refuses of the grid, and why: a case that is refused in another way fails the tests."""

from __future__ import annotations

import re
from dataclasses import dataclass

from operator_grid.judge import Outcome


@dataclass(frozen=True)
class Refusal:
    """Of the cases of a family, at most the share `most` may end in an error that matches the pattern `sentence`.

    `family` is a pattern, too: the share holds for each family by itself.
    """

    family: str
    sentence: str
    most: float
    why: str

    def covers(self, outcome: Outcome) -> bool:
        family = outcome.case.label.split(":")[0]
        return bool(re.fullmatch(self.family, family)) and re.search(self.sentence, outcome.detail) is not None


NODE = r"^node '.+' of type "

REFUSALS = (
    Refusal("scatter_nd", NODE + "ScatterND .*name an entry twice", 0.3, "which of two values is kept is not said"),
    Refusal("resize", NODE + "Resize .*leaves nothing of its input", 0.2, "a tensor without entries"),
    Refusal(
        "prelu",
        NODE + "PRelu .*slope of shape .* does not fit",
        0.15,
        "onnxruntime broadcasts the input to the slope, which ONNX does not allow",
    ),
    Refusal("dropout", NODE + "Dropout .*random in training mode", 0.4, "the output is random"),
    Refusal("cast", NODE + "Cast(Like)? .*it rounds from", 0.8, "a step function has no pieces that are continuous"),
    Refusal(
        "slice|slice_many|slice_twice",
        NODE + "Slice .*differ in what a negative step to the largest integer means",
        0.08,
        "ONNX clamps such an end to the last entry, onnxruntime reads it as the first",
    ),
    Refusal(
        "slice_twice",
        "^the shape of '.+' at node '.+' of type Slice cannot be found",
        0.15,
        "onnx infers no shape for an empty slice in operator sets before 10",
    ),
    Refusal(
        "squeeze|unsqueeze",
        NODE + "(Uns|S)queeze .*negative axes are not known to this operator set",
        0.2,
        "allowed from operator set 11 on; onnx ignores them before, onnxruntime does not",
    ),
    Refusal(
        "squeeze",
        NODE + "Squeeze .*list of axes is empty",
        0.15,
        "onnxruntime then takes off every axis of length one, onnx none",
    ),
    Refusal("pad", NODE + "Pad .*leaves nothing", 0.06, "a tensor without entries"),
    Refusal("gemm", NODE + "Gemm .*has more digits than float64", 0.06, "beta times the addend would be rounded"),
    Refusal(
        "batch_norm",
        NODE + "BatchNormalization .*the statistics of the batch, or per entry",
        0.05,
        "spatial = 0 of the operator sets before 9",
    ),
    Refusal(
        "gemm_activations",
        NODE + "Gemm .*multiplies two constants",
        0.6,
        "no network has it, and onnx2torch adds in place",
    ),
    Refusal(
        "pool",
        NODE + ".*auto_pad SAME_.* with dilations has no agreed meaning",
        0.08,
        "onnxruntime pads as if there was no dilation",
    ),
    Refusal("pool", NODE + ".*(does not fit into|larger than its padded)", 0.03, "the window is larger than the input"),
    Refusal(
        "conv|pool",
        NODE + ".*leaves out entries between windows",
        0.03,
        "ONNX pads by nothing where onnxruntime moves the windows",
    ),
    Refusal(
        "conv_transpose",
        NODE + "ConvTranspose .*its output would be cut by",
        0.1,
        "an output_shape beyond the full image, which onnxruntime fills up and ONNX does not define",
    ),
)
