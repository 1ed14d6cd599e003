"""The table of instances: which network, which unsafe set, which verdict, and what each is for.

Radii and constants were chosen once, from the bounds and the attack of `exact.py`: below the interval or CROWN radius,
between CROWN and the smallest known adversarial radius (branching), or above that (sat). `make_properties.py
confirm` checks every verdict again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from property_networks import cart_gain, digits
from property_text import Atom, Formula, Or, box, less, more


@dataclass(frozen=True, slots=True)
class Instance:
    """`formula` builds the unsafe set; `version` is that of the VNN-LIB text."""

    name: str
    network: str
    formula: Callable[[], Formula]
    expected: str
    purpose: str
    timeout: int = 60
    version: int = 1


# ---------------------------------------------------------------- digits


def _ball(image: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    x = digits()[0][image]
    return np.clip(x - eps, 0, 1), np.clip(x + eps, 0, 1)


def _another_class(label: int) -> Or:
    return Or(tuple((more(("Y", k), ("Y", label)),) for k in range(10) if k != label))


def robust(image: int, eps: float) -> Callable[[], Formula]:
    """Some other class wins in the ball."""
    return lambda: [*box(*_ball(image, eps)), _another_class(int(digits()[1][image]))]


def robust_two(images: tuple[int, int], eps: float) -> Callable[[], Formula]:
    """The same for two images of one class, in one file: `or` over boxes and `or` over outputs."""

    def build() -> Formula:
        (label,) = {int(digits()[1][image]) for image in images}
        return [Or(tuple(tuple(box(*_ball(image, eps))) for image in images)), _another_class(label)]

    return build


def darker(image: int, eps: float, total: float) -> Callable[[], Formula]:
    """Robustness for pictures that are darker by at least `total` over all pixels."""

    def build() -> Formula:
        level = float(digits()[0][image].sum()) - total
        return [
            *box(*_ball(image, eps)),
            Atom(tuple((1.0, ("X", i)) for i in range(64)), "<=", level),
            _another_class(int(digits()[1][image])),
        ]

    return build


def patch(image: int, eps: float) -> Callable[[], Formula]:
    """Only the 4 x 4 middle moves; all other pixels are points."""

    def build() -> Formula:
        free = np.zeros((8, 8), dtype=bool)
        free[2:6, 2:6] = True
        x, (low, high) = digits()[0][image], _ball(image, eps)
        lower, upper = np.where(free.ravel(), low, x), np.where(free.ravel(), high, x)
        return [*box(lower, upper), _another_class(int(digits()[1][image]))]

    return build


def minimal(image: int, eps: float, k: int) -> Callable[[], Formula]:
    """Class k has the smallest score of all: nine rows that must hold together."""
    return lambda: [*box(*_ball(image, eps)), *(less(("Y", k), ("Y", j)) for j in range(10) if j != k)]


def top_two(image: int, eps: float) -> Callable[[], Formula]:
    """Two other classes both beat the label: `or` of `and`s, 36 of them."""

    def build() -> Formula:
        label = int(digits()[1][image])
        others = [k for k in range(10) if k != label]
        pairs = [(j, k) for j in others for k in others if j < k]
        children = ((more(("Y", j), ("Y", label)), more(("Y", k), ("Y", label))) for j, k in pairs)
        return [*box(*_ball(image, eps)), Or(tuple(children))]

    return build


# ---------------------------------------------------------------- control


def bounded(lower: list[float], upper: list[float], *rows: Atom | Or) -> Callable[[], Formula]:
    return lambda: [*box(np.array(lower), np.array(upper)), *rows]


def either(*atoms: Atom) -> Or:
    return Or(tuple((atom,) for atom in atoms))


def deviation(radius: float, gap: float) -> Callable[[], Formula]:
    """|u - LQR(x)| >= gap: atoms that mix inputs and outputs."""

    def build() -> Formula:
        gain = [(round(float(k), 4), ("X", i)) for i, k in enumerate(cart_gain()[0])]
        left = ((1.0, ("Y", 0)), *gain)
        return [*box(np.full(4, -radius), np.full(4, radius)), either(Atom(left, ">=", gap), Atom(left, "<=", -gap))]

    return build


def cases() -> Formula:
    """Pole to the right and weak push, or pole to the left and weak pull; a further assert belongs to both."""
    right = box(np.array([-0.1, -0.1, 0.3, 0.1]), np.array([0.1, 0.1, 0.6, 0.4]))
    left = box(np.array([-0.1, -0.1, -0.6, -0.4]), np.array([0.1, 0.1, -0.3, -0.1]))
    u = ("Y", 0)
    return [Or(((*right, less(u, 0.358)), (*left, more(u, -0.355)))), less(u, 0.95)]


def decrease(radius: float, low: float, high: float) -> Callable[[], Formula]:
    """On the ring low <= V <= high the Lyapunov function does not decrease: three rows together."""
    rows = (more(("Y", 0), low), less(("Y", 0), high), more(("Y", 1), 0.0))
    return bounded([-radius] * 2, [radius] * 2, *rows)


U = ("Y", 0)
LEANING = ([-0.1, -0.1, 0.3, 0.1], [0.1, 0.1, 0.6, 0.4])

INSTANCES = (
    Instance("fc_interval_1437", "digits_fc", robust(1437, 0.03), "unsat", "robust; interval bounds suffice", 20),
    Instance("fc_crown_1439", "digits_fc", robust(1439, 0.12), "unsat", "robust; CROWN bounds suffice", 20),
    Instance("fc_branch_1442", "digits_fc", robust(1442, 0.14), "unsat", "robust; needs branching"),
    Instance("fc_branch_1438", "digits_fc", robust(1438, 0.145), "unsat", "robust; needs more branching"),
    Instance("fc_sat_1443", "digits_fc", robust(1443, 0.12), "sat", "not robust; easy to attack", 20),
    Instance("fc_edge_1440", "digits_fc", robust(1440, 0.08), "sat", "not robust; just above the adversarial radius"),
    Instance(
        "fc_bright_1445", "digits_fc", robust(1445, 0.13), "sat", "twin of fc_darker_1445 without its input row", 20
    ),
    Instance("fc_darker_1445", "digits_fc", darker(1445, 0.13, 1.5), "unsat", "linear input row makes it robust"),
    Instance("fc_patch_1441", "digits_fc", patch(1441, 0.3), "unsat", "48 of 64 inputs are points; needs branching"),
    Instance(
        "fc_joint_1440",
        "digits_fc",
        minimal(1440, 0.12, 7),
        "unsat",
        "9 rows, each can hold; one LP over all proves it",
    ),
    Instance("fc_minimal_1440", "digits_fc", minimal(1440, 0.15, 7), "unsat", "9 rows, each can hold; needs branching"),
    Instance(
        "fc_minimal_1441", "digits_fc", minimal(1441, 0.15, 1), "sat", "conjunction of 9 rows that can hold together"
    ),
    Instance(
        "fc_boxes_1447", "digits_fc", robust_two((1447, 1448), 0.13), "unsat", "or over 2 boxes times or over 9 outputs"
    ),
    Instance("conv_crown_1441", "digits_conv", robust(1441, 0.09), "unsat", "robust; CROWN bounds suffice", 20),
    Instance("conv_branch_1438", "digits_conv", robust(1438, 0.12), "unsat", "robust; needs branching", 120),
    Instance("conv_branch_1444", "digits_conv", robust(1444, 0.085), "unsat", "robust; needs branching", 120),
    Instance("conv_sat_1440", "digits_conv", robust(1440, 0.08), "sat", "not robust"),
    Instance(
        "conv_top2_1440",
        "digits_conv",
        top_two(1440, 0.08),
        "unsat",
        "or of 36 ands: label stays among the best two",
        120,
    ),
    Instance("conv_v2_1446", "digits_conv", robust(1446, 0.062), "unsat", "VNN-LIB 2.0; needs branching", 60, 2),
    Instance("res_crown_1439", "digits_res", robust(1439, 0.1), "unsat", "robust; CROWN bounds suffice", 20),
    Instance("res_branch_1441", "digits_res", robust(1441, 0.095), "unsat", "robust; needs branching", 120),
    Instance("res_branch_1445", "digits_res", robust(1445, 0.09), "unsat", "robust; needs branching", 120),
    Instance("res_sat_1443", "digits_res", robust(1443, 0.08), "sat", "not robust"),
    Instance(
        "pool_crown_1442", "digits_pool", robust(1442, 0.09), "unsat", "LeakyReLU and MaxPool; CROWN bounds suffice", 20
    ),
    Instance("pool_branch_1438", "digits_pool", robust(1438, 0.09), "unsat", "LeakyReLU and MaxPool; needs branching"),
    Instance("pool_sat_1444", "digits_pool", robust(1444, 0.09), "sat", "LeakyReLU and MaxPool; not robust"),
    Instance("cart_push", "cart_controller", bounded(*LEANING, less(U, 0.33)), "unsat", "output constant; easy", 20),
    Instance(
        "cart_range",
        "cart_controller",
        bounded([-0.3] * 4, [0.3] * 4, either(more(U, 0.9), less(U, -0.9))),
        "unsat",
        "no saturation near the origin; input splitting pays",
    ),
    Instance(
        "cart_deviation",
        "cart_controller",
        deviation(0.3, 0.02),
        "unsat",
        "atoms mix X and Y; needs much branching",
        120,
    ),
    Instance(
        "cart_deviation_far", "cart_controller", deviation(0.5, 0.02), "sat", "atoms mix X and Y; saturation shows", 20
    ),
    Instance(
        "cart_cases", "cart_controller", cases, "unsat", "or of whole cases (box and output), one assert to distribute"
    ),
    Instance(
        "cart_v2_strict",
        "cart_controller",
        bounded(*LEANING, Atom(((1.0, U),), "<", 0.4), Atom(((1.0, U), (0.5, ("X", 2))), ">", 0.5)),
        "sat",
        "VNN-LIB 2.0; strict atoms, one mixing X and Y",
        20,
        2,
    ),
    Instance(
        "pendulum_decrease",
        "pendulum_lyapunov",
        decrease(1.0, 0.1, 0.8),
        "unsat",
        "Lyapunov decrease on a ring; conjunction",
    ),
    Instance(
        "pendulum_origin", "pendulum_lyapunov", decrease(1.0, 0.02, 0.1), "sat", "decrease fails close to the origin"
    ),
    Instance(
        "toy_positive",
        "toy",
        bounded([-1.0, -1.0], [1.0, 1.0], less(U, -0.01)),
        "unsat",
        "6 ReLUs; minimum 0 by hand",
        20,
    ),
    Instance(
        "toy_peak",
        "toy",
        bounded([-1.0, -1.0], [1.0, 1.0], more(U, 1.9)),
        "sat",
        "6 ReLUs; maximum 2 at two corners",
        20,
    ),
)
