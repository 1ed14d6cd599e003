"""The command `verify`: dispatch, and errors turned into sentences and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from verifier import __version__
from verifier.cli.guardian import COMMANDS, OUTPUTS, WITHOUT_VERDICT
from verifier.errors import InputError, Undelivered
from verifier.output import clear_named, tell, unanswered

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandLine(click.Group):
    """A group whose first argument may also be a network: then it decides an instance."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"verifier.cli.{cmd_name}"), cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The first word may be a command or a network."""
        from click.shell_completion import CompletionItem

        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "-h", "--version"}
        if args and args[0] not in COMMANDS and args[0] not in own:
            args = ["verify", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "NET PROP [OPTIONS]")
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...")


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="strata-verifier")
def program() -> None:
    """Proves properties of neural networks, or finds counterexamples.

    NET is an ONNX file, PROP a VNN-LIB file that describes the unsafe set; both may be compressed (.gz).  The answer
    is `unsat` (the property holds, exit code 0), `sat` (violated, with a witness, 1), `unknown` or `timeout` (3).
    Bad input ends with exit code 2, an internal error with 4.

    `verify NET PROP --help` lists the options.
    """


def run(argv: Sequence[str]) -> int:
    """Runs one command line; the exit code.  Whatever happens ends in one sentence on stderr, not in a traceback.

    Guarantees: 1 only if the command itself ended with it.  No older answer is left in the files for an answer.
    """
    clear_named(argv, OUTPUTS)
    try:
        try:
            return program.main(list(argv), prog_name="verify", standalone_mode=False) or 0
        except SystemExit as error:
            if "_VERIFY_COMPLETE" not in os.environ:  # which is a shell that asks; click ends in this way
                raise
            return 0 if error.code in (0, 1) else 4  # 1 stands for another kind of question that was answered
        except click.UsageError as error:
            with contextlib.suppress(OSError, ValueError):  # stderr may be closed or full
                error.show(sys.stderr)
            _record(argv, InputError(error.format_message()))
            return 2
        except (KeyboardInterrupt, click.Abort):  # before the run began; later ones are answered there
            if argv and argv[0] not in WITHOUT_VERDICT:
                _record(argv, None)
            return 3
    except BaseException as error:  # the last net: a user gets a sentence, a developer runs again with -v
        return _failed(argv, error)


def _failed(argv: Sequence[str], error: BaseException) -> int:
    from verifier.result.status import sentence

    bad_input = isinstance(error, InputError) or (isinstance(error, OSError) and error.filename is not None)
    if not isinstance(error, Undelivered) and not bad_input and {"-v", "-vv", "--verbose"} & set(argv):
        import traceback

        tell("".join(traceback.format_exception(error)).rstrip("\n"))
    tell(f"error: {sentence(error)}")
    if not isinstance(error, Undelivered):
        with contextlib.suppress(Exception):  # what failed may be needed for this too
            _record(argv, error)
    return 2 if bad_input else 4


def _record(argv: Sequence[str], error: BaseException | None) -> None:
    """Answers a command line that was not followed, in its files too: an error, or None for Ctrl-C.

    Files that are there were written by the command itself and stay: older ones are gone.
    """
    files = unanswered(argv)
    if error is not None and not files:  # nothing to write, so nothing to load
        return
    from verifier.cli.session import Sinks
    from verifier.result.delivery import undisturbed
    from verifier.result.status import Status
    from verifier.result.verdict import Reason, Verdict

    answer = Status().conclude(Verdict.UNKNOWN, Reason.INTERRUPTED, "the run was interrupted")
    if error is not None:
        answer = Status().fail(error)
    with undisturbed():
        Sinks(files.get("json"), files.get("result")).write(answer)
