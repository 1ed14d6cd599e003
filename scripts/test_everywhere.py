"""The fast tests under settings that change which instructions the libraries use, how many threads and which examples.

    make test-everywhere
    make test-everywhere EVERYWHERE="--only reordered seed-2"
    .venv/bin/python scripts/test_everywhere.py --only aten-default -- tests/bounding

First it says which settings change any number on this machine: those that do not are left out unless they are asked
for.  Then one line per setting: tests passed and failed, seconds; what failed is listed below it.  The whole output of
each run is kept in build/everywhere.  No failure stops the other settings; the exit code is 1 if there was any.

MKL obeys MKL_ENABLE_INSTRUCTIONS on processors of Intel only.  With a C compiler the settings intel-* make it believe
that this is one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "build" / "everywhere"

INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n"
"""What MKL asks before it looks at the instructions."""

PROBE = """
import hashlib, torch
torch.set_num_threads(1)
torch.manual_seed(0)
found = hashlib.sha256()
for kind in (torch.float32, torch.float64):
    for n in (3, 7, 97):
        a, b = torch.randn(4, n, 131, dtype=kind), torch.randn(4, 131, 59, dtype=kind)
        for x in (a @ b, a[0] @ b[0], a[0] @ b[0, :, 0], a.exp(), a.sum(-1)):
            found.update(x.numpy().tobytes())
    x, w = torch.randn(3, 5, 17, 17, dtype=kind), torch.randn(8, 5, 3, 3, dtype=kind)
    found.update(torch.nn.functional.conv2d(x, w).numpy().tobytes())
print(found.hexdigest())
"""
"""Prints the bits of some products, convolutions and sums."""


@dataclass(frozen=True)
class Setting:
    """A name, variables of the environment, and further arguments of pytest."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    intel: bool = False  # MKL is made to believe so
    instructions: bool = True  # it is about these, so it means nothing where no number changes

    def environment(self, stand_in: Path | None) -> dict[str, str]:
        preloaded = {"LD_PRELOAD": str(stand_in)} if self.intel else {}
        return os.environ | {"PYTHONPATH": str(ROOT)} | preloaded | dict(self.variables)


PLAIN = Setting("plain", instructions=False)
SETTINGS = (
    PLAIN,
    Setting("reordered", {"REORDERED": "1"}, instructions=False),
    Setting("aten-default", {"ATEN_CPU_CAPABILITY": "default"}),
    Setting("aten-avx2", {"ATEN_CPU_CAPABILITY": "avx2"}),
    Setting("mkl-sse42", {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}),
    Setting("mkl-avx2", {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
    Setting("mkl-avx512", {"MKL_ENABLE_INSTRUCTIONS": "AVX512"}),
    Setting("mkl-compatible", {"MKL_CBWR": "COMPATIBILITY"}),
    Setting("intel-sse42", {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}, intel=True),
    Setting("intel-avx2", {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, intel=True),
    Setting("onednn-sse41", {"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    Setting("onednn-avx2", {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    Setting("one-thread", {"OMP_NUM_THREADS": "1"}, instructions=False),
    Setting("two-threads", {"OMP_NUM_THREADS": "2"}, instructions=False),
    *(Setting(f"seed-{n}", {}, (f"--hypothesis-seed={n}",), instructions=False) for n in (1, 2, 3)),
)


@dataclass(frozen=True)
class Run:
    """How the tests ended under one setting."""

    passed: int
    failed: int
    seconds: float
    failures: tuple[str, ...]

    @classmethod
    def of(cls, code: int, output: str, seconds: float) -> Run:
        """From pytest's exit code and output; a run that broke off counts as a failure."""
        last = output.rstrip().rpartition("\n")[2]
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", last)}
        failed = counts.get("failed", 0) + counts.get("error", 0)
        failures = tuple(line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
        if code != 0 and not failed:
            failed, failures = 1, (f"pytest ended with exit code {code}: {last}",)
        return cls(counts.get("passed", 0), failed, seconds, failures)


def stand_in(folder: Path) -> Path | None:
    """A library that makes MKL believe in a processor of Intel; None if it cannot be built here."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    source, library = folder / "intel.c", folder / "intel.so"
    source.write_text(INTEL)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
    built = subprocess.run(command, capture_output=True, check=False)
    return library if built.returncode == 0 else None


def numbers(environment: Mapping[str, str]) -> str:
    """What `PROBE` computes there."""
    command = [sys.executable, "-c", PROBE]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def honoured(settings: Sequence[Setting], library: Path | None) -> list[Setting]:
    """Those that mean something on this machine; says so of all."""
    usual = numbers(PLAIN.environment(None)) if any(setting.instructions for setting in settings) else ""
    found = []
    for setting in settings:
        if not setting.instructions:
            words = "is no matter of instructions"
        elif setting.intel and library is None:
            words = "cannot be tried: there is no C compiler"
        elif numbers(setting.environment(library)) == usual:
            words = "changes no number on this processor"
        else:
            words = "changes numbers"
        print(f"{setting.name:16} {words}", flush=True)
        if words in ("is no matter of instructions", "changes numbers"):
            found.append(setting)
    return found


def tested(setting: Setting, library: Path | None, arguments: Sequence[str]) -> Run:
    """Run the tests, and keep their output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *setting.arguments, *arguments]
    environment, began = setting.environment(library), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / f"{setting.name}.txt").write_text(done.stdout + done.stderr)
    return Run.of(done.returncode, done.stdout, time.monotonic() - began)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a test failed under any setting."""
    names = [setting.name for setting in SETTINGS]
    parser = argparse.ArgumentParser(
        description="the fast tests under settings that change the libraries' instructions"
    )
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--list", action="store_true", help="only say which settings change anything here")
    parser.add_argument("arguments", nargs="*", metavar="-- PYTEST_ARGUMENTS", help="such as a folder")
    options = parser.parse_args(argv)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        library = stand_in(Path(folder))
        wanted = [setting for setting in SETTINGS if options.only is None or setting.name in options.only]
        useful = honoured(wanted, library)
        for setting in () if options.list else (wanted if options.only else useful):
            if setting.intel and library is None:
                continue
            run = tested(setting, library, options.arguments)
            failed += run.failed
            print(f"{setting.name:16} {run.passed:5} passed {run.failed:3} failed {run.seconds:6.0f} s", flush=True)
            for line in run.failures:
                print(f"    {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
