"""`verify` and `python -m verifier`: the process around the command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the command line and ends the process with its exit code.

    The process ends at once: tearing torch and its thread pools down takes time that nobody needs.
    """
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while the command line itself was being loaded
        print("unknown")
        code = 3
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 (contextlib would be one more thing to load before Ctrl-C is understood)
            stream.flush()
        except (OSError, ValueError):  # a reader that has gone cannot be reached
            pass
    os._exit(code)


def _run(argv: list[str]) -> int:
    if not sys.warnoptions and not {"-v", "--verbose"} & set(argv):
        import warnings

        warnings.simplefilter("ignore")  # what libraries warn about is of no use to a user
    # Threads that wait should sleep.  Spinning ones fight for a core with whatever else runs on the machine: with one
    # of two cores busy, an instance of 4 s took 34 s.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from verifier.cli.main import run

    return run(argv)


if __name__ == "__main__":
    main()
