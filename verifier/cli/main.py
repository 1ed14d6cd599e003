"""The command `verify`: dispatch, and errors turned into sentences and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from verifier import __version__
from verifier.errors import InputError


class Program(click.Group):
    """A group whose first argument may also be a network: then it decides an instance."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "-h", "--version"}
        if args and args[0] not in self.commands and args[0] not in own:
            args = ["verify", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "NET PROP [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...")


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="strata-verifier")
def program() -> None:
    """Proves properties of neural networks, or finds counterexamples.

    NET is an ONNX file, PROP a VNN-LIB file that describes the unsafe set; both may be compressed (.gz).  The answer
    is `unsat` (the property holds, exit code 0), `sat` (violated, with a witness, 1), `unknown` or `timeout` (3).
    Bad input ends with exit code 2, an internal error with 4.

    `verify NET PROP --help` lists the options.
    """


def _register() -> None:
    from verifier.cli.batch import batch
    from verifier.cli.bounds import bounds
    from verifier.cli.commands import attack, decide
    from verifier.cli.report import report
    from verifier.cli.robust import robust
    from verifier.cli.show import show

    for command in (decide, attack, bounds, batch, show, robust, report):
        program.add_command(command)


_register()


def run(argv: Sequence[str]) -> int:
    """Runs one command line; the exit code.  Whatever happens ends in one sentence on stderr, not in a traceback."""
    try:
        return program.main(list(argv), prog_name="verify", standalone_mode=False) or 0
    except click.UsageError as error:
        error.show(sys.stderr)
        _record(argv, InputError(error.format_message()))
        return 2
    except (KeyboardInterrupt, click.Abort):  # before the run began; later ones are answered there
        if argv and argv[0] not in ("batch", "bounds", "show", "robust", "report"):
            _record(argv, None)
        return 3
    except Exception as error:  # the last net: a user gets a sentence, a developer runs again with -v
        from verifier.result.ledger import sentence

        bad_input = isinstance(error, InputError) or (isinstance(error, OSError) and error.filename is not None)
        if not bad_input and {"-v", "--verbose"} & set(argv):
            import traceback

            traceback.print_exception(error)
        return _complain(sentence(error), 2 if bad_input else 4)


def _complain(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code


def _record(argv: Sequence[str], error: InputError | None) -> None:
    """Answers a command line that was not followed, in its files too: an error, or None for Ctrl-C."""
    json, result = _value(argv, "--json"), _value(argv, "--result")
    if error is not None and not (json or result):  # nothing to write, so nothing to load
        return
    from verifier.cli.answer import Answer, Sinks
    from verifier.result.ledger import Ledger
    from verifier.result.verdict import Reason, Verdict

    interrupted = Ledger().conclude(Verdict.UNKNOWN, Reason.INTERRUPTED, "the run was interrupted")
    Answer(Sinks(json, result).write).give(interrupted if error is None else Ledger().fail(error))


def _value(argv: Sequence[str], option: str) -> str | None:
    """The value of an option in `--option VALUE` or `--option=VALUE`."""
    for i, word in enumerate(argv):
        if word == option and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None
