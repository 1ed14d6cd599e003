"""The search tree as JSON lines, one domain per line; docs/formats.md describes them.

{"id": 7, "parent": 3, "clause": 0, "split": [[2, 117, -1]], "bound": -0.12, "closed": false,
 "tier": "alpha_crown", "time": 1.25}
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch

from verifier.files import blamed
from verifier.search.journal import (
    Bounded,
    Clipped,
    Closed,
    Event,
    Implied,
    Journal,
    Listener,
    Merged,
    Split,
    Stepped,
    Superseded,
)
from verifier.shapes import Int, Tensor

log = logging.getLogger(__name__)

Line = dict[str, Any]


@contextmanager
def tracing(path: str | None, listeners: Sequence[Listener] = ()) -> Iterator[Journal]:
    """A journal that writes to that file; without a file one that tells only the other listeners.

    A file that does not take any more ends the trace, not the search; what was written before is complete lines.
    """
    if path is None:
        yield Journal(listeners)
        return
    with blamed("the trace cannot be written", path):
        Path(path).touch()
    with Path(path).open("w", encoding="utf-8") as file:
        yield Journal([TraceWriter(file), *listeners])


class TraceWriter(Listener):
    """Writes every domain when the step is over in which it was bounded, and once more if it is closed later."""

    def __init__(self, file: TextIO | None, began: float | None = None, merged: int = 0) -> None:
        """`began` is the time of day at which the search began on another machine; None: it begins here and now."""
        self._file = file
        self._began = time.monotonic() - (0.0 if began is None else time.time() - began)
        self._merged = merged
        self._lines: dict[int, Line] = {}  # of the domains of this step
        self._open: dict[int, Line] = {}  # of earlier ones

    def note(self, event: Event) -> list[Line] | None:
        match event:
            case Merged(neurons=neurons):
                self._merged = neurons
            case Split():
                self._lines.update(self._born(event))
            case Implied(number=number, places=places):
                self._add(number, "implied", places())
            case Bounded(number=number, lower=lower, tier=tier):
                self._add(number, "tier", [tier] * len(number))
                self._add(number, "bound", [b if math.isfinite(b) else None for b in lower.tolist()])
            case Clipped():
                self._add(event.number, "clipped", _clipped(event))
            case Closed(number=number, by=by):
                return self._closed(number.tolist(), by.value)
            case Superseded(number=number):
                return self._closed(number.tolist(), "superseded")
            case Stepped(number=number):
                return self._stepped(number.tolist())
        return None

    def keep(self, note: object) -> None:
        assert isinstance(note, list)
        if self._file is None:
            return
        try:
            self._file.writelines(json.dumps(line) + "\n" for line in note)
            self._file.flush()  # a run that is killed leaves what was bounded before
        except OSError as error:
            log.warning("the trace ends here: %s", error.strerror or error)
            self._file = None

    def __reduce__(self) -> tuple[type[TraceWriter], tuple[None, float, int]]:
        """Elsewhere it has no file, and another clock."""
        return TraceWriter, (None, time.time() - (time.monotonic() - self._began), self._merged)

    def _born(self, event: Split) -> Iterator[tuple[int, Line]]:
        columns = event.number.tolist(), event.parent.tolist(), event.clause.tolist(), event.places()
        for number, parent, clause, places in zip(*columns, strict=True):
            line: Line = {"id": number, "parent": parent if parent >= 0 else None, "clause": clause, "split": places}
            line |= {"bound": None, "closed": False, "tier": None, "time": None}
            if parent < 0 and self._merged:
                line["merged"] = self._merged
            yield number, line

    def _add(self, numbers: Int[Tensor, " D"], key: str, values: list[Any]) -> None:
        for number, value in zip(numbers.tolist(), values, strict=True):
            if value != []:
                self._lines[number][key] = value

    def _closed(self, numbers: list[int], by: str) -> list[Line]:
        """The lines of domains that are closed by something else than their own step: these are written again."""
        for number in numbers:
            line = self._lines.get(number) or self._open[number]
            line |= {"closed": True, "by": by}
        return [self._open.pop(number) | {"time": self._now()} for number in numbers if number in self._open]

    def _stepped(self, numbers: list[int]) -> list[Line]:
        """The lines of the domains of a step, which are then complete."""
        now = self._now()
        lines = [self._lines.pop(number) | {"time": now} for number in numbers]
        for line in lines:
            self._open.pop(line["parent"], None)
        self._open |= {line["id"]: line for line in lines if not line["closed"]}
        return lines

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 4)


def _clipped(event: Clipped) -> list[list[list[float]]]:
    """The inputs of each box that clipping has narrowed, with their ends."""
    found: list[list[list[float]]] = [[] for _ in range(len(event.number))]
    low, high = event.after
    changed = (event.before[0] != low) | (event.before[1] != high)
    for box, axis in torch.nonzero(changed).tolist():
        found[box].append([axis, float(low[box, axis]), float(high[box, axis])])
    return found
