"""Joining a Ray cluster, or starting one on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from verifier.errors import InputError


def imported() -> Any:
    """The library.  Raises InputError if it is not there."""
    try:
        import ray
    except ImportError as error:
        raise InputError("--engine ray needs Ray: pip install 'strata-verifier[ray]'") from error
    return ray


def join(ray: Any, address: str | None, cpus: int, verbose: bool = False) -> None:
    """The cluster at an address, or one of so many cores that is started here.  Raises InputError if there is none."""
    # Ray takes these from the environment only: nothing is reported to anybody, and a cluster that does not
    # answer is given up after half a minute instead of seven.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is not None:
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
    options: dict[str, Any] = {"log_to_driver": verbose, "logging_level": logging.ERROR}
    if address is None:
        # Ray's own default would starve workers beside anything else that this machine does.
        os.environ.setdefault("RAY_worker_niceness", "0")
        options |= {"num_cpus": cpus, "include_dashboard": False}
    try:
        with _own_signals():
            ray.init(address=address or "local", **options)
    except (ConnectionError, OSError, ValueError, RuntimeError) as error:
        where = address or "this machine"
        raise InputError(f"there is no Ray cluster at {where}: {' '.join(str(error).split())}") from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; here it means what Ctrl-C does."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
