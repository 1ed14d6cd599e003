"""Choosing what to split: one rule per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.registry import Registry

if TYPE_CHECKING:
    from verifier.branching.base import Brancher, View

BRANCHERS: Registry[Brancher[View]] = Registry("BRANCHERS", "branching rule", __name__)
"""Rules that choose a ReLU of each domain, for `search.branching`."""
