"""Configurations: YAML files, frozen options, and the methods that they describe."""

from verifier.config.load import iteration_overrides, load_config, presets, schema, summaries
from verifier.config.options import Bounding, Config

__all__ = ["Bounding", "Config", "iteration_overrides", "load_config", "presets", "schema", "summaries"]
