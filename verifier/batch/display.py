"""What a batch shows while it runs, on stderr: a bar and a line per worker on a terminal, else a line per result."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

from verifier.batch.engine import Observer
from verifier.batch.instances import Instance
from verifier.batch.records import Record
from verifier.output import tell
from verifier.result.verdict import Verdict

INTERVAL = 0.5
WORKERS = 16
"""Workers that get a line of their own, at most."""


class Telling:
    """Puts results into words; this one speaks of instances."""

    def __init__(self) -> None:
        self._counts: Counter[Verdict] = Counter()

    def hear(self, record: Record) -> None:
        """A result that is known from before."""

    def note(self, record: Record) -> None:
        """A new result."""
        self._counts[record.verdict] += 1

    def line(self, record: Record) -> str:
        """One result."""
        text = f"{record.verdict.value:<7} {record.run_time:8.2f} s  {' '.join(record.names)}"
        return text if record.verdict.decided else f"{text}: {record.why}"

    def score(self) -> str:
        """What is known so far."""
        return ", ".join(f"{n} {verdict.value}" for verdict, n in dict(self._counts).items())

    def name(self, instance: Instance) -> str:
        """What a worker has."""
        return f"{instance.category} {os.path.basename(instance.onnx)} {os.path.basename(instance.vnnlib)}"


@contextlib.contextmanager
def display(total: int, done: int, jobs: int, quiet: bool, telling: Telling | None = None) -> Iterator[Observer]:
    """The observer that suits stderr."""
    telling = telling or Telling()
    if quiet:
        yield Observer()
    elif not sys.stderr.isatty():
        yield Printed(total, done, telling)
    else:
        live = Live(total, done, min(jobs, WORKERS, max(shutil.get_terminal_size().lines - 3, 1)), telling)
        try:
            yield live
        finally:
            live.close()


class Printed(Observer):
    """A line for each result."""

    def __init__(self, total: int, done: int, telling: Telling) -> None:
        self._total, self._done, self._telling = total, done, telling

    def recorded(self, record: Record) -> None:
        self._done += 1
        self._telling.note(record)
        tell(f"[{self._done:>{len(str(self._total))}}/{self._total}] {self._telling.line(record)}")


class Live(Observer):
    """The state of the batch, and a thread that shows it."""

    def __init__(self, total: int, done: int, lines: int, telling: Telling) -> None:
        self._working: dict[int, tuple[Instance, float]] = {}
        self._total, self._done, self._lines, self._telling = total, done, lines, telling
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._show, name="display", daemon=True)
        self._thread.start()

    def began(self, slot: int, instance: Instance) -> None:
        self._working[slot] = (instance, time.monotonic())

    def ended(self, slot: int) -> None:
        self._working.pop(slot, None)

    def recorded(self, record: Record) -> None:
        self._done += 1
        self._telling.note(record)

    def close(self) -> None:
        """Takes the display away."""
        self._stop.set()
        self._thread.join(timeout=2 * INTERVAL)

    def _show(self) -> None:
        from tqdm import tqdm

        with contextlib.ExitStack() as stack:
            form = "{n_fmt}/{total_fmt} |{bar}| {elapsed}<{remaining} {postfix}"
            bar = stack.enter_context(
                tqdm(total=self._total, initial=self._done, bar_format=form, leave=False, dynamic_ncols=True)
            )
            lines = [
                stack.enter_context(tqdm(bar_format="{desc}", position=1 + i, leave=False, dynamic_ncols=True))
                for i in range(self._lines)
            ]
            while not self._stop.wait(INTERVAL):
                bar.set_postfix_str(self._telling.score(), refresh=False)
                bar.n = self._done
                bar.refresh()
                for slot, line in enumerate(lines):
                    line.set_description_str(self._describe(slot))

    def _describe(self, slot: int) -> str:
        working = self._working.get(slot)
        if working is None:
            return f"{slot + 1:>3}: waits"
        instance, since = working
        limit = "" if instance.timeout is None else f" of {instance.timeout:g}"
        return f"{slot + 1:>3}: {time.monotonic() - since:6.1f}{limit} s  {self._telling.name(instance)}"
