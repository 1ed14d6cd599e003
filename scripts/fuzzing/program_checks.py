"""What must hold of a network of functions: every bound encloses every value, and no verdict contradicts a point."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import verifier
from fuzzing.judge import quiet, run_file
from fuzzing.program_cases import Array, Asked, Box, exact, largest, least
from fuzzing.programs import Program
from fuzzing.queries import Writer, approximate
from fuzzing.settings import OFF, Setting
from verifier.bounding import BOUNDERS, HIDDEN
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.relaxation.zonotope import fits_single, propagate
from verifier.errors import InputError
from verifier.network.network import Network

SETTINGS = (
    Setting(overrides=(OFF,)),
    Setting(overrides=(OFF, "search.splitting=inputs")),
    Setting(overrides=(OFF, "search.splitting=relus")),
    Setting(),
    Setting("no_cuts", (OFF, "search.splitting=relus")),
    Setting(overrides=(OFF, "bounding.intermediate=interval")),
)
METHODS: dict[str, dict[str, Any]] = {
    "interval": {},
    "crown": {},
    "alpha_crown": {"iterations": 4},
    "propagated": {"iterations": 3, "initial": {"iterations": 3}},
}
INSIDE = 1e-10
"""What values of hidden neurons in float64 may be outside of their bounds, relative to the largest number around."""


SHAKEN = 2.0**-48
"""A sine of a large number that changes with so little of its argument has no digits in float64."""

MANY = 1500
"""Digits in which a point is looked at once more, before a verdict is called wrong because of it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A program with its box, many points of it, and those at which its outputs are extreme."""

    program: Program
    box: Box
    points: Array
    extreme: Array  # for every output the points where it is about least and largest

    @classmethod
    def of(cls, program: Program, box: Box, points: Array) -> Instance:
        found = [
            least(lambda t, i=i, s=s: s * program.run(t)[:, i], box, points, i)  # type: ignore[misc]
            for i in range(program.outputs)
            for s in (1.0, -1.0)
        ]
        return cls(program, box, points, np.array(found))


def faults_of_bounds(network: Network, instance: Instance, seen: Counter[str]) -> Iterator[str]:
    """Sentences about bounds that do not hold."""
    low, high = (torch.tensor(side, dtype=torch.float64).unsqueeze(0) for side in instance.box)
    inside = torch.tensor(np.concatenate([instance.extreme, instance.points]), dtype=torch.float64)
    values = network.preactivations(inside)[: len(network.groups)]
    truth = [[exact(v) for v in instance.program.exactly(x)] for x in instance.extreme]
    for name in ("interval", "crown"):
        region = HIDDEN.build(name).region(network, low, high, Until())
        seen[f"hidden {name}"] += 1
        yield from _outside(f"hidden bounds by {name}", region.l_hat, region.u_hat, values)
        for method in METHODS if name == "crown" else ("crown",):
            yield from _rows(network, region, method, truth, f"{method} after {name}", seen)
    for tier in (torch.float64, torch.float32) if fits_single(network) else (torch.float64,):
        found = propagate(network.to(dtype=tier), low, high)
        seen[f"zonotope {tier}"] += 1
        yield from _outside(f"zonotopes in {tier}", found.l_hat, found.u_hat, values)
        ends = [side.to(torch.float64)[0] for side in found.output.ends()]
        yield from _below(f"the zonotope in {tier}", torch.cat([ends[0], -ends[1]]), truth)


def _outside(
    name: str, l_hat: Sequence[Array], u_hat: Sequence[Array], values: Sequence[torch.Tensor]
) -> Iterator[str]:
    for k, (low, high, value) in enumerate(zip(l_hat, u_hat, values, strict=True), start=1):
        size = value.abs().nan_to_num(0.0, 0.0, 0.0).amax()
        for end, sign in ((low, 1.0), (high, -1.0)):
            beyond = sign * (end - value) - INSIDE * (size + 1e-30)
            if bool((beyond > 0).any()):
                yield f"{name}: a value of group {k} is outside by {float(beyond.nan_to_num(0.0).amax()):.3g}"


def _rows(
    network: Network, region: Region, method: str, truth: list[list[Fraction | None]], name: str, seen: Counter[str]
) -> Iterator[str]:
    """Bounds of all outputs from both sides."""
    rows = torch.eye(network.n_out, dtype=torch.float64)
    objective = Objective(len(network.layers), torch.cat([rows, -rows]).unsqueeze(0))
    lower = BOUNDERS.build(method, METHODS[method]).bound(network, region, objective, Until()).lower[0]
    seen[name] += 1
    yield from _below(name, lower, truth)


def _below(name: str, lower: torch.Tensor, truth: list[list[Fraction | None]]) -> Iterator[str]:
    """Bounds of every output and of its negative, against values in many digits."""
    for y in truth:
        for i, bound in enumerate(lower.tolist()):
            own = y[i % len(y)]
            if own is None or bound != bound or bound == -np.inf:
                continue
            value = own if i < len(y) else -own
            if bound == np.inf or Fraction(bound) > value:
                yield f"{name}: bound {bound} of row {i} is above the value {float(value)}"


def disagreement(program: Program, network: Network, points: Array) -> str | None:
    """Whether the network that was read computes something else, where rounding does not decide what it computes."""
    mine, shaken = program.run(points), program.run(points * (1 + SHAKEN))
    theirs = network.forward(torch.tensor(points, dtype=torch.float64)).numpy()
    with np.errstate(all="ignore"):
        both = np.isfinite(mine) & np.isfinite(theirs) & (np.abs(mine - shaken) < 1e-7 * (1 + np.abs(mine)))
        far = np.abs(mine - theirs) > 1e-6 * (1 + np.abs(mine))
    if bool((both & far).any()):
        row = int(np.argwhere(both & far)[0][0])
        found = [exact(v) for v in program.exactly(points[row])]
        near = all(
            v is None or abs(float(v) - t) < 1e-4 * (1 + abs(t)) for v, t in zip(found, theirs[row], strict=True)
        )
        return None if near else f"read as another function at {points[row].tolist()}: {mine[row]}, not {theirs[row]}"
    return None


def verdict(
    program: Program, model: onnx.ModelProto, question: Asked, setting: Setting, folder: Path
) -> tuple[str, str]:
    """What a run says, and what is wrong with it (empty if nothing is)."""
    prop = folder / "prop.vnnlib"
    prop.write_text(Writer(question.query, (1, program.inputs), random.Random(0)).text(), encoding="utf-8")
    try:
        with quiet():
            result = verifier.verify(
                folder / "net.onnx", prop, config=setting.config(), timeout=setting.seconds, threads=1, device="cpu"
            )
    except InputError as error:
        return f"refused: {error.message[:60]}", ""
    except Exception as error:  # a user would see a traceback
        return "crash", f"{type(error).__name__}: {error}"
    said = result.verdict.value
    if said == "unsat" and question.margin <= 0 and reached(program, question):
        return said, f"unsat, but the margin is {approximate(question.margin)} at {question.x}"
    if result.counterexample is not None:
        return said, _witness(program, model, question, result.counterexample)
    return said, ""


def reached(program: Program, question: Asked) -> bool:
    """Whether the known point is unsafe beyond doubt: tanh(70) and tanh(80) have sixty digits in common."""
    margins = [largest(program, clause.rows, question.x, MANY) for clause in question.query.clauses]
    least = min((margin for margin in margins if margin is not None), default=Fraction(1))
    return least < 0 or (least == 0 and not program.saturates)


def _witness(program: Program, model: onnx.ModelProto, question: Asked, found: verifier.Counterexample) -> str:
    """A witness lies in a box, onnxruntime confirms it and, if it says so, real arithmetic does."""
    x = [Fraction(float(v)) for v in found.x]
    homes = [c for c in question.query.clauses if c.contains(x)]
    if found.exact and not homes:
        return "the witness lies outside of every box"
    outputs = [run_file(model, found.x, optimised) for optimised in (False, True)]
    if homes and not any(all(r.holds(x, y) for r in c.rows) for y in outputs if y is not None for c in homes):
        return "onnxruntime does not confirm the witness"
    margins = [largest(program, clause.rows, [float(v) for v in found.x]) for clause in homes]
    known = [margin for margin in margins if margin is not None]
    if found.sharp and known and min(known) > 0:
        return f"the witness is said to hold in real arithmetic, but the margin is {approximate(min(known))}"
    return ""
