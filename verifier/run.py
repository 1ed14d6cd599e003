"""One instance from its files to its result: load, check, falsify, bound, search.

`verify` and `bounds` are the entry points for Python; the command line calls `decide` and `attack` with a ledger of
its own.  All of them take the same path.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from os import PathLike

import torch

from verifier.arguments import Means, shown
from verifier.bounding.clauses import ClauseBounder, ClauseBounds
from verifier.bounding.core.base import Region, Until
from verifier.bounding.hidden import GroupBounds, Intermediate, RootBounds
from verifier.clock import Clock
from verifier.config import Config, load_config
from verifier.defaults import own_defaults
from verifier.errors import InputError
from verifier.falsify.base import Falsifier, FirstOf
from verifier.falsify.pgd import thorough
from verifier.falsify.target import Target
from verifier.loading import Instance, Loader, Model, Source, file_name, loader
from verifier.machine import machine, one_thread, out_of_memory
from verifier.network.judge import check_against, faithful_network
from verifier.network.magnitudes import beyond, spoiled
from verifier.network.merge import merged
from verifier.network.network import Network
from verifier.precision import full_precision
from verifier.processes import Answer, Forks, cores, forkable
from verifier.property.arrays import Numbers, Unsafe
from verifier.property.problem import ClauseRows, Problem, canonicalise
from verifier.result.counterexample import Counterexample
from verifier.result.ledger import Ledger
from verifier.result.result import Result, Setting
from verifier.result.statistics import Statistics
from verifier.result.verdict import Reason, Verdict
from verifier.search.domains import Progress
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.trace import tracing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """What to do: how to load the instance, with which options, on which part of the machine."""

    load: Loader
    config: Config
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    trace: str | None = None  # the file that gets the search tree

    @contextmanager
    def machine(self, ledger: Ledger) -> Iterator[torch.device]:
        """The device of this task; inside, torch computes as `machine` says."""
        count = self.threads or cores()
        with machine(self.device, count) as device:
            ledger.device, ledger.threads = str(device), count
            yield device


def verify(  # noqa: PLR0913 (the public entry point: all but the instance has defaults)
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    unsafe: Unsafe | None = None,
    config: str | PathLike[str] | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> Result:
    """Decides one instance.

    Either `network` and `prop` are files (ONNX and VNN-LIB), or `network` is a torch module (or an ONNX file) and the
    property is given as arrays: the input box `lower <= x <= upper` and `unsafe`, a list of pairs (A, c).  An output y
    is unsafe if for some pair all rows of A y <= c hold.  For a file the box has the shape of the network's input,
    with or without leading ones, or is flat; for a module it has the shape of one sample, with or without a batch
    axis of 1.

        verifier.verify(module, lower=x - 0.1, upper=x + 0.1, unsafe=[([[1.0, -1.0]], [0.0])])

    asks whether y_0 <= y_1 is possible anywhere in the box.  `timeout` counts seconds from the call.

    Guarantees: `sat` comes with a counterexample that the original network confirmed, `unsat` with bounds that
    include all rounding errors.  `arithmetic` of the result says whether real arithmetic confirms a counterexample,
    too.  Raises InputError for input that cannot be used.
    """
    resolved, means = load_config(config), Means.of(timeout, device, threads, seed)
    load = loader(network, prop, (lower, upper), unsafe)
    setting = Setting(file_name(network), file_name(prop), means.timeout, resolved.resolved(), means.seed)
    ledger = Ledger(setting, Clock.begin(means.timeout))
    return decide(Task(load, resolved, means.device, means.threads, means.seed), ledger)


def bounds(
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    method: str = "best",
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Lower and upper bounds of every layer before its ReLU: a pair of tensors [N, n_k] per group, last the output.

    N counts the input boxes of the property, or is 1 for a box given by `lower` and `upper` (see `verify`); neurons
    are flattened.  `method`: interval, crown, wong_kolter, best or paper.
    Guarantees: valid in exact arithmetic; the tensors are float64 and rounded outward.  They are infinite where numbers
    are too large for the error model (docs/numerics.md).  Raises InputError for input that cannot be used.
    """
    methods = [m.value for m in Intermediate]
    if not isinstance(method, str) or method not in methods:
        raise InputError(f"method {shown(method)} is unknown; there are {', '.join(methods)}")
    load = loader(network, prop, (lower, upper), None, needs_unsafe=False)
    with own_defaults(), full_precision():
        region = _layer_bounds(load(), Intermediate(method))
    return list(zip(region.l_hat, region.u_hat, strict=True))


