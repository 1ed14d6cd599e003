"""What is run, as data: methods, problems, limits.  `FULL` is what two cores can do in a day or two, `QUICK` a tenth.

Hyper-parameters are those of [SCB] sec:exp and sec:exp-appendix; what it leaves open has the default of the method.
Names of methods are those of its tables; LP stands where it has Gurobi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

CLASSES = 10
PLANET, ONE_CUT = "LP Planet", "LP 1 cut"
"""The yardsticks: bounds are compared with the optimum over the Planet relaxation, and with one round of cuts."""


@dataclass(frozen=True)
class Method:
    """A bounder with its options.

    `stages` are shorter runs that it contains, with the iterations that follow them: only for methods whose steps do
    not depend on how many are to come.
    """

    name: str
    bounder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """A row of the tables of complete verification; `baseline` are those that the paper draws dotted."""

    name: str
    config: str
    baseline: bool = False
    overrides: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The name of a folder for its results."""
        return "-".join([self.config.replace("/", "-"), *(override.split("=")[1] for override in self.overrides)])


@dataclass(frozen=True)
class Tuning:
    """What the paper changes for a network."""

    steps: tuple[float, float] = (1e-2, 1e-4)  # of Big-M, first and last
    longer: bool = False  # whether Active Set needs more iterations
    weights: tuple[float, float] = (10.0, 500.0)  # of BDD+'s proximal terms, first and last

    @property
    def start(self) -> dict[str, Any]:
        """How Big-M climbs, alone or before others."""
        return {"first_step": self.steps[0], "last_step": self.steps[1], "start": "zero"}

    def bdd(self, iterations: int) -> dict[str, Any]:
        return {"iterations": iterations, "first_weight": self.weights[0], "last_weight": self.weights[1]}


@dataclass(frozen=True)
class Pictured:
    """A network for incomplete verification: bounds of label - other over the images of NETWORK_images.npz."""

    name: str
    onnx: str
    tuning: Tuning = Tuning()


@dataclass(frozen=True)
class Listed:
    """A network for complete verification: the properties of a csv file.

    `decided` names those that are decided; if there are none, they are chosen by their root gaps.
    """

    name: str
    onnx: str
    table: str
    overrides: tuple[str, ...] = ()  # of the paper's presets
    tuning: Tuning = Tuning()
    decided: tuple[str, ...] = ()


@dataclass(frozen=True)
class Iterations:
    """How long the dual methods run."""

    bdd: int
    big_m: int
    initial: int
    active_set: tuple[int, ...]
    saddle_point: tuple[int, ...]
    as_sp: tuple[int, int]
    every: int  # omega: iterations between additions to the active set
    sweep: tuple[int, ...]  # other values of omega
    budgets: tuple[int, ...]  # iterations at which selection and omega are compared
    longer: tuple[int, ...] = ()  # of Active Set, where the paper has more
    ours: tuple[int, int] = (100, 150)  # of alpha-CROWN, and of each round of cuts after it


@dataclass(frozen=True)
class Scale:
    """How much is run, and of what."""

    images: int  # of each network
    ablated: int  # of these, those that the ablations look at
    properties: int  # of each network
    seconds: float  # for each property
    width: int  # hidden units in the memory experiment
    masks: int
    iterations: Iterations
    pictured: tuple[Pictured, ...]
    listed: tuple[Listed, ...]
    presets: tuple[Preset, ...]

    @property
    def networks(self) -> tuple[Pictured | Listed, ...]:
        return (*self.pictured, *self.listed)


PICTURED = (
    Pictured("sgd", "cifar_sgd_8px"),
    Pictured("madry", "cifar_madry_8px"),
    Pictured("mnist", "mnist_wide_kw", Tuning((1e-1, 1e-3), longer=True, weights=(1.0, 50.0))),
)
LISTED = (
    Listed("base", "cifar_base_kw", "properties_base", ("search.batch=300",)),
    Listed("wide", "cifar_wide_kw", "properties_wide"),
    Listed("deep", "cifar_deep_kw", "properties_deep"),
)
ABLATED = "sgd"
RELEASED = ("search.branching=babsr_paper",)

