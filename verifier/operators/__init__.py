"""Linear maps between flat vectors: what a network's affine layers are made of."""

from verifier.operators.base import UNIT_ROUNDOFF, LinearMap, gamma
from verifier.operators.compose import Chain, Sum, add, compose
from verifier.operators.conv import Conv, Transposed, WindowAxis
from verifier.operators.matrix import Dense, Sparse, stored
from verifier.operators.select import Diagonal, Select

__all__ = [
    "UNIT_ROUNDOFF",
    "Chain",
    "Conv",
    "Dense",
    "Diagonal",
    "LinearMap",
    "Select",
    "Sparse",
    "Sum",
    "Transposed",
    "WindowAxis",
    "add",
    "compose",
    "gamma",
    "stored",
]
