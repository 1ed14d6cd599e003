"""Damaged files: every one is either still an instance that gets an answer, or is refused in one sentence."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import mutations
import pytest

from verifier.cli.main import run

# Small instances: a chain, a controller (with VNN-LIB 1.0 and 2.0), a residual network, a max-pooling one.
BASES = (
    ("toy", "toy_peak"),
    ("cart_controller", "cart_cases"),
    ("cart_controller", "cart_v2_strict"),
    ("pendulum_lyapunov", "pendulum_origin"),
    ("digits_res", "res_crown_1439"),
    ("digits_pool", "pool_crown_1442"),
)
CHEAP = ("--timeout", "1", "--threads", "1", "--set", "falsify.restarts=2", "--set", "falsify.steps=3", "-q")
WORDS = {0: {"unsat"}, 1: {"sat"}, 3: {"unknown", "timeout"}}
SEEDS = 5
SECONDS = 60
"""A case that takes longer hangs, also on a busy machine; its time limit is 1."""

CASES = [("network", base, change) for base in BASES for change in (*mutations.ANY_FILE, *mutations.NETWORK)]
CASES += [("property", base, change) for base in BASES for change in (*mutations.ANY_FILE, *mutations.PROPERTY)]


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """A case may neither hang nor take all memory of the machine."""

    def alarm(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still running after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, alarm)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 4 * 2**30, limits[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)


def complaint(code: int, out: str, err: str) -> str | None:
    """What is wrong with an outcome, None if nothing is."""
    if "Traceback" in err + out:
        return "a traceback"
    if code in WORDS:
        return None if out.partition("\n")[0] in WORDS[code] else f"exit code {code} with another answer"
    if code != 2:
        return f"exit code {code}"
    if out:
        return "an error with an answer"
    return None if len(err.strip().splitlines()) == 1 and err.startswith("error: ") else "not one sentence"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line inside of this process: time limits count from each call, and nobody ends the process."""
    monkeypatch.setattr("verifier.cli.options.process_start", time.monotonic)
    monkeypatch.setattr("verifier.result.delivery.Delivery.watch", lambda *_: None)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("base", BASES, ids=[prop for _, prop in BASES])
def test_undamaged_files(base: tuple[str, str], root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is damaged below gets an answer as it is; and the libraries are loaded before anything is timed."""
    folder = root / "properties"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = run([str(folder / "onnx" / f"{base[0]}.onnx"), str(folder / "vnnlib" / f"{base[1]}.vnnlib"), *CHEAP])
    out, err = capfd.readouterr()
    assert code != 2
    assert complaint(code, out, err) is None


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("kind", "base", "change"), CASES, ids=[f"{kind}-{b[1]}-{change.__name__}" for kind, b, change in CASES]
)
def test_damaged_files(
    kind: str,
    base: tuple[str, str],
    change: mutations.Bytes,
    root: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source = {
        "network": root / "properties" / "onnx" / f"{base[0]}.onnx",
        "property": root / "properties" / "vnnlib" / f"{base[1]}.vnnlib",
    }
    wrong = []
    for seed in range(SEEDS):
        rng = random.Random(f"{kind} {base} {change.__name__} {seed}")
        damaged = tmp_path / f"{seed}.{kind}"
        damaged.write_bytes(change(source[kind].read_bytes(), rng))
        files = {**source, kind: damaged}
        capfd.readouterr()
        with guarded(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as the command does
            code = run([str(files["network"]), str(files["property"]), *CHEAP])
        out, err = capfd.readouterr()
        if what := complaint(code, out, err):
            wrong.append(f"seed {seed}: {what}; stdout {out[:80]!r}, stderr {err[-400:]!r}")
    assert not wrong, "\n".join(wrong)


def test_there_are_enough_cases() -> None:
    assert len(CASES) * SEEDS >= 500


@pytest.mark.parametrize(
    ("code", "out", "err", "fine"),
    [
        (0, "unsat\n", "warning: the box is empty\n", True),
        (1, "sat\n", "", True),
        (1, "unsat\n", "", False),
        (3, "timeout\n", "", True),
        (3, "", "", False),
        (2, "", "error: net.onnx: not an ONNX file\n", True),
        (2, "", "error: one\nerror: two\n", False),
        (2, "", "", False),
        (2, "sat\n", "error: one\n", False),
        (2, "", "Traceback (most recent call last):\n", False),
        (4, "", "error: internal\n", False),
    ],
)
def test_what_counts_as_wrong(code: int, out: str, err: str, fine: bool) -> None:
    assert (complaint(code, out, err) is None) == fine
