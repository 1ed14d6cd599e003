"""The common options, checked, and the log."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import Any

from verifier.arguments import device_name, seconds
from verifier.clock import Clock, process_start
from verifier.config import Config, load_config


@dataclass(frozen=True, slots=True)
class Common:
    """The common options, checked."""

    config: Config
    timeout: float | None
    device: str
    threads: int | None
    seed: int
    quiet: bool
    verbose: bool
    clock: Clock

    @classmethod
    def of(cls, options: dict[str, Any]) -> Common:
        """Takes the common options out of `options`; raises InputError for a bad one."""
        timeout = seconds(options.pop("timeout"), "--timeout")
        device = device_name(options.pop("device"), "--device")
        config = load_config(options.pop("config"), options.pop("overrides"))
        clock = Clock.begin(timeout, process_start())
        rest = {name: options.pop(name) for name in ("threads", "seed", "quiet", "verbose")}
        return cls(config=config, timeout=timeout, device=device, clock=clock, **rest)


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"


def start_logging(quiet: bool, verbose: bool) -> None:
    """Sends the package's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format())
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING
    logger = logging.getLogger("verifier")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)
