"""The configurations under which verdicts are asked for."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

from verifier.config import Config, load_config
from verifier.config.load import presets

SECONDS = 5.0
SHORT = 0.7  # where the answer is likely to be unknown after any time
PAPER = tuple(name for name in presets() if name.startswith("paper/"))
OFF = "falsify.enabled=false"


@dataclass(frozen=True, slots=True)
class Setting:
    """A preset, overrides, and what a run is told besides."""

    preset: str = "auto"
    overrides: tuple[str, ...] = ()
    threads: int = 1
    seed: int = 0
    seconds: float = SECONDS

    @property
    def name(self) -> str:
        return " ".join((self.preset, *self.overrides, f"threads={self.threads}"))

    @property
    def quick(self) -> bool:
        """Whether small instances ought to be decided in time; the paper's iterations take seconds each."""
        return self.preset not in PAPER

    def config(self) -> Config:
        return _config(self.preset, self.overrides)


@cache
def _config(preset: str, overrides: tuple[str, ...]) -> Config:
    return load_config(preset, overrides)


FAST: tuple[Setting, ...] = (
    Setting(),
    Setting(overrides=(OFF,)),
    Setting(overrides=(OFF, "search.splitting=relus")),
    Setting(overrides=(OFF, "search.splitting=inputs")),
    Setting(overrides=("search.splitting=relus",)),
    Setting(overrides=("search.splitting=inputs",)),
    Setting(overrides=(OFF, "search.splitting=relus", "search.branching=babsr", "search.tighten.every=1")),
    Setting(overrides=(OFF, "search.splitting=relus", "search.branching=fsb")),
    Setting(overrides=(OFF, "search.splitting=relus", "search.sharpen.after=0")),
    Setting(overrides=(OFF, "bounding.intermediate=interval")),
    Setting(overrides=(OFF, "search.splitting=relus", "bounding.intermediate=wong_kolter")),
    Setting(overrides=(OFF, "search.splitting=relus", "bounding.sharpen=alpha_crown")),
    Setting("no_cuts", (OFF, "search.splitting=relus")),
    Setting("no_cuts"),
    Setting(threads=2),
    Setting(overrides=(OFF,), threads=2),
    Setting(overrides=(OFF, "search.splitting=relus"), threads=2),
)


def chosen(rng: random.Random, count: int, hopeless: bool) -> list[Setting]:
    """Different configurations, with different seeds; the paper's are dear and come rarely.

    Now and then two of them differ in the number of processes only.  `hopeless` says that the threshold is so close
    to the minimum, or the weights so strange, that long searches are to be expected, and of no use.
    """
    picked = rng.sample(FAST, count)
    if rng.random() < 0.04:
        picked[-1] = Setting(rng.choice(PAPER), (OFF, "search.splitting=relus"))
    if count > 1 and rng.random() < 0.3:
        picked[1] = replace(picked[0], threads=3 - picked[0].threads)
    return [replace(s, seed=rng.choice((0, 0, 1, 7)), seconds=SHORT if hopeless else SECONDS) for s in picked]