COMPLETE = (
    Preset("BDD+", "paper/bdd_plus", baseline=True),
    Preset("Big-M", "paper/big_m", baseline=True),
    Preset("Active Set 100", "paper/active_set_100"),
    Preset("Big-M + Active Set 100", "paper/big_m+active_set_100"),
    Preset("Big-M + Active Set 600", "paper/big_m+active_set_600"),
    Preset("Big-M + Saddle Point 1000", "paper/big_m+saddle_point_1000"),
    Preset("Big-M + Active Set 1650", "paper/big_m+active_set_1650"),
    Preset("Big-M + Saddle Point 4000", "paper/big_m+saddle_point_4000"),
    Preset("LP Planet", "paper/planet_lp", baseline=True),
    Preset("LP 1 cut", "paper/cut_lp", baseline=True),
    Preset("LP Planet + LP 1 cut", "paper/planet_lp+cut_lp", baseline=True),
    Preset("MIP", "paper/mip", baseline=True),
    Preset("MIP A_k", "paper/mip_cuts", baseline=True),
    Preset("Big-M, released BaBSR", "paper/big_m", True, RELEASED),
    Preset("Active Set 100, released BaBSR", "paper/active_set_100", False, RELEASED),
    Preset("Big-M + Active Set 100, released BaBSR", "paper/big_m+active_set_100", False, RELEASED),
    Preset("ours, no cuts", "no_cuts"),
    Preset("ours", "auto"),
)
COMMON = ("falsify.enabled=false",)

FULL = Scale(
    images=20,
    ablated=5,
    properties=12,
    seconds=300.0,
    width=7000,
    masks=7,
    iterations=Iterations(
        bdd=400,
        big_m=850,
        initial=500,
        active_set=(80, 180, 600, 1050, 1650),
        saddle_point=(80, 1000, 2000, 4000),
        as_sp=(600, 3000),
        every=450,
        sweep=(300, 600),
        budgets=(600, 1050, 1650),
        longer=(2500,),
    ),
    pictured=PICTURED,
    listed=LISTED,
    presets=COMPLETE,
)
QUICK = replace(
    FULL,
    images=2,
    ablated=1,
    properties=1,
    seconds=20.0,
    width=1000,
    masks=2,
    iterations=Iterations(
        bdd=400,
        big_m=850,
        initial=500,
        active_set=(80, 180),
        saddle_point=(20, 80),
        as_sp=(80, 40),
        every=90,
        sweep=(60, 120),
        budgets=(180,),
    ),
    listed=tuple(replace(network, decided=(row,)) for network, row in zip(LISTED, ("1", "86", "61"), strict=True)),
)
"""Its listed properties have small trees, if not the smallest root gaps: 37 domains of Big-M on wide, 35 on deep."""


def bounders(tuning: Tuning, count: Iterations) -> tuple[Method, ...]:
    """All methods of incomplete verification."""
    return (
        Method("Wong-Kolter", "wong_kolter"),
        Method("CROWN", "crown"),
        Method(PLANET, "lp"),
        Method(ONE_CUT, "lp_cuts", {"rounds": 1}),
        Method("BDD+", "bdd_plus", tuning.bdd(count.bdd)),
        Method("Big-M", "big_m", {"iterations": count.big_m, **tuning.start}),
        *(_active_set(it, count, tuning) for it in count.active_set),
        *(_active_set(it, count, tuning) for it in count.longer if tuning.longer),
        _saddle_point(count, tuning),
        _as_sp(count, tuning),
        Method("ours: alpha-CROWN", "alpha_crown", {"iterations": count.ours[0]}),
        _propagated("1 shared cut", count, {}),
        _propagated("3 rounds of exact cuts", count, {"thresholds": [None], "rounds": 3}),
    )


def ablations(tuning: Tuning, count: Iterations) -> tuple[Method, ...]:
    """Active Set as it is, with masks drawn by chance, and with other frequencies of addition."""
    found = [_active_set(it, count, tuning) for it in count.budgets]
    found += [_active_set(it, count, tuning, selection="random") for it in count.budgets]
    for every in count.sweep:
        found += [_active_set(it, count, tuning, every=every) for it in count.budgets]
    return tuple(found)


