"""The command line of the fuzzer of functions."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import onnx

from fuzzing.judge import quiet
from fuzzing.program_cases import asked, points, random_box, random_program
from fuzzing.program_checks import SETTINGS, Instance, disagreement, faults_of_bounds, verdict
from verifier.errors import InputError
from verifier.network.merge import merged
from verifier.network.models.onnx import load_onnx


def main(description: str, arguments: Sequence[str] | None = None) -> int:
    """Runs networks by number; 1 if anything was wrong."""
    options = _options(description, arguments)
    seen, wrong, end = Counter[str](), 0, time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    for number in range(options.first, options.first + options.networks):
        if time.monotonic() > end:
            break
        try:
            asks = options.queries if number % options.every == 0 else 0
            found = check(options.seed, number, asks, options.seconds, seen)
        except Exception:  # the traceback is the finding
            found = [traceback.format_exc()]
        wrong += len(found)
        for sentence in found:
            print(f"\nWRONG, network {number} of seed {options.seed}: {sentence}", flush=True)
        print(f"\r{number + 1 - options.first} networks, {wrong} wrong", end="", file=sys.stderr, flush=True)
        report = {"networks": number + 1 - options.first, "wrong": wrong, "seen": dict(sorted(seen.items()))}
        (options.out / f"functions-{options.seed}-{options.first}.json").write_text(json.dumps(report, indent=1))
    print("\n" + json.dumps(report["seen"], indent=1), f"\n{report['networks']} networks, {wrong} wrong")
    return 1 if wrong else 0


def check(seed: int, number: int, queries: int, seconds: float, seen: Counter[str]) -> list[str]:
    """Everything that is wrong about one network."""
    rng = random.Random(f"functions/{seed}/{number}")
    program, _ = random_program(rng)
    box = random_box(rng, program.inputs)
    start, model = points(box, number), program.model()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "net.onnx"
        onnx.save(model, path)
        try:
            with quiet():
                network = merged(load_onnx(path).network())
        except InputError as error:
            seen[f"refused: {error.message[:60]}"] += 1
            return []
        seen["read"] += 1
        different = disagreement(program, network, start[-500:])  # not of the grid, which has ties
        if different is not None:
            return [different]
        found = list(faults_of_bounds(network, Instance.of(program, box, start), seen))
        for _ in range(queries):
            question = asked(rng, program, box, start)
            if question is None:
                seen["no numbers"] += 1
                continue
            for setting in rng.sample(SETTINGS, 2):
                limited = setting.__class__(setting.preset, setting.overrides, seconds=seconds)
                said, fault = verdict(program, model, question, limited, Path(name))
                side = "reachable" if question.margin <= 0 else "beyond"
                seen[f"{said}, {side} by {abs(question.gap):g}"] += 1
                if fault:
                    found.append(f"{setting.name}: {fault}")
    return found


def _options(description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=3000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop")
    parser.add_argument("--seed", type=int, default=0, help="which networks")
    parser.add_argument("--queries", type=int, default=1, help="about each network")
    parser.add_argument("--every", type=int, default=1, help="networks that are asked about: one of so many")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each answer")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="the folder of reports")
    return parser.parse_args(arguments)
