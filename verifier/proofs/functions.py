"""Which functions of neurons proofs know: those that whoever checks them can enclose by himself."""

from __future__ import annotations

from verifier.functions import Function
from verifier.functions.powers import Power
from verifier.network.network import Network

NAMES = ("Product", "Sigmoid", "Tanh", "Exp", "Log", "Softplus", "Sin", "Cos")
EXPONENTS = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, -1.0, -2.0, 0.5, -0.5)


def unknown(net: Network) -> str | None:
    """The name of a function of the network that proofs do not know."""
    return next((group.function.name for group in net.groups if not known(group.function)), None)


def known(function: Function) -> bool:
    if isinstance(function, Power):
        return function.exponent in EXPONENTS
    return function.is_relu or function.name in NAMES
