"""The report of `make gpu-check`: does this GPU compute what the CPU computes, and how fast?"""

from __future__ import annotations

import platform
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from bench import Case, loops

from gpu import standin
from verifier import __version__
from verifier.bounding import BOUNDERS, HIDDEN
from verifier.bounding.core.base import Objective, Region, Until
from verifier.config import load_config
from verifier.loading import given
from verifier.machine import Machine
from verifier.network.models.onnx import load_onnx
from verifier.pipeline import Request, decide
from verifier.precision import direct_sums, full_precision
from verifier.processes import cores
from verifier.property.vnnlib import load_property
from verifier.registry import Options
from verifier.result.result import Result

PROPERTIES = Path(__file__).resolve().parents[2] / "properties"
TOLERANCE = 1e-4
"""How far bounds that an ascent in float32 has found may be apart, relative to their size: sums have other orders."""

ONLY_ROUNDING = 1e-9
"""The same for bounds in float64 without an ascent."""

SINGLE_STEPS = {"crown", "interval", "wong_kolter", "lp", "lp_cuts"}
"""Methods without an ascent."""

NETWORKS = (
    ("digits_fc", "fc_branch_1442"),
    ("digits_conv", "conv_branch_1444"),
    ("digits_res", "res_branch_1441"),
    ("cart_controller", "cart_range"),
)
SEARCHES = (
    ("digits_fc", "fc_branch_1438", "relus"),
    ("digits_conv", "conv_branch_1444", "relus"),
    ("cart_controller", "cart_range", "inputs"),
    ("digits_res", "res_sat_1443", "relus"),
)
QUICK = (("toy", "toy_positive", "relus"), ("toy", "toy_positive", "inputs"), SEARCHES[-1])


@dataclass
class Findings:
    """What differs or failed so far."""

    wrong: int = 0

    def line(self, name: str, fine: bool, text: str) -> None:
        self.wrong += not fine
        print(f"  {'ok' if fine else 'WRONG':5s} {name:44s} {text}", flush=True)

    def attempt(self, name: str, work: Callable[[], tuple[bool, str]]) -> None:
        """Whatever goes wrong is a line of the report."""
        try:
            fine, text = work()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            fine, text = False, f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        self.line(name, fine, text)


def report(wanted: str, quick: bool) -> int:
    """Prints it, and returns the exit code."""
    device = _device(wanted)
    if device is None:
        print("no GPU was found: torch sees no CUDA device here (--device standin checks what can be seen without one)")
        return 3
    _machine(device)
    found = Findings()
    with full_precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, prop in NETWORKS[: 1 if quick else None]:
            _bounds(name, prop, device, quick, found)
        _searches(QUICK if quick else SEARCHES, device, found)
        _speed("digits_conv", "conv_branch_1444", device, quick, found)
    print(f"\n{'all agree' if not found.wrong else f'{found.wrong} lines are WRONG'}")
    return int(found.wrong > 0)


def _device(wanted: str) -> torch.device | None:
    if wanted == standin.NAME:
        return standin.install()
    return torch.device(wanted) if torch.cuda.is_available() else None


