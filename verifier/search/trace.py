"""The search tree as JSON lines, one domain per line, in the order in which the domains were bounded.

    {"id": 7, "parent": 3, "clause": 0, "split": [[2, 117, -1]], "bound": -0.12, "closed": false,
     "tier": "alpha_crown", "time": 1.25}

`split` lists where the domain was split off its parent: group (from 1), neuron, sign.  `clause` is its number in the
property, `bound` null where none is known, `time` the seconds since the search began.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from verifier.errors import InputError
from verifier.search.journal import Bounded, Journal

log = logging.getLogger(__name__)


@contextmanager
def tracing(path: str | None) -> Iterator[Journal]:
    """A journal that writes to that file; without a file one that keeps nothing.

    A file that does not take any more ends the trace, not the search; what was written before is complete lines.
    """
    if path is None:
        yield Journal()
        return
    try:
        Path(path).touch()
    except OSError as error:
        raise InputError(f"the trace cannot be written: {error.strerror or error}", path) from error
    with Path(path).open("w", encoding="utf-8") as file:
        yield TraceWriter(file)


class TraceWriter(Journal):
    """Writes every domain that is bounded."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file: TextIO | None = file
        self._began = time.monotonic()

    def bounded(self, found: Bounded) -> None:
        if self._file is None:
            return
        try:
            self._file.writelines(self._lines(found))
            self._file.flush()  # a run that is killed leaves what was bounded before
        except OSError as error:
            log.warning("the trace ends here: %s", error.strerror or error)
            self._file = None

    def _lines(self, found: Bounded) -> Iterator[str]:
        root, moment = found.batch.root, round(time.monotonic() - self._began, 4)
        signs = found.batch.signs
        sides = signs.gather(1, found.kinks.clamp(min=0)) if signs.shape[1] else found.kinks
        clauses = root.numbers[found.batch.clause]
        columns = (found.number, found.parent, clauses, found.kinks, sides, found.lower, found.closed)
        for number, parent, clause, kinks, side, lower, closed in zip(*(c.tolist() for c in columns), strict=True):
            split = [[*root.place(kink), sign] for kink, sign in zip(kinks, side, strict=True) if kink >= 0]
            line = {
                "id": number,
                "parent": parent if parent >= 0 else None,
                "clause": clause,
                "split": split,
                "bound": lower if math.isfinite(lower) else None,
                "closed": closed,
                "tier": found.tier,
                "time": moment,
            }
            yield json.dumps(line) + "\n"
