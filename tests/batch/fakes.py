"""A worker that needs no torch, and decides an instance by the name of its property.

Everything around the decision is real: processes, pipes, limits.  It starts in a fraction of a second.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from verifier.batch.instances import Instance
from verifier.batch.jobs import Job
from verifier.batch.process import BOOT, Launch
from verifier.batch.worker import Solve
from verifier.errors import InputError
from verifier.result.result import Result
from verifier.result.status import Status
from verifier.result.verdict import Reason, Verdict

TESTS = str(Path(__file__).resolve().parents[1])
FAKE = BOOT.replace("main()", f"sys.path.append({TESTS!r}); from batch.fakes import warm_up; main(warm_up)")
BROKEN = "import sys; sys.exit('no such module as torch')"


def warm_up() -> Solve:
    print("a library that greets its user")
    return decide


def decide(job: Job, status: Status) -> Result:
    kind = Path(job.prop).stem.partition("_")[0]
    with status.phase("root"):
        status.lower_bound = -2.5
        print("a library that reports on stdout")
        if kind == "slow":
            time.sleep(0.3)
        elif kind == "patient":
            time.sleep(60)
        elif kind == "stuck":
            ctypes.CDLL(None).usleep(60_000_000)  # no Python instruction is reached in here
        elif kind == "frozen":
            ctypes.PyDLL(None).usleep(60_000_000)  # nor in any other thread
        elif kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "once":
            die_once(Path(job.prop))
        elif kind == "aborted":
            print("terminate called: bad_alloc", file=sys.stderr, flush=True)
            os.abort()
        elif kind == "hungry":
            hoard = [bytearray(b"x" * 50_000_000) for _ in range(8)]
            time.sleep(60 + len(hoard))
        elif kind == "wrong":
            raise ValueError("a mistake\nof ours")
        elif kind == "bad":
            raise InputError("cannot be read", job.prop)
    if kind == "unknown":
        return status.conclude(Verdict.UNKNOWN, Reason.LIMIT, "the limit of domains was reached")
    return status.conclude(Verdict.UNSAT)


def die_once(path: Path) -> None:
    mark = path.with_suffix(".died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def launch(memory_bytes: int | None = None) -> Launch:
    return Launch(memory_bytes=memory_bytes, boot=FAKE)


def benchmark(folder: Path, *names: str, timeout: float | None = 20) -> Path:
    """A folder with a list of instances of these names; its files are no networks."""
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    (folder / "onnx" / "net.onnx").write_text("a network")
    limit = "" if timeout is None else f"{timeout:g}"
    for name in names:
        (folder / f"{name}.vnnlib").write_text(f"the property {name}")
    (folder / "instances.csv").write_text("".join(f"onnx/net.onnx,{name}.vnnlib,{limit}\n" for name in names))
    return folder


def instance(folder: Path, name: str, timeout: float | None = 20) -> Instance:
    """An instance of `benchmark`, as its list would give it."""
    benchmark(folder, name)
    network, prop = (str(folder.resolve() / file) for file in ("onnx/net.onnx", f"{name}.vnnlib"))
    return Instance(folder.name, "onnx/net.onnx", f"{name}.vnnlib", network, prop, timeout)
