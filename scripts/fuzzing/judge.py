"""Runs the verifier on a case and judges what it says."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import verifier
from fuzzing.instances import Case
from fuzzing.pieces import ExactNetwork
from fuzzing.queries import Writer, approximate
from fuzzing.settings import OFF, Setting
from verifier.errors import InputError

BY_ROUNDING = "by rounding"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one run said: a verdict, `refused` or `crash`; and what is wrong with it, if anything is."""

    setting: Setting
    verdict: str
    wrong: str | None = None
    note: str = ""  # a refusal's sentence, or why a verdict that looks odd is none
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        return {
            "setting": self.setting.name,
            "seed": self.setting.seed,
            "verdict": self.verdict,
            "wrong": self.wrong,
            "note": self.note,
            "seconds": round(self.seconds, 4),
        }


def write(case: Case, folder: Path) -> tuple[Path, Path]:
    """The case as files."""
    network, prop = folder / "net.onnx", folder / "prop.vnnlib"
    onnx.save(case.model, network)
    prop.write_text(Writer(case.query, case.shape, random.Random(0)).text(), encoding="utf-8")
    return network, prop


def ask(case: Case, setting: Setting, folder: Path) -> Answer:
    """One verdict about a case whose files lie in the folder, judged by the truth."""
    begin = time.perf_counter()
    try:
        with quiet():
            result = verifier.verify(
                folder / "net.onnx",
                folder / "prop.vnnlib",
                config=setting.config(),
                timeout=setting.seconds,
                threads=setting.threads,
                seed=setting.seed,
                device="cpu",
            )
    except InputError as error:
        return Answer(setting, "refused", None, error.message, time.perf_counter() - begin)
    except Exception as error:  # whatever it is, a user would see a traceback
        return Answer(setting, "crash", f"{type(error).__name__}: {error}", "", time.perf_counter() - begin)
    seconds = time.perf_counter() - begin
    wrong, note = None, ""
    if result.verdict.value == "unsat" and case.truth.unsafe:
        wrong = f"unsat, but the margin is {approximate(case.truth.margin)} at {[approximate(v) for v in case.truth.x]}"
    if result.counterexample is not None:
        found = result.counterexample
        wrong, note = judge_witness(case, found.x, found.exact)
        if found.sharp and not case.truth.unsafe:
            wrong = (
                f"the witness is said to hold in real arithmetic, but the margin is {approximate(case.truth.margin)}"
            )
    return Answer(setting, result.verdict.value, wrong, note, seconds)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside, nothing is logged or printed, and warnings are no errors."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def judge_witness(case: Case, point: np.ndarray[Any, Any], exact: bool) -> tuple[str | None, str]:
    """What is wrong with a witness, if anything, and a note on what it rests on."""
    x = [Fraction(float(v)) for v in point]
    homes = [c for c in case.query.clauses if c.contains(x)]
    if exact and not homes:
        return "the witness lies outside of every box", ""
    if not exact:
        homes = [c for c in case.query.clauses if _near(c.lower, c.upper, point)]
        if not homes:
            return "the inexact witness is not next to any box", ""
    outputs = [run_file(case.model, point, optimised) for optimised in (False, True)]
    if not any(all(row.holds(x, y) for row in clause.rows) for y in outputs if y is not None for clause in homes):
        return "onnxruntime does not confirm the witness", ""
    real = ExactNetwork.of(case.model).at(x)
    if any(all(row.holds(x, real) for row in clause.rows) for clause in homes):
        return None, "" if exact else "inexact"
    gap = min(max(row.value(x, real) for row in clause.rows) for clause in homes)
    if gap > _tolerance(case, real, x):
        return f"onnxruntime differs from real arithmetic by more than rounding: {approximate(gap)}", ""
    return None, BY_ROUNDING if exact else f"inexact, {BY_ROUNDING}"


def _near(lower: Sequence[Fraction], upper: Sequence[Fraction], x: np.ndarray[Any, Any]) -> bool:
    """Each coordinate lies in its interval, or is a float of its type next to an interval that holds none."""
    for low, high, own in zip(lower, upper, x, strict=True):
        value = Fraction(float(own))
        if low <= value <= high:
            continue
        beyond = np.nextafter(own, own.dtype.type(np.inf if value < low else -np.inf))
        over = Fraction(float(beyond)) > high if value < low else Fraction(float(beyond)) < low
        if not over:
            return False
    return True


def _tolerance(case: Case, y: Sequence[Fraction], x: Sequence[Fraction]) -> Fraction:
    """Far more than a float32 run of a few layers loses, far less than another function would differ by."""
    if not case.style_is_ordinary:
        return Fraction(10) ** 400
    size = max([Fraction(1), *map(abs, y), *map(abs, x)])
    weights = max(sum(map(abs, row.y), Fraction(0)) for c in case.query.clauses for row in c.rows)
    return weights * size / 100


def run_file(model: onnx.ModelProto, x: np.ndarray[Any, Any], optimised: bool) -> list[Fraction] | None:
    """The outputs by onnxruntime; None if they are not finite, or if it cannot run the file with that setting."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # it has no common base for its own; some optimisations fail on float64
        return None
    source = session.get_inputs()[0]
    dtype = np.float32 if source.type == "tensor(float)" else np.float64
    shape = [d if isinstance(d, int) else 1 for d in source.shape]
    y = np.asarray(session.run(None, {source.name: np.asarray(x, dtype).reshape(shape)})[0]).ravel()
    return [Fraction(float(v)) for v in y] if np.isfinite(y).all() else None


def contradictions(answers: Sequence[Answer]) -> list[str]:
    """What answers to one query contradict each other.

    A witness that holds in the float run only, or beside a box without floats, stands where no proof was found in time
    (docs/numerics.md).  So it contradicts a proof if the two runs differ only in what a proof does not depend on, and
    both had enough time: the number of processes, the seed, whether the falsifier runs.
    """
    found = []
    for sat in (a for a in answers if a.verdict == "sat"):
        for unsat in (a for a in answers if a.verdict == "unsat"):
            alike = _proving(sat.setting) == _proving(unsat.setting)
            complete = all(a.seconds < 0.8 * a.setting.seconds for a in (sat, unsat))
            if not sat.note or (alike and complete):
                why = f" ({sat.note})" if sat.note else ""
                found.append(f"contradiction{why}: sat by {sat.setting.name}, unsat by {unsat.setting.name}")
    return found


def _proving(setting: Setting) -> Setting:
    """The part of a setting that proofs depend on."""
    return replace(setting, threads=0, seed=0, overrides=tuple(o for o in setting.overrides if o != OFF))
