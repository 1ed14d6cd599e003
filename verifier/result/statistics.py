"""Counters and timings of one run."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

PHASES = ("load", "attack", "root", "search")


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the search did.  All counters are zero for an instance that was decided without a search."""

    domains: int = 0
    domains_by_tier: dict[str, int] = field(default_factory=dict)
    leaves_lp: int = 0
    max_open: int = 0
    batches: int = 0
    bound_iterations: int = 0
    peak_rss_mb: float = 0.0


def peak_rss_mb() -> float:
    """The largest resident memory of this process so far, in megabytes; 0 where the system does not tell."""
    try:
        # Linux.  Not getrusage first: its peak survives exec, so a child would report its parent's memory.
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:", 1)[1].split()[0]) * 1024 / 1e6
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6  # macOS counts bytes, others kilobytes
