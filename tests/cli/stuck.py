"""Runs that never end, for tests of the process around them."""

from __future__ import annotations

import sys

# The run itself is replaced by one that never ends: what is measured is the process around it, without torch.
STUCK = """
import ctypes, sys, time, types
from verifier.__main__ import main
libc = ctypes.CDLL(None)
def stuck(request, status):
    with status.phase("root"):
        status.lower_bound = -2.5
        print("stuck", file=sys.stderr, flush=True)
        while True:
            libc.usleep(60_000_000)  # no Python instruction is reached in here
fake, loading = types.ModuleType("verifier.pipeline"), types.ModuleType("verifier.loading")
fake.decide, fake.Request = stuck, lambda *a: None
loading.GivenFiles = lambda *a: None
sys.modules["verifier.pipeline"] = sys.modules["verifier"].pipeline = fake
sys.modules["verifier.loading"] = loading
main()
"""
PATIENT = STUCK.replace("libc.usleep(60_000_000)", "time.sleep(60)")
# A library that turns the interrupt into an error of its own, as some do while they are being imported.
CLUMSY = PATIENT.replace(
    "        while True:",
    "        try:\n            time.sleep(60)\n        except BaseException:\n            raise ImportError('x')",
).replace("            time.sleep(60)  #", "        #")


def command(*argv: object, script: str | None = None) -> list[str]:
    start = ["-c", script] if script else ["-m", "verifier"]
    return [sys.executable, *start, *(str(word) for word in argv)]
