"""`verify ranges`: certified minimum and maximum of outputs."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.arrays import load_array
from verifier.cli.options import common, start_logging
from verifier.cli.session import begin
from verifier.errors import Undelivered
from verifier.naming import paths_of
from verifier.output import all_of, prepare, say, write_file
from verifier.result.delivery import Delivery
from verifier.result.ranges import Ranges
from verifier.result.result import Setting
from verifier.result.status import Status
from verifier.result.verdict import Reason

if TYPE_CHECKING:
    from verifier.loading import Given
    from verifier.ranging import Ranger

MOST_SHOWN = 20
"""Lines of a table that is shown while it changes."""


@click.command()
@click.argument("net")
@click.argument("prop", required=False)
@click.option("--lower", metavar="L.npy", help="The lower end of the input box, in the place of PROP.")
@click.option("--upper", metavar="U.npy", help="Its upper end.")
@click.option("--rows", metavar="R.npy", help="Linear functions of the outputs, one per row. [default: every output]")
@click.option(
    "--gap",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-3,
    show_default=True,
    help="How close certified ends are to values that are reached; of values beyond 1 it is a share.",
)
@click.option("--json", metavar="FILE", help="Write the ranges as JSON; '-' is stdout.")
@common
def ranges(net: str, prop: str | None, **options: Any) -> int:
    """Certified minimum and maximum of every output over the boxes of PROP, or over a box given by arrays.

    Each end has a bound that is proved, and a value that the network itself reaches at a point of the box; branch and
    bound moves them towards each other.  The exit code is 0 if all ends are as close as --gap says, else 3.
    """
    box = options["lower"], options["upper"]
    if (prop is None) == (box == (None, None)) or (None in box and box != (None, None)):
        raise click.UsageError("the input set is given either by PROP or by both --lower and --upper")
    with RangeSession(net, prop, options) as session:
        session.answer = session.run()
    return session.code


class RangeSession(Delivery[Ranges]):
    """One instance, and where its ranges go."""

    def __init__(self, network: str, prop: str | None, options: dict[str, Any]) -> None:
        """Takes what is not common out of `options`."""
        super().__init__()
        self.status = Status(Setting(network, prop))
        self._arrays = {name: options.pop(name) for name in ("lower", "upper", "rows")}
        self._gap: float = options.pop("gap")
        self._json: str | None = options.pop("json")
        self._options = options
        self._ranger: Ranger | None = None
        start_logging(options["quiet"], options["verbose"])
        inputs = (*paths_of(network), prop, *self._arrays.values())
        prepare((self._json,), [path for path in inputs if path is not None])

    def run(self) -> Ranges:
        request = begin(self, self.status, self._options | {"quiet": True}, load=self._instance)
        with self.status.phase("load"):
            from verifier.ranging import Ranger

        rows = None if self._arrays["rows"] is None else _matrix(self._arrays["rows"])
        self._ranger = Ranger(request, self.status, rows, self._gap)
        if not self._options["quiet"] and sys.stderr.isatty():
            shown = Shown()
            self._ranger.report = shown.update
            self.around.callback(shown.clear)
        return self._ranger.run()

    def _instance(self) -> Given:
        from verifier.loading import GivenArrays, GivenFiles

        network, prop = self.status.setting.network, self.status.setting.property
        assert network is not None
        if prop is not None:
            return GivenFiles(network, prop)
        return GivenArrays(network, load_array(self._arrays["lower"]), load_array(self._arrays["upper"]))

    def early(self, reason: Reason) -> Ranges:
        if self._ranger is not None:
            return self._ranger.results(reason)
        return Ranges((), self._gap, reason, **self.status.circumstances())

    def write(self, answer: Ranges, last: bool) -> int:
        """The JSON file, then stdout.  Raises Undelivered if one of them cannot be written."""
        data = answer.as_json()
        text = data if self._json == "-" else answer.summary() if self._options["quiet"] else str(answer)
        if failed := all_of([partial(write_file, self._json, data + "\n"), partial(say, text)]):
            raise Undelivered("; ".join(failed))
        return 0 if answer.ranges and answer.closed else 3

    def failed(self, error: BaseException) -> bool:
        with suppress(Undelivered):
            write_file(self._json, self.status.fail(error).as_json() + "\n")
        return False


def _matrix(path: str) -> Any:
    import numpy as np

    from verifier.property.arrays import as_array

    return np.atleast_2d(as_array(load_array(path), f"--rows {path}"))


class Shown:
    """A table on a terminal that is written again over itself, on stderr."""

    def __init__(self) -> None:
        self._height = 0

    def update(self, found: Ranges) -> None:
        lines = found.lines()
        if len(lines) > MOST_SHOWN + 1:
            lines = [*lines[: MOST_SHOWN + 1], f"and {len(found) - MOST_SHOWN} more"]
        self.clear()
        with suppress(OSError, ValueError):  # stderr may be closed
            sys.stderr.write("\n".join([*lines, found.summary(), ""]))
            sys.stderr.flush()
        self._height = len(lines) + 1

    def clear(self) -> None:
        """Take the table away."""
        if self._height:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"\x1b[{self._height}A\x1b[J")
                sys.stderr.flush()
        self._height = 0
