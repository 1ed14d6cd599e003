"""The search for counterexamples: one attack per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.registry import Registry

if TYPE_CHECKING:
    from verifier.falsify.base import Falsifier

ATTACKS: Registry[Falsifier] = Registry("ATTACKS", "attack", __name__)
"""Attacks for `falsify.attacks`."""
