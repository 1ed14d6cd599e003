"""Options of balls around inputs, which several commands share.  Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_BALL = (
    click.option(
        "--norm", type=click.Choice(["inf", "2", "1"]), default="inf", show_default=True, help="The norm of the ball."
    ),
    click.option(
        "--mean", default="0", metavar="M...", help="Subtracted from the input; one number, or one per channel."
    ),
    click.option("--std", default="1", metavar="S...", help="The input is divided by it; as --mean."),
    click.option("--clip", nargs=2, metavar="LO HI", help="The range of valid inputs, before normalisation."),
)
_IMAGES = (
    click.argument("data", required=False, metavar="[DATA.npz]"),
    click.option("--inputs", metavar="X.npy", help="The images, instead of DATA.npz; needs --labels."),
    click.option("--labels", metavar="Y.npy", help="Their classes."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N images."),
)


def neighbourhood(command: F) -> F:
    """Adds the options of all balls but for centre and radius."""
    for option in reversed(_BALL):
        command = option(command)
    return command


def images(command: F) -> F:
    """Adds the argument and the options of a data set."""
    for option in reversed(_IMAGES):
        command = option(command)
    return command


class Lists(click.Command):
    """A command whose options --mean and --std take one number or several: `--mean 0.5 0.4` and `--mean 0.5,0.4`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        joined: list[str] = []
        rest = list(args)
        while rest:
            joined.append(rest.pop(0))
            if joined[-1] in ("--mean", "--std"):
                numbers = []
                while rest and _numeric(rest[0]):
                    numbers.append(rest.pop(0))
                joined += [",".join(numbers)] if numbers else []
        return super().parse_args(ctx, joined)


def _numeric(word: str) -> bool:
    """Whether a word is a number, a fraction such as 8/255, or a list of such."""
    from fractions import Fraction

    try:
        return bool([Fraction(part) for part in word.split(",")])
    except (ValueError, ZeroDivisionError):
        return False
