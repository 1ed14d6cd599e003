"""Configurations: YAML files, frozen options, and the methods that they describe."""

from verifier.config.build import (
    METHODS,
    build_bounder,
    build_intermediate,
    build_limits,
    build_policy,
    build_sharpening,
    iteration_overrides,
)
from verifier.config.load import load_config, presets
from verifier.config.options import Bounding, Config

__all__ = [
    "METHODS",
    "Bounding",
    "Config",
    "build_bounder",
    "build_intermediate",
    "build_limits",
    "build_policy",
    "build_sharpening",
    "iteration_overrides",
    "load_config",
    "presets",
]