def _layer_bounds(instance: Instance, method: Intermediate) -> Region:
    """The boxes of a property with bounds of all layers, the output included."""
    boxes = instance.property.boxes
    sides = boxes.lower, boxes.upper
    net = faithful_network(instance.model, sides)
    check_against(instance.model, net, sides)
    lower, upper = (torch.from_numpy(side) for side in sides)
    if beyond(net, torch.maximum(lower.abs(), upper.abs()).amax(dim=0)) is not None:
        net = spoiled(net)
    whole = replace(net, groups=net.layers, output=net.output)
    return RootBounds(method).region(whole, lower, upper, Until())


def decide(task: Task, ledger: Ledger) -> Result:
    """Decides an instance: a quick attack, then bounds at the root, then branch and bound.

    Guarantees: what the phases find out is in the ledger as soon as it is known.
    """
    return _guarded(_decide, task, ledger)


def attack(task: Task, ledger: Ledger) -> Result:
    """Looks for a counterexample only: `sat`, or `unknown`."""
    return _guarded(_attack, task, ledger)


def _decide(task: Task, device: torch.device, ledger: Ledger) -> Result:
    with ledger.phase("load"), one_thread():
        problem, model = load_problem(task, ledger, merged)
    if not problem.property.clauses:
        return ledger.conclude(Verdict.UNSAT)
    arena = Target.of(problem, model, device)
    ledger.reserve = arena.reserve
    if problem.beyond is not None:
        return _unproved(task, problem.beyond, arena, ledger)
    problem = moved(problem, device)
    witness, found = _first_look(task, problem, arena, ledger)
    if found is None or witness is not None:
        return ledger.conclude(Verdict.SAT, counterexample=witness)
    if found.closed:
        return ledger.conclude(Verdict.UNSAT)
    with ledger.phase("attack"), one_thread():
        witness = _refine(task, arena, found, ledger.clock)
    if witness is not None:
        return ledger.conclude(Verdict.SAT, counterexample=witness)
    with ledger.phase("search"), one_thread():
        return _search(task, problem, arena, found, ledger)


def _unproved(task: Task, layer: str, arena: Target, ledger: Ledger) -> Result:
    """What can be said of a network with numbers that no proof can be made with: `sat`, or nothing."""
    with ledger.phase("attack"), one_thread():
        witness = _falsify(task, arena, ledger.clock)
    if witness is not None:
        return ledger.conclude(Verdict.SAT, counterexample=witness)
    why = f"the numbers of layer '{layer}' are too large for a proof in 64-bit floats"
    return ledger.conclude(Verdict.UNKNOWN, Reason.NUMERICS, why)


def _first_look(
    task: Task, problem: Problem, arena: Target, ledger: Ledger
) -> tuple[Counterexample | None, ClauseBounds | None]:
    """A quick attack and the bounds at the root: a witness, or bounds.

    With a second core the attack runs beside the bounds; whichever decides ends the other one.
    """
    if not task.config.falsify.enabled or processes(task, problem) == 1:
        with ledger.phase("attack"), one_thread():
            witness = _falsify(task, arena, ledger.clock)
        if witness is not None:
            return witness, None
        with ledger.phase("root"):
            return None, _bound(task, problem, ledger)

    with Answer(lambda send: _falsify(task, arena, ledger.clock)) as beside:
        with ledger.phase("root"):
            found = _bound(task, problem, ledger, needless=lambda: beside.now() is not None)
        if found.closed:
            return None, found
        with ledger.phase("attack"):
            return beside.wait(), found


def _search(task: Task, problem: Problem, arena: Target, found: ClauseBounds, ledger: Ledger) -> Result:
    """Branch and bound over the clauses that the root bounds left open."""

    def report(progress: Progress) -> None:
        counts = progress.counts
        ledger.open = progress.open
        ledger.lower_bound = min(progress.lower, 0.0) if progress.open else ledger.lower_bound
        ledger.statistics = Statistics(
            counts.domains, counts.tiers, counts.leaves, progress.max_open, counts.batches, counts.iterations
        )

    options = task.config.search
    falsifier = _falsifier(task) if task.config.falsify.enabled else None
    with tracing(task.trace) as journal:
        whole = ProblemSearch(
            options.policy(),
            options.limits(),
            _intermediate(task),
            falsifier,
            options.sharpening(),
            Splitting(options.splitting),
            journal=journal,
            cores=processes(task, problem),
        )
        outcome = whole.run(problem, found, arena, ledger.clock, report)
    report(outcome.progress)
    if outcome.witness is not None:
        return ledger.conclude(Verdict.SAT, counterexample=outcome.witness)
    if outcome.reason is Reason.TIMEOUT:
        return ledger.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached")
    if outcome.reason is Reason.LIMIT:
        return ledger.conclude(Verdict.UNKNOWN, Reason.LIMIT, "the limit of domains was reached")
    if outcome.reason is not None:
        return ledger.conclude(Verdict.UNKNOWN, outcome.reason, "floating-point arithmetic could not decide a leaf")
    ledger.lower_bound = 0.0  # every domain is closed by a bound above zero, but their minimum is not kept
    return ledger.conclude(Verdict.UNSAT)


