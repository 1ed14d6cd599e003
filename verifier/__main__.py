"""`verify` and `python -m verifier`: the process around the command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the command line and ends the process with its exit code.

    The process ends at once: tearing torch and its thread pools down takes time that nobody needs.
    """
    code = 4
    try:
        argv = sys.argv[1:]
        found = _guard(argv)
        if found is None:
            _prepare(argv)
            from verifier.cli.main import run

            found = run(argv)
        code = found
    except KeyboardInterrupt:  # while the command line itself was being loaded
        code = _interrupted()
    except BaseException as error:  # a part of this program that cannot be loaded, or a library that calls `sys.exit`
        _fail(f"internal error: {type(error).__name__}: {error}")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # of stderr nothing depends on it
            code = 4 if stream is sys.stdout else code
    os._exit(code)


def _interrupted() -> int:
    """Nothing has been answered yet: whatever stands in the files is older."""
    try:
        from verifier.cli.guardian import OUTPUTS, interrupted
        from verifier.output import clear_named

        clear_named(sys.argv[1:], OUTPUTS)
        return interrupted(sys.argv[1:])
    except BaseException as error:  # a second Ctrl-C, or a part of this program that cannot be loaded
        _complain(f"the interrupt could not be answered: {type(error).__name__}: {error}")
        return 4


def _fail(text: str) -> None:
    """One line on stderr, and `error` in the files that were asked for."""
    _complain(text)
    try:
        from verifier.cli.guardian import note

        note(sys.argv[1:], "error", text)
    except Exception:  # of any kind: what failed may be needed for this too
        return


def _complain(text: str) -> None:
    """One line on stderr, if it can be written.  Only Python itself is needed for it."""
    try:  # noqa: SIM105 (contextlib would be one more thing to load before Ctrl-C is understood)
        print("error:", " ".join(text.split()), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def _guard(argv: list[str]) -> int | None:
    """None in the process that does the work; the exit code in the one that waits for it."""
    from verifier.cli.guardian import guarded
    from verifier.output import stand_ins

    stand_ins()
    several = argv[:1] in (["batch"], ["dataset"])  # which have processes of their own for the work
    return None if several else guarded(argv)


def _prepare(argv: list[str]) -> None:
    """What libraries are to know before they are loaded."""
    if not sys.warnoptions and not {"-v", "-vv", "--verbose"} & set(argv):
        import warnings

        warnings.simplefilter("ignore")  # what libraries warn about is of no use to a user
    # Threads that wait should sleep.  Spinning ones fight for a core with whatever else runs on the machine: with one
    # of two cores busy, an instance of 4 s took 34 s.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


if __name__ == "__main__":
    main()
