"""Whether to cut the input box or to fix the signs of ReLUs."""

from __future__ import annotations

from verifier.property.problem import Problem

FEW_INPUTS = 16
"""Beyond that, halving every input once already makes more boxes than any search can bound."""


def prefers_inputs(problem: Problem, most: int = FEW_INPUTS) -> bool:
    """True if boxes of the input are the better domains: few inputs vary in every box of the problem."""
    moving = (problem.upper > problem.lower).sum(dim=1)
    return bool((moving <= most).all())
