"""Branch and bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.registry import Registry

if TYPE_CHECKING:
    from verifier.search.tiers import Tier

TIERS: Registry[Tier] = Registry("TIERS", "tier", __name__)
"""Bounds of domains, from cheap to tight, for `search.tiers`."""
