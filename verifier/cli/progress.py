"""The progress bar: a thread that looks at the ledger of a run, so that the run need not know about it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping

from verifier.clock import Clock
from verifier.result.ledger import Ledger

INTERVAL = 0.2


@contextlib.contextmanager
def progress(ledger: Ledger, clock: Clock, quiet: bool) -> Iterator[None]:
    """Shows seconds, domains, global lower bound and tier on stderr while the body runs, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_show, args=(ledger, clock, stop), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=2 * INTERVAL)


def _show(ledger: Ledger, clock: Clock, stop: threading.Event) -> None:
    if stop.wait(INTERVAL):  # a short run needs no bar
        return
    from tqdm import tqdm

    with tqdm(bar_format="{desc}", leave=False, file=sys.stderr) as bar:
        while not stop.wait(INTERVAL):
            bar.set_description_str(describe(ledger, clock))


def describe(ledger: Ledger, clock: Clock) -> str:
    """One line: where the run is."""
    phase = ledger.running[0] if ledger.running else "..."
    parts = [f"{clock.elapsed():6.1f} s", phase]
    done = ledger.statistics.domains
    if done or ledger.open:
        parts.append(f"{done} domains done, {ledger.open} open")
    if ledger.lower_bound is not None:
        parts.append(f"lower bound {ledger.lower_bound:.4g}")
    if done:
        parts.append(shares(ledger.statistics.domains_by_tier, done))
    elif ledger.tier is not None:
        parts.append(f"tier {ledger.tier}")
    return " | ".join(parts)


def shares(tiers: Mapping[str, int], total: int) -> str:
    """How the domains are spread over the tiers; what is left were exact leaves."""
    return ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in tiers.items())
