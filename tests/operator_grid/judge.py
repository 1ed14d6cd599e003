"""How a case ends: the lowered network against onnxruntime, output by output."""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from operator_grid.case import DOUBLE, FLOAT, Array, Case, quiet_session

from verifier.errors import InputError
from verifier.network.models.onnx import OnnxModel

TOLERANCE = {DOUBLE: 2.0**-45, FLOAT: 2.0**-20}
"""For rounded cases, relative to 1 + |output|, by the precision of the run that they are compared with."""


class End(enum.Enum):
    EQUAL = "equal"
    REFUSED = "refused"
    NO_MODEL = "onnxruntime refuses the file"
    WRONG = "wrong"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Outcome:
    case: Case
    end: End
    detail: str = ""

    def __str__(self) -> str:
        last = self.case.nodes[-1].op_type if self.case.nodes else "no node"
        how = f"PYTHONPATH=tests python -m operator_grid {self.case.label}"
        return f"{how}  # {last}, opset {self.case.opset}: {self.end.value}: {self.detail}"


class Refused(Exception):
    """A reader does not take a file, and says why."""


@dataclass(frozen=True)
class Answer:
    """What a reader makes of a file: outputs [B, m] at points [B, n], and the shape of an output if it is known."""

    forward: Callable[[Array], Array]
    shape: tuple[int, ...] | None = None


def lowered(data: bytes) -> Answer:
    """The reader of the search."""
    try:
        network = OnnxModel(Path("case.onnx"), data, "").network()
    except InputError as error:
        raise Refused(error.message.removesuffix("; docs/formats.md lists what is")) from error
    return Answer(lambda points: np.asarray(network.forward(torch.from_numpy(points))), network.output.shape)


def judged(case: Case, read: Callable[[bytes], Answer] = lowered) -> Outcome:
    model = case.model()
    try:
        expected = _run(model, case)
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        return Outcome(case, End.NO_MODEL, _short(error))
    try:
        answer = read(model.SerializeToString())
    except Refused as error:
        return Outcome(case, End.REFUSED, str(error))
    except Exception as error:  # whatever else it raises is what this is looking for
        return Outcome(case, End.CRASHED, f"{_short(error)} at {traceback.extract_tb(error.__traceback__)[-1]}")
    return _compared(case, answer, expected)


def _run(model: onnx.ModelProto, case: Case, points: Array | None = None) -> Array:
    """Outputs [B, *shape] by onnxruntime."""
    session = quiet_session(model)
    where = case.points if points is None else points
    (source,) = session.get_inputs()
    return np.stack([session.run(None, {source.name: point.reshape(case.shape)})[0] for point in where])


def _compared(case: Case, answer: Answer, expected: Array) -> Outcome:
    if answer.shape not in (None, expected.shape[1:]):
        return Outcome(case, End.WRONG, f"shape {answer.shape} instead of {expected.shape[1:]}")
    points = case.points.astype(np.float64)
    found = answer.forward(points)
    allowed = 0.0
    if case.rounded:
        expected, precision = _precise(case, expected)
        allowed = TOLERANCE[precision]
    wanted = expected.reshape(len(points), -1).astype(np.float64)
    if found.shape != wanted.shape:
        return Outcome(case, End.WRONG, f"{found.shape[1]} outputs instead of {wanted.shape[1]}")
    with np.errstate(invalid="ignore"):  # what is not finite counts as far
        far = ~(np.abs(found - wanted) <= allowed * (1.0 + np.abs(wanted)))
    if not far.any():
        return Outcome(case, End.EQUAL)
    point, entry = (int(i) for i in np.argwhere(far)[0])
    detail = f"output {entry} is {found[point, entry]!r} instead of {wanted[point, entry]!r} at point {point}"
    return Outcome(case, End.WRONG, f"{detail} ({int(far.sum())} of {far.size} differ)")


def _precise(case: Case, expected: Array) -> tuple[Array, int]:
    """The outputs in float64, if onnxruntime has the operators in that precision; else those of the file."""
    if case.dtype == DOUBLE:
        return expected, DOUBLE
    points = case.points.astype(np.float64)
    try:
        return _run(case.model(DOUBLE), case, points), DOUBLE
    except Exception:  # as above
        return (_referred(case, points), DOUBLE) if case.reference else (expected, FLOAT)


def _referred(case: Case, points: Array) -> Array:
    evaluator = ReferenceEvaluator(case.model(DOUBLE))
    (name,) = evaluator.input_names
    return np.stack([evaluator.run(None, {name: point.reshape(case.shape)})[0] for point in points])


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
