"""How far it is from the command line to the first bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from speed import PATIENCE

MOST = 10
"""Functions of this package between the process and the first bound, both included."""

# The first time that somebody asks for bounds of the hidden neurons, all functions of the package on the way are told.
SCRIPT = """
import os, sys, traceback
from verifier import __main__
sys.argv[0] = "verify"
package = os.path.dirname(__main__.__file__)
def region(*args, **named):
    way = [frame for frame in traceback.extract_stack() if frame.filename.startswith(package)]
    for frame in way:
        print(os.path.relpath(frame.filename, package), frame.name, file=sys.stderr)
    os._exit(77)
__main__._guard = lambda argv: None
from verifier.bounding.frugal import Frugal
Frugal.completed = region
__main__.main()
"""


def test_from_the_command_line_to_the_first_bound(tiny: Any, root: Path) -> None:
    argv = [sys.executable, "-c", SCRIPT, tiny.net, tiny.unsat, "--threads", "1", "--set", "falsify.enabled=false"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, cwd=root)
    way = done.stderr.splitlines()
    assert done.returncode == 77, done.stderr
    assert way[0] == "__main__.py main"
    assert len(way) + 1 <= MOST, way  # and the bounds themselves