def processes(task: Task, problem: Problem) -> int:
    """How many processes may work on an instance.  A trace is written by one, a GPU is kept busy by one."""
    if task.trace is not None or problem.lower.device.type != "cpu" or not forkable():
        return 1
    return task.threads or cores()


def _intermediate(task: Task) -> GroupBounds:
    return task.config.bounding.hidden()


def _attack(task: Task, device: torch.device, ledger: Ledger) -> Result:
    with ledger.phase("load"), one_thread():
        problem, model = load_problem(task, ledger)
    with ledger.phase("attack"), one_thread():
        witness = None
        if problem.rows and task.config.falsify.enabled:
            falsifier = FirstOf((_falsifier(task), thorough(task.seed)))
            arena = Target.of(problem, model, device)
            ledger.reserve = arena.reserve
            witness = falsifier.attack(arena, ledger.clock)
    if witness is not None:
        return ledger.conclude(Verdict.SAT, counterexample=witness)
    if ledger.clock.expired():
        return ledger.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached")
    return ledger.conclude(Verdict.UNKNOWN, Reason.LIMIT, "the attack found no counterexample")


def _falsify(task: Task, arena: Target, clock: Clock) -> Counterexample | None:
    options = task.config.falsify
    if not options.enabled:
        return None
    return _falsifier(task).attack(arena, clock.within(options.seconds))


def _refine(task: Task, arena: Target, found: ClauseBounds, clock: Clock) -> Counterexample | None:
    """Starts the falsifier at the points where the relaxation is worst."""
    options = task.config.falsify
    if not options.enabled or not found.points or clock.expired():
        return None
    clauses = torch.tensor(list(found.points), device=arena.device)
    x = torch.stack(list(found.points.values())).to(arena.device, arena.dtype)
    return _falsifier(task).improve(arena, x, clauses, clock.within(options.seconds))


def _falsifier(task: Task) -> Falsifier:
    return task.config.falsify.attack(task.seed)


def _bound(task: Task, problem: Problem, ledger: Ledger, needless: Callable[[], bool] | None = None) -> ClauseBounds:
    def report(worst: float) -> None:
        ledger.lower_bound = worst

    ledger.tier = "linear"
    bounder, count = ClauseBounder(_intermediate(task), task.config.bounding.batch), processes(task, problem)
    with one_thread() if count > 1 else nullcontext():
        found = bounder.bound(problem, Until(ledger.clock, needless=needless), report, Forks(count))
    ledger.lower_bound = found.worst
    return found


def moved(problem: Problem, device: torch.device) -> Problem:
    """The problem on another device."""
    if device.type == "cpu":
        return problem
    rows = [ClauseRows(r.A.to(device), None if r.B is None else r.B.to(device), r.c.to(device)) for r in problem.rows]
    box = problem.lower.to(device), problem.upper.to(device)
    return replace(problem, network=problem.network.to(device), lower=box[0], upper=box[1], rows=tuple(rows))


def _guarded(work: Callable[[Task, torch.device, Ledger], Result], task: Task, ledger: Ledger) -> Result:
    """Runs `work` on the wanted part of the machine; memory that runs out is an answer, not an error."""
    try:
        with task.machine(ledger) as device:
            return work(task, device, ledger)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return ledger.conclude(Verdict.UNKNOWN, Reason.MEMORY, "the memory did not suffice")


def load_problem(
    task: Task, ledger: Ledger, rewrite: Callable[[Network], Network] = lambda net: net
) -> tuple[Problem, Model]:
    """The instance, checked: counts fit, and the lowered and rewritten network computes what the original one does."""
    instance = task.load()
    model, prop = instance.model, instance.property
    ledger.network_sha256, ledger.property_sha256 = model.sha256, instance.property_sha256
    for warning in prop.warnings:
        log.warning("%s", warning)
    boxes = prop.boxes.lower, prop.boxes.upper
    network = rewrite(faithful_network(model, boxes))
    problem = canonicalise(network, prop)
    if len(prop.boxes):
        check_against(model, network, boxes, task.seed)
    return problem, model
