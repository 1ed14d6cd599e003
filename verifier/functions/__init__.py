"""What neurons apply to their pre-activations: ReLUs, smooth and stepped functions of one number, products of two.

    base       what every function offers
    names      the operators of ONNX and the functions of torch that they stand for
    curve      functions of one number by their convex and concave pieces: rigorous lines with any slope
    relu       max(t, 0), which has a relaxation of its own
    product    s t
    largest    the largest of some numbers, in networks with too many windows for ReLUs
    bumps      curves that are concave, convex and concave
    others     one file per family

A function is a frozen value.  It knows nothing of networks; `bounding/relaxation` makes faces of it.
"""

from verifier.functions.base import Function, Line
from verifier.functions.largest import Largest
from verifier.functions.names import FUNCTIONS
from verifier.functions.product import PRODUCT, Product
from verifier.functions.relu import RELU, Relu

__all__ = ["FUNCTIONS", "PRODUCT", "RELU", "Function", "Largest", "Line", "Product", "Relu"]
