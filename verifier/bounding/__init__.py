"""Lower bounds over relaxations: one method per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.registry import Registry

if TYPE_CHECKING:
    from verifier.bounding.core.base import Bounder
    from verifier.bounding.hidden import GroupBounds

BOUNDERS: Registry[Bounder] = Registry("BOUNDERS", "method", __name__)
"""Methods that bound linear objectives, for `verify bounds` and `bounding.sharpen`; their options are `bounding.NAME`.
The mark `reference` is on those whose rounding errors are not counted."""

HIDDEN: Registry[GroupBounds] = Registry("HIDDEN", "intermediate bound", __name__)
"""Ways to bound the hidden neurons, for `bounding.intermediate` and `search.tighten.method`."""