def _active_set(iterations: int, count: Iterations, tuning: Tuning, **changed: Any) -> Method:
    """Two masks every omega iterations, at most seven, after Big-M.  `changed`: the selection, or omega as `every`."""
    every = changed.pop("every", count.every)
    words = [f"Active Set {iterations}", *changed.values()]
    if every != count.every:
        words.append(f"omega {every}")
    options = {
        "iterations": iterations,
        "initial": {"iterations": count.initial, **tuning.start},
        "additions": {"every": every, "count": 2, "most": 7},
        **changed,
    }
    return Method(", ".join(words), "active_set", options)


def _saddle_point(count: Iterations, tuning: Tuning) -> Method:
    *shorter, longest = count.saddle_point
    options = {"iterations": longest, "initial": {"iterations": count.initial, **tuning.start}}
    stages = {f"Saddle Point {it}": longest - it for it in shorter}
    return Method(f"Saddle Point {longest}", "saddle_point", options, stages)


def _as_sp(count: Iterations, tuning: Tuning) -> Method:
    first, then = count.as_sp
    initial = _active_set(first, count, tuning).options
    return Method(f"AS-SP {first} + {then}", "as_sp", {"iterations": then, "initial": initial})


def _propagated(what: str, count: Iterations, options: Mapping[str, Any]) -> Method:
    first, then = count.ours
    return Method(
        f"ours: propagated, {what}", "propagated", {"iterations": then, "initial": {"iterations": first}, **options}
    )


def pairs(count: Iterations) -> tuple[tuple[str, str], ...]:
    """The methods that the paper compares point by point, as far as they were run."""
    active, saddle = ([f"{name} {it}" for it in its] for name, its in _dual(count))
    first, then = count.as_sp
    return (
        ("BDD+", "Big-M"),
        ("Big-M", active[0]),
        ("Big-M", saddle[0]),
        *zip(active[2:], saddle[1:], strict=False),
        (active[-1], f"AS-SP {first} + {then}"),
    )


def _dual(count: Iterations) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return ("Active Set", count.active_set), ("Saddle Point", count.saddle_point)


PUBLISHED: Mapping[str, Mapping[str, tuple[float, float | None, float]]] = {
    "BDD+": {"base": (883.55, 82699.40, 22), "wide": (568.25, 43751.88, 13), "deep": (281.47, 10763.48, 5)},
    "Big-M": {"base": (826.60, 68582.00, 19), "wide": (533.79, 35877.24, 12), "deep": (253.37, 9346.78, 4)},
    "Active Set 100": {"base": (422.32, 9471.90, 7), "wide": (169.73, 1873.36, 3), "deep": (227.26, 2302.16, 2)},
    "Big-M + Active Set 100": {
        "base": (415.20, 10449.10, 7),
        "wide": (163.02, 2402.28, 3),
        "deep": (199.70, 2709.60, 2),
    },
    "Big-M + Active Set 600": {
        "base": (360.16, 4806.14, 6),
        "wide": (181.27, 1403.90, 3),
        "deep": (148.06, 1061.90, 1),
    },
    "Big-M + Saddle Point 1000": {
        "base": (382.15, 5673.04, 7),
        "wide": (417.41, 1900.90, 7),
        "deep": (540.68, 2551.62, 7),
    },
    "Big-M + Active Set 1650": {
        "base": (463.00, 7484.54, 6),
        "wide": (285.99, 1634.98, 3),
        "deep": (250.52, 1119.00, 1),
    },
    "Big-M + Saddle Point 4000": {
        "base": (434.92, 4859.68, 7),
        "wide": (402.86, 1703.48, 3),
        "deep": (482.93, 1444.20, 4),
    },
    "LP Planet + LP 1 cut": {"base": (949.06, 1572.10, 15), "wide": (762.42, 514.02, 6), "deep": (799.71, 391.70, 2)},
    "MIP A_k": {"base": (3227.50, 226.24, 82), "wide": (2500.70, 100.93, 64), "deep": (3339.37, 434.57, 91)},
}
"""[SCB] table:models, table:models-tighter: mean seconds, mean subproblems, % of time-outs; 100 properties of an hour
each, dual methods on a Titan Xp, linear and mixed-integer programs by Gurobi on 6 cores of an i7-6850K."""
