"""The relaxation of a group, whatever its function is."""

from __future__ import annotations

from typing import TypeAlias

from verifier.bounding.core.base import Region
from verifier.bounding.relaxation.maxima import Maxima
from verifier.bounding.relaxation.relu import Kinks
from verifier.bounding.relaxation.smooth import Curves, Products

Neurons: TypeAlias = Kinks | Curves | Products | Maxima
"""Those that carry variables, and their faces."""


def neurons_of(region: Region, k: int) -> Neurons:
    """The neurons of group k, within the bounds of each region."""
    function = region.functions[k - 1]
    if function.is_relu:
        return Kinks.of(region, k)
    if function.is_product:
        return Products.of(region, k)
    return Curves.of(region, k) if function.arity == 1 else Maxima.of(region, k)