def _machine(device: torch.device) -> None:
    print(f"Strata {__version__}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"{platform.system()} {platform.machine()}, {cores()} cores")
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        print(f"{card.name}, {card.total_memory / 2**30:.1f} GB, compute {card.major}.{card.minor}")
        print(f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    else:
        print("the stand-in: values are the CPU's, and times say nothing about a GPU")
    print(f"float32 closes boxes there: {direct_sums(device)}")


def _root(name: str, prop: str) -> tuple[object, Region, Objective]:
    """A network, the bounds of its hidden neurons over the first box of a property, and the rows of its clauses."""
    unsafe = load_property(PROPERTIES / "vnnlib" / f"{prop}.vnnlib")
    net = load_onnx(PROPERTIES / "onnx" / f"{name}.onnx").network()
    low, high = (torch.from_numpy(side[:1].copy()) for side in (unsafe.boxes.lower, unsafe.boxes.upper))
    region = HIDDEN.build("best").region(net, low, high, Until())
    rows = torch.cat([torch.from_numpy(clause.rows.A.copy()) for clause in unsafe.clauses])
    return net, region, Objective(len(net.layers), rows.unsqueeze(0))


def _bounds(name: str, prop: str, device: torch.device, quick: bool, found: Findings) -> None:
    """Every method here and there."""
    print(f"\nbounds of {name}, {prop}: the largest difference from the CPU's, relative")
    net, region, rows = _root(name, prop)
    moved = net.to(device), region.to(device), rows.to(device)

    def hidden() -> tuple[bool, str]:
        there = HIDDEN.build("best").region(moved[0], moved[1].lower, moved[1].upper, Until())
        pairs = zip((*region.l_hat, *region.u_hat), (*there.l_hat, *there.u_hat), strict=True)
        return _close([(a, b) for a, b in pairs], ONLY_ROUNDING)

    found.attempt("hidden neurons", hidden)
    for method in BOUNDERS.names():
        options = short(BOUNDERS.options(method), 3) if quick else None

        def work(method: str = method, options: object = options) -> tuple[bool, str]:
            bounder = BOUNDERS.build(method, options)
            here = bounder.bound(net, region, rows, Until()).lower
            there = bounder.bound(*moved, Until()).lower
            return _close([(here, there)], ONLY_ROUNDING if method in SINGLE_STEPS else TOLERANCE)

        found.attempt(method, work)


def short(options: type[Options], iterations: int) -> dict[str, object]:
    """Options of a method whose ascents, also those before the last one, have no more than so many iterations."""
    found: dict[str, object] = {}
    for name in options.__struct_fields__:
        value = getattr(options(), name)
        if name == "iterations":
            found[name] = iterations
        elif isinstance(value, Options):
            found[name] = short(type(value), iterations)
    return found


def _close(pairs: list[tuple[torch.Tensor, torch.Tensor]], tolerance: float) -> tuple[bool, str]:
    worst = 0.0
    for here, there in pairs:
        both = torch.stack([here, there.cpu()])
        both[:, both[0] == both[1]] = 0.0  # infinities too
        far = ((both[0] - both[1]).abs() / both.abs().amax(dim=0).clamp(min=1.0)).nan_to_num(
            torch.inf, posinf=torch.inf
        )
        worst = max([worst, *far.flatten().tolist()])
    return worst <= tolerance, f"{worst:.1e}"


def _searches(instances: tuple[tuple[str, str, str], ...], device: torch.device, found: Findings) -> None:
    print("\nsearches: verdict, domains and seconds here and there")
    for name, prop, splitting in instances:

        def work(name: str = name, prop: str = prop, splitting: str = splitting) -> tuple[bool, str]:
            here, there = (_decided(name, prop, splitting, str(place)) for place in ("cpu", device))
            text = ", ".join(f"{r.verdict.value} {r.statistics.domains} {r.time['total']:.1f}" for r in (here, there))
            return here.verdict is there.verdict, text

        found.attempt(f"{prop}, splitting {splitting}", work)


def _decided(name: str, prop: str, splitting: str, place: str) -> Result:
    files = str(PROPERTIES / "onnx" / f"{name}.onnx"), str(PROPERTIES / "vnnlib" / f"{prop}.vnnlib")
    config = load_config("auto", [f"search.splitting={splitting}"])
    request = Request(given(*files, (None, None, None), None), config, Machine(place, 1, 300.0))
    return decide(request, request.status())


def _speed(name: str, prop: str, device: torch.device, quick: bool, found: Findings) -> None:
    """Regions per second of one iteration, by the size of the batch; and the most memory that was taken."""
    sizes = (2,) if quick else (200, 1000, 10000)
    print(f"\niterations of {name}: the most memory, and thousands of regions per second of each method")
    files = PROPERTIES / "onnx" / f"{name}.onnx", PROPERTIES / "vnnlib" / f"{prop}.vnnlib"
    whole = Case.load(name, *files, max(sizes)).on(device)
    for size in sizes:

        def work(size: int = size) -> tuple[bool, str]:
            speeds = [f"{name} {speed / 1e3:.1f}" for name, speed in _speeds(whole.first(size), device)]
            taken = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
            return True, f"{taken:.0f} MB; " + ", ".join(speeds)

        found.attempt(f"batches of {size}", work)


def _speeds(case: Case, device: torch.device, rounds: int = 3) -> Iterator[tuple[str, float]]:
    """Regions per second of each method."""
    for name, step in loops(case).items():
        step()
        _wait(device)
        begun = time.perf_counter()
        for _ in range(rounds):
            step()
        _wait(device)
        yield name, rounds * case.batch / (time.perf_counter() - begun)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
