"""All families, and the cases by their labels."""

from __future__ import annotations

from operator_grid import compositions, constants, entrywise, products, reductions, shapes, slices, smooth, windows
from operator_grid.case import Case
from operator_grid.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for part in (entrywise, slices, shapes, products, reductions, windows, constants, compositions, smooth)
    for family in part.FAMILIES
}


def case_of(label: str) -> Case | None:
    """The case that a label such as `slice:12` names."""
    name, number = label.split(":")
    return FAMILIES[name].case(int(number))
