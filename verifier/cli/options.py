"""Options and arguments that commands share, and the log.  Nothing heavy is imported here: `--help` is fast."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from verifier.arguments import LARGEST_SEED, MOST_THREADS, device_name, seconds
from verifier.clock import Clock, process_start
from verifier.errors import InputError
from verifier.naming import text_of
from verifier.output import tell

if TYPE_CHECKING:
    from verifier.config import Config
    from verifier.machine import Machine

F = TypeVar("F", bound=Callable[..., Any])


def preset_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """What a shell may complete where a configuration is expected: presets, and files."""
    from click.shell_completion import CompletionItem

    from verifier.config import presets

    names = [CompletionItem(name) for name in presets() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


def key_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What a shell may complete after `--set`."""
    from verifier.config.describe import keys

    names = dict.fromkeys(key.name.replace(".N", ".0") for key in keys())
    return [f"{name}=" for name in names if name.startswith(incomplete)]


_OPTIONS = (
    click.option(
        "--config",
        default="auto",
        metavar="NAME_OR_PATH",
        help="A preset or a YAML file; see `verify config`. [default: auto]",
        shell_complete=preset_names,
    ),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="A.B=VALUE",
        help="Override one key; repeatable. `verify config options` lists them.",
        shell_complete=key_names,
    ),
    click.option("--timeout", type=float, metavar="S", help="Seconds from process start until the answer is out."),
    click.option("--device", default="auto", metavar="auto|cpu|cuda[:i]", help="Where to compute. [default: auto]"),
    click.option("--threads", type=click.IntRange(1, MOST_THREADS), metavar="N", help="CPU cores. [default: all]"),
    click.option("--seed", type=click.IntRange(0, LARGEST_SEED), default=0, metavar="N", help="[default: 0]"),
    click.option("-q", "--quiet", is_flag=True, help="Only the first line of the answer; no warnings."),
    click.option("-v", "--verbose", count=True, help="Log what is done; -vv more, and tracebacks of internal errors."),
)
_OUTPUTS = (
    click.option("--json", metavar="FILE", help="Write the result as JSON; '-' is stdout."),
    click.option("--result", metavar="FILE", help="Write a VNN-COMP result file."),
    click.option("--counterexample", metavar="FILE", help="Write the witness of a `sat`."),
)


def outputs(command: F) -> F:
    """Adds the options of the output files."""
    for option in reversed(_OUTPUTS):
        command = option(command)
    return command


def common(command: F) -> F:
    """Adds the common options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def instance(command: F) -> F:
    """Adds the arguments NET PROP, and the form `Q.vnnlib --network f=NET` of the VNN-LIB 2.0 standard."""
    network = click.option(
        "--network",
        "networks",
        multiple=True,
        metavar="NAME=NET",
        help="A network by its name, instead of NET; repeatable.",
    )
    return click.argument("files", nargs=-1, metavar="NET PROP", type=click.Path())(network(command))


def instance_paths(files: tuple[str, ...], networks: tuple[str, ...]) -> tuple[str, str]:
    """What stands for the network, and the path of the property, from either form.

    Several networks have names, `f=NET g=NET PROP`; they become one text (`verifier.naming`).
    """
    if networks:
        pairs = [_named(given, f"--network {given}: the option has the form NAME=NET") for given in networks]
        if len(files) != 1:
            raise click.UsageError(f"with --network one property is expected, not {len(files)} files")
        return pairs[0][1] if len(pairs) == 1 else text_of(pairs), files[0]
    if len(files) > 2 or (len(files) == 2 and _is_named(files[0])):
        wrong = "several networks are given by their names, as f=NET g=NET PROP"
        pairs = [_named(given, f"{given}: {wrong}") for given in files[:-1]]
        return pairs[0][1] if len(pairs) == 1 else text_of(pairs), files[-1]
    if len(files) != 2:
        raise click.UsageError(f"a network and a property are expected, not {len(files)} file(s)")
    return files[0], files[1]


def _is_named(word: str) -> bool:
    """Whether it is NAME=NET and no file of that very name."""
    name, equals, path = word.partition("=")
    return bool(equals and path) and name.isidentifier() and not os.path.exists(word)


def _named(given: str, wrong: str) -> tuple[str, str]:
    name, equals, path = given.partition("=")
    if not (name and equals and path):
        raise click.UsageError(wrong)
    return name, path


@dataclass(frozen=True, slots=True)
class Common:
    """The common options, checked."""

    config: Config
    machine: Machine
    seed: int
    quiet: bool
    verbose: bool
    clock: Clock

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Common:
        """Raises InputError for a bad option.  The time limit counts from the start of this process."""
        from verifier.config import load_config
        from verifier.machine import Machine

        timeout = seconds(options["timeout"], "--timeout")
        machine = Machine(device_name(options["device"], "--device"), options["threads"], timeout)
        try:
            config = load_config(options["config"], options["overrides"])
        except InputError as error:
            raise error.located("--config")  # noqa: B904 (the same error, with what it is about)
        clock = machine.clock(process_start())
        return cls(config, machine, options["seed"], options["quiet"], bool(options["verbose"]), clock)


def start_logging(quiet: bool, verbose: int) -> None:
    """Sends the package's log to stderr: warnings, with -v what is being done, with -vv more."""
    import logging

    class LevelAndText(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"{record.levelname.lower()}: {record.getMessage()}"

    class AboveTheLine(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(self.format(record))

    handler = AboveTheLine()
    handler.setFormatter(LevelAndText())
    level = logging.DEBUG if verbose > 1 else logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING
    logger = logging.getLogger("verifier")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)
