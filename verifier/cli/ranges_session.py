"""`verify ranges` at work: one instance, a table that changes, and where the ranges go."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from verifier.cli.options import start_logging
from verifier.cli.session import begin
from verifier.errors import Undelivered
from verifier.naming import paths_of
from verifier.output import all_of, prepare, say, write_file
from verifier.result.delivery import Delivery
from verifier.result.ranges import Ranges
from verifier.result.result import Setting
from verifier.result.status import Status
from verifier.result.verdict import Reason
from verifier.robustness.images import load_array

if TYPE_CHECKING:
    from verifier.loading import Given
    from verifier.ranging.ranger import Ranger

MOST_SHOWN = 20
"""Lines of a table that is shown while it changes."""


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
            from verifier.ranging.ranger import Ranger

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
        files = self._arrays["lower"], self._arrays["upper"]
        lower, upper = (load_array(path) for path in files)
        return GivenArrays(network, lower, upper, source=f"--lower {files[0]} --upper {files[1]}")

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
