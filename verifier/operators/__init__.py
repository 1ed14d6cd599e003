"""Linear maps between flat vectors: what a network's affine layers are made of."""

from verifier.operators.base import UNIT_ROUNDOFF, LinearMap, gamma
from verifier.operators.compose import Chain, Sum, add, compose
from verifier.operators.conv import Conv, Transposed
from verifier.operators.dense import Dense
from verifier.operators.select import Diagonal, Select
from verifier.operators.sparse import Sparse
from verifier.operators.stored import stored

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
    "add",
    "compose",
    "gamma",
    "stored",
]
