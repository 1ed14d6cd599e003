"""One instance from its files to its result: load, check, falsify, bound, search.

The entry points for Python (`verifier.api`), the command line and the workers of a batch all take this path.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from verifier import __version__, ray_cluster
from verifier.bounding.clauses import ClauseBounder, ClauseBounds
from verifier.bounding.core.base import Until
from verifier.bounding.core.closing import closes
from verifier.bounding.forms import FormBounder
from verifier.bounding.frugal import Frugal, is_large
from verifier.bounding.hidden import GroupBounds
from verifier.clock import Clock
from verifier.config import Config
from verifier.errors import InputError, NotFinite, UnsupportedOperator
from verifier.falsify.base import Falsifier, FirstOf, Wave, one_after_another
from verifier.falsify.blind import Blind
from verifier.falsify.every_point import proved_by_all_points
from verifier.falsify.hunt import Hunt, HuntBeside
from verifier.falsify.pgd import thorough
from verifier.falsify.target import Target
from verifier.loading import Given, Loaded, Original
from verifier.machine import Machine, WithinMemory, torch_threads
from verifier.network.judge import check_against, faithful_network
from verifier.network.lowering.tracing import MOST_NEURONS
from verifier.network.merge import Merging, merging
from verifier.network.models.module import ModuleModel
from verifier.network.models.onnx import OnnxModel
from verifier.network.network import Network
from verifier.processes import Forked, Forks, Send
from verifier.proofs.ledger import Ledger
from verifier.proofs.log import NoteLog
from verifier.proofs.recording import Recording
from verifier.proofs.signs import SignScribe
from verifier.proofs.trim import TrimmingScribe
from verifier.property.asked import only_asked
from verifier.property.heads import Restated, without_head
from verifier.property.problem import ClauseRows, Problem, Stated, canonicalise
from verifier.property.property import Boxes, Property
from verifier.result.counterexample import Counterexample
from verifier.result.result import PHASES, Result, Setting, Statistics
from verifier.result.status import Status
from verifier.result.undecided import Trail
from verifier.result.verdict import Reason, Verdict
from verifier.search.checkpoint import Checkpoint, Identity
from verifier.search.cluster.engine import ClusterEngine
from verifier.search.domains import Outcome, Progress
from verifier.search.journal import Journal
from verifier.search.keeper import Keeper, SavedRun
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.saved import Saved, SavedRoot, open_numbers
from verifier.search.trace import tracing

log = logging.getLogger(__name__)

UNREAD = 3.0
"""How many times longer than a quick attack points are tried on a network that cannot be read."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to do: the instance as it was given, with which options, on which part of the machine."""

    given: Given
    config: Config
    machine: Machine = field(default_factory=Machine)
    seed: int = 0
    trace: str | None = None  # the file that gets the search tree
    proof: str | None = None  # the file that gets the proof of an `unsat`
    trim: bool = False  # splits that it does not lean on are left out
    resume: str | None = None  # the folder of checkpoints, from which an earlier run is continued
    ray: bool = False  # whether trees are searched by the workers of a Ray cluster
    address: str | None = None  # of that cluster; None: one that is started on this machine

    def recording(self) -> Recording | None:
        """Who writes the proof, if one is wanted.  Raises InputError if the options allow none."""
        if self.proof is None:
            return None
        scribe = TrimmingScribe if self.trim else SignScribe
        return Recording(self.proof, self.config.bounding.hidden(), self.config.search.policy(), scribe)

    def check(self) -> None:
        """Raises InputError for what does not go together, or is not there."""
        if self.trace is not None and self.resume is not None:
            raise InputError("--trace tells of one run from its beginning, so it does not go with --resume")
        if self.address is not None and not self.ray:
            raise InputError("--address is that of a Ray cluster: add --engine ray")
        if self.ray:
            ray_cluster.imported()

    def checkpoint(self, loaded: Loaded) -> Checkpoint | None:
        """Where the search is kept, and perhaps one that is to be continued.  Raises InputError for that of another."""
        if self.resume is None:
            return None
        options, proof = self.config.shaping(), self.proof is not None
        identity = Identity(loaded.model.sha256, loaded.property_sha256, __version__, options, proof)
        return Checkpoint(self.resume, identity)

    def status(self, phases: tuple[str, ...] = PHASES) -> Status:
        """Nothing is known yet; the time limit counts from now."""
        setting = Setting(*self.given.names, self.machine.timeout, self.config.resolved(), self.seed)
        return Status(setting, self.machine.clock(), phases=phases)


def decide(request: Request, status: Status) -> Result:
    """Decides an instance: a quick attack, then bounds at the root, then branch and bound.

    Guarantees: what the phases find out is in the status as soon as it is known.
    """
    request.check()
    recording = request.recording()
    with WithinMemory(), request.machine.taken() as device:
        status.computes_on(device, request.machine.cores)
        with status.phase("load"), torch_threads(1):
            loaded = load(request, status)
            checkpoint = request.checkpoint(loaded)
        try:
            with status.phase("load"), torch_threads(1):
                problem = problem_of(loaded, request.seed, merging, as_needed if recording is None else as_given)
        except UnsupportedOperator as error:
            return attack_unread(request, status, loaded, error)
        if recording is not None and problem.property.ball is not None:
            raise InputError("no proof can be written of a property with a ball: the checker knows boxes only")
        if recording is not None:
            recording.begin(problem, *request.given.names, None if checkpoint is None else _ledger(checkpoint))
        if problem.property.clauses:
            pipeline = Pipeline.of(request, status, problem, loaded.model, device, recording)
            result = pipeline.decide() if checkpoint is None else replace(pipeline, checkpoint=checkpoint).decide()
        else:
            result = status.conclude(Verdict.UNSAT)
        return result if recording is None else _with_proof(result, recording)
    return status.conclude(Verdict.UNKNOWN, Reason.MEMORY, "the memory did not suffice")


def _ledger(checkpoint: Checkpoint) -> Ledger:
    """What earlier runs have told for a proof, up to the checkpoint.  Raises InputError if it is not there."""
    left = checkpoint.found
    if left is None or left.notes is None:
        return Ledger(NoteLog(checkpoint.notes))
    return Ledger(NoteLog(checkpoint.notes, left.notes), open_numbers(left.search))


def _with_proof(result: Result, recording: Recording) -> Result:
    """The result, once its proof is written; other verdicts than `unsat` have none."""
    if result.verdict is not Verdict.UNSAT:
        log.warning("no proof was written: the verdict is %s", result.verdict.value)
        return result
    began = time.monotonic()
    hashes = {"network": result.network_sha256, "property": result.property_sha256}
    found = recording.written(hashes | {"settings": result.setting.config})
    if isinstance(found, str):
        log.warning("%s", found)
        return replace(result, message=found)
    return replace(result, proof=found.as_dict() | {"seconds": round(time.monotonic() - began, 6)})


def attack(request: Request, status: Status) -> Result:
    """Looks for a counterexample only: `sat`, or `unknown`."""
    with WithinMemory(), request.machine.taken() as device:
        status.computes_on(device, request.machine.cores)
        with status.phase("load"), torch_threads(1):
            loaded = load(request, status)
        try:
            with status.phase("load"), torch_threads(1):
                problem = problem_of(loaded, request.seed, restate=as_needed)
        except UnsupportedOperator as error:
            return attack_unread(request, status, loaded, error)
        witness = None
        if problem.rows:
            witness = Pipeline.of(request, status, problem, loaded.model, device).attack()
        if witness is not None:
            return status.conclude(Verdict.SAT, counterexample=witness)
        if status.clock.expired():
            return status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached")
        return status.conclude(Verdict.UNKNOWN, Reason.LIMIT, "the attack found no counterexample")
    return status.conclude(Verdict.UNKNOWN, Reason.MEMORY, "the memory did not suffice")


def attack_unread(request: Request, status: Status, loaded: Loaded, error: UnsupportedOperator) -> Result:
    """What can be said of a file with an operator that cannot be bounded: onnxruntime runs it, so points can be tried.

    `sat`, or `unknown` with the operator's name.  Raises the error if there is no such file, or if no attack is wanted.
    """
    if isinstance(loaded.model, ModuleModel) or not request.config.falsify.enabled:
        raise error
    if (loaded.property.n_x, loaded.property.n_y) != (loaded.model.n_in, loaded.model.n_out):
        raise error
    log.warning("%s", error)
    witness = None
    if loaded.property.clauses:
        with status.phase("attack"):
            until = status.clock.within(UNREAD * request.config.falsify.seconds)
            witness = Blind(request.seed).attack(loaded.model, loaded.property, until, status.clock)
    if witness is not None:
        return status.conclude(Verdict.SAT, counterexample=witness)
    if request.proof is None and isinstance(loaded.model, OnnxModel) and len(loaded.model.integer_inputs):
        with status.phase("search"), torch_threads(1):
            count = proved_by_all_points(loaded.model, loaded.property, status.clock)
        if count is not None:
            status.statistics = Statistics(count, {"interval": count})
            return status.conclude(Verdict.UNSAT)
    if status.clock.expired():
        return status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, f"the time limit was reached; {error}")
    return status.conclude(Verdict.UNKNOWN, Reason.UNSUPPORTED, f"no counterexample was found, and {error}")


@dataclass(frozen=True, eq=False)
class Pipeline:
    """An instance that is loaded, and what its phases share.

    Requires: inside of `Machine.taken`; the property has a clause.
    """

    request: Request
    status: Status
    problem: Problem
    target: Target
    recording: Recording | None = None
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(
        cls,
        request: Request,
        status: Status,
        problem: Problem,
        model: Original,
        device: torch.device,
        recording: Recording | None = None,
    ) -> Pipeline:
        """The instance on that device; the status knows of the witnesses in reserve from now on."""
        target = Target.of(problem, model, device)
        status.reserve = target.reserve
        return cls(request, status, moved(problem, device), target, recording)

    @property
    def processes(self) -> int:
        """How many processes may work on the instance."""
        return self.request.machine.processes(self.problem.lower.device)

    def decide(self) -> Result:
        """All phases, until one of them decides.  Raises InputError for methods that do not suit the network."""
        size = self.problem.network
        shown = len(size.groups), size.neurons, len(self.problem.rows), len(self.problem.lower)
        log.info("problem: %d groups with %d neurons, %d clauses, %d boxes", *shown)
        if not self.problem.network.piecewise_linear:
            self.whole(Journal()).check(self.problem.network)
        if self.problem.beyond is not None:
            return self._unproved(self.problem.beyond)
        if self.checkpoint is not None and self.checkpoint.found is not None:
            return self._go_on(self.checkpoint.found)
        with self._hunting() as hunt:
            return self._decided(hunt)

    @contextlib.contextmanager
    def _hunting(self) -> Iterator[Hunt]:
        """The quick attack, which goes on beside all else: on another core if there is one, or in turns."""
        options, clock = self.request.config.falsify, self.status.clock
        if not options.enabled:
            yield Hunt((), clock, 0.0)
        elif self.processes == 1:
            yield Hunt(self.falsifier.waves(self.target), clock, options.seconds)
        else:
            with Forked(self.falsify) as beside:
                yield HuntBeside(beside, clock, options.seconds)

    def _decided(self, hunt: Hunt) -> Result:
        """Bounds at the root, and then the search; the hunt may end each of them."""
        with self.status.phase("attack"), torch_threads(1):
            alone = self.processes == 1 and is_large(self.problem.network, len(self.problem.lower))
            witness = hunt.rest() if alone else hunt.turn()
        if witness is not None:
            return self.status.conclude(Verdict.SAT, counterexample=witness)
        with self.status.phase("root"):
            found = self.bound(needless=hunt.ready)
        if hunt.ready():
            return self.status.conclude(Verdict.SAT, counterexample=hunt.turn())
        if self.recording is not None:
            found = self.recording.careful(found)
        if found.closed:
            if self.recording is not None:
                self.recording.settled(found)
            return self.status.conclude(Verdict.UNSAT)
        if self.too_many is None or self.target.reserve.found() is None:  # a witness in reserve is the answer then
            with self.status.phase("attack"), torch_threads(1):
                hunt.near(self._at_minimisers(found))
                witness = hunt.turns() if self.too_many is None else hunt.rest()
        if witness is not None:
            return self.status.conclude(Verdict.SAT, counterexample=witness)
        if self.too_many is not None:
            return self.status.conclude(Verdict.UNKNOWN, Reason.LIMIT, self.too_many)
        return self._searched(found, hunt)

    def _go_on(self, left: SavedRun) -> Result:
        """Where an earlier run was: its attack and its bounds of the root are not repeated."""
        log.info("resume: %d earlier run(s) took %.1f s", left.runs, left.seconds)
        found = left.root.found(self.problem)
        self._note_root(found)
        if left.reserve is not None:
            point, clause = left.reserve
            x, known = point.to(self.target.device, self.target.dtype).unsqueeze(0), torch.tensor([clause])
            witness = self.target.replay(x, torch.full_like(x[:, 0], -torch.inf), known.to(self.target.device))
            if witness is not None:
                return self.status.conclude(Verdict.SAT, counterexample=witness)
        return self._searched(found)

    def _searched(self, found: ClauseBounds, hunt: Hunt | None = None) -> Result:
        """What the search makes of clauses that are open, or the hunt meanwhile."""
        tiers = ", ".join(tier.name for tier in self.request.config.search.policy().ladder.tiers)
        ways = self.request.config.search.splitting
        log.info("search: splitting %s, tiers %s, processes %d", ways, tiers, self.processes)
        with self.status.phase("search"), torch_threads(1):
            return self._conclude(self.search(found, hunt))

    @property
    def too_many(self) -> str | None:
        """Why there is no search, if the network is too large for any."""
        count = self.problem.network.neurons
        if count <= MOST_NEURONS:
            return None
        return f"the network has {count / 1e6:.1f} million neurons: what attacks and bounds leave open is not searched"

    def attack(self) -> Counterexample | None:
        """A quick attack, then a thorough one."""
        with self.status.phase("attack"), torch_threads(1):
            if not self.request.config.falsify.enabled:
                return None
            return FirstOf((self.falsifier, thorough(self.request.seed))).attack(self.target, self.status.clock)

    def _unproved(self, why: str) -> Result:
        """What can be said of a network of which nothing can be proved: `sat`, or nothing.

        Gradients lead to where numbers overflow, so points are tried by the original network alone as well.
        """
        options, target = self.request.config.falsify, self.target
        with self.status.phase("attack"), torch_threads(1):
            witness = self.falsify()
            if witness is None and options.enabled and target.reserve.found() is None:
                by_points = Blind(self.request.seed, judge=target.judge)
                witness = by_points.attack(target.model, target.prop, self._share(UNREAD * options.seconds))
        if witness is not None:
            return self.status.conclude(Verdict.SAT, counterexample=witness)
        return self.status.conclude(Verdict.UNKNOWN, Reason.NUMERICS, why)

    def falsify(self, send: Send | None = None) -> Counterexample | None:
        """The quick attack; a fork that makes it has nothing to send before its answer."""
        options = self.request.config.falsify
        if not options.enabled:
            return None
        return self.falsifier.attack(self.target, self._share(options.seconds))

    def refine(self, found: ClauseBounds) -> Counterexample | None:
        """Starts the falsifier at the points where the relaxation is worst."""
        return one_after_another(self._at_minimisers(found), self._share(self.request.config.falsify.seconds))

    def _at_minimisers(self, found: ClauseBounds) -> list[Wave]:
        """The same, as part of an attack."""
        if not self.request.config.falsify.enabled or not found.points:
            return []
        clauses = torch.tensor(list(found.points), device=self.target.device)
        x = torch.stack(list(found.points.values())).to(self.target.device, self.target.dtype)
        return [partial(self.falsifier.improve, self.target, x, clauses)]

    @property
    def falsifier(self) -> Falsifier:
        return self.request.config.falsify.attack(self.request.seed)

    def _share(self, seconds: float) -> Clock:
        return self.status.clock.within(seconds)

    def bound(self, needless: Callable[[], bool] | None = None) -> ClauseBounds:
        """Bounds of all clauses at the root; what is not begun when they are `needless` is left out."""
        options = self.request.config.bounding
        self.status.tier = "linear"
        hidden = options.hidden() if self.recording is None else self.recording.hidden
        cheap = self._cheap(hidden)
        hidden = hidden if cheap is None else cheap
        until = Until(self.status.clock, needless=needless)
        with torch_threads(1) if self.processes > 1 else nullcontext():
            if self.recording is None and options.usual and self.whole(Journal()).by_many_boxes(self.problem):
                by_forms = FormBounder(double=self.target.dtype is torch.float64)
                found = by_forms.bound(self.problem, until, self._worst)
            else:
                bounder = ClauseBounder(hidden, options.batch)
                found = bounder.bound(self.problem, until, self._worst, Forks(self.processes))
        self._note_root(found)
        return found if cheap is None else replace(found, regions={})  # the search by signs needs better ones

    def _cheap(self, hidden: GroupBounds) -> GroupBounds | None:
        """What suffices for a large network of which few inputs move: boxes are cut, and their parts bounded anyway.

        Of a network that is too large for a search it is all that there is time for.
        """
        problem = self.problem
        if not isinstance(hidden, Frugal) or not is_large(problem.network, len(problem.lower)):
            return None
        search = self.whole(Journal())
        if not self.too_many and search.by_slices(problem):
            return hidden.unswept()
        return hidden.cheap() if self.too_many or search.by_inputs(problem) else None

    def _note_root(self, found: ClauseBounds) -> None:
        """What explains an answer, or the lack of one: how far each clause is from a proof."""
        self._worst(found.worst)
        clauses, worst = len(found.lower), int(found.lower.argmin())
        left = clauses - int(closes(found.lower).sum())
        self.status.trail = Trail(clauses, left, worst, float(found.lower[worst]))
        log.info(
            "root: %d of %d clauses are closed; the worst, number %d, has the bound %.4g",
            clauses - left,
            clauses,
            worst,
            float(found.lower[worst]),
        )

    def _worst(self, lower: float) -> None:
        self.status.lower_bound = lower

    def search(self, found: ClauseBounds, hunt: Hunt | None = None) -> Outcome:
        """Branch and bound over the clauses that the root bounds left open; what it cannot decide, the hunt may."""
        listeners = [] if self.recording is None else [self.recording.writer]
        with tracing(self.request.trace, listeners) as journal:
            whole = self.whole(journal)
            if self.recording is not None:
                whole = self.recording.provable(whole)
            keeper = self._keeper(found, journal)
            with contextlib.ExitStack() as around:
                if self.request.ray:
                    whole = replace(whole, cores=1, engine=around.enter_context(contextlib.closing(self._cluster())))
                outcome = whole.run(self.problem, found, self.target, self.status.clock, self._note, keeper, hunt)
        if hunt is not None and outcome.reason is not None and (witness := hunt.rest()) is not None:
            outcome = replace(outcome, witness=witness, reason=None)
        self._note(outcome.progress)
        claimed = None if outcome.claimed is None else outcome.claimed.value
        self.status.statistics = replace(self.status.statistics, claimed=claimed)
        return outcome

    def _cluster(self) -> ClusterEngine:
        """The workers elsewhere; as many as there are cores, unless somebody says."""
        from verifier.search.cluster.rays import RayCluster

        request = self.request
        keeping = request.config.search.keeping()
        return RayCluster(self.target.model, keeping, address=request.address, workers=request.machine.threads)

    def _keeper(self, found: ClauseBounds, journal: Journal) -> Keeper | None:
        """Who writes checkpoints, if that is wanted; the numbers of an earlier run are not given again."""
        checkpoint, clock = self.checkpoint, self.status.clock
        if checkpoint is None:
            return None
        left, root = checkpoint.found, SavedRoot.of(found)
        runs, seconds = (0, 0.0) if left is None else (left.runs, left.seconds)
        if left is not None:
            journal.numbers(left.numbers)

        def write(search: Saved) -> None:
            kept = self.target.reserve.found()
            reserve = None if kept is None else (torch.from_numpy(kept.x), kept.clause)
            try:
                notes = None if self.recording is None else self.recording.writer.counted()
            except OSError as error:
                checkpoint.complain(error)
                return
            so_far = runs + 1, seconds + clock.elapsed()
            checkpoint.write(SavedRun(root, search, journal.numbered, *so_far, reserve, notes))

        keeping = self.request.config.search.keeping()
        return Keeper(keeping, clock, write, None if left is None else left.search)

    def whole(self, journal: Journal) -> ProblemSearch:
        """The search that the options ask for."""
        options = self.request.config.search
        return ProblemSearch(
            options.policy(),
            options.limits(),
            self.request.config.bounding.hidden(),
            self.falsifier if self.request.config.falsify.enabled else None,
            self.request.seed,
            options.sharpening(),
            Splitting(options.splitting),
            integer=options.mixed_integer(),
            journal=journal,
            cores=self.processes,
            keeping=None if self.checkpoint is None else options.keeping(),
        ).within(self.request.config.bounding.budget)

    def _note(self, progress: Progress) -> None:
        counts, status = progress.counts, self.status
        status.open = progress.open
        before, status.trail = status.trail, status.trail.after(min(progress.lower, 0.0), progress.left)
        status.lower_bound = min(progress.lower, 0.0) if progress.open else status.lower_bound
        for look in counts.looks[len(status.statistics.looks) :]:
            log.info("search: %s", look)
        left = None if self.checkpoint is None else self.checkpoint.found
        status.statistics = Statistics(
            counts.domains,
            counts.tiers,
            counts.leaves,
            progress.max_open,
            counts.batches,
            counts.iterations,
            tuple(look.as_dict() for look in counts.looks),
            earlier_runs=0 if left is None else left.runs,
            earlier_seconds=0.0 if left is None else round(left.seconds, 6),
        )
        if status.trail.bounds is not before.bounds:
            log.debug("%s", status.snapshot())

    def _conclude(self, outcome: Outcome) -> Result:
        """What the end of a search means."""
        status = self.status
        if outcome.witness is not None:
            return status.conclude(Verdict.SAT, counterexample=outcome.witness)
        if outcome.reason is Reason.TIMEOUT:
            return status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached")
        if outcome.reason is Reason.LIMIT:
            return status.conclude(Verdict.UNKNOWN, Reason.LIMIT, "the limit of domains was reached")
        if outcome.claimed is not None:
            why = f"HiGHS claims {outcome.claimed.value}, but nothing confirms it: its tolerances prove nothing"
            return status.conclude(Verdict.UNKNOWN, outcome.reason, why)
        if outcome.reason is not None:
            return status.conclude(Verdict.UNKNOWN, outcome.reason, "floating-point arithmetic could not decide a leaf")
        status.lower_bound = 0.0  # every domain is closed by a bound above zero, but their minimum is not kept
        return status.conclude(Verdict.UNSAT)


Restate = Callable[[Network, Property], Restated | None]
"""The same question about a simpler network, if there is one."""


def as_given(network: Network, prop: Property) -> None:
    """Nothing is restated: proofs and tables of bounds speak of the outputs of the file."""


def as_needed(network: Network, prop: Property) -> Restated | None:
    """Without the function that the network ends with, and without outputs that nobody asks for, where that can be."""
    bare = without_head(network, prop)
    asked = only_asked(network, prop) if bare is None else only_asked(bare.network, bare.property)
    return bare if asked is None else asked


def load_problem(request: Request, status: Status) -> tuple[Problem, Original]:
    """The instance as it was given, checked, and the network in its original form."""
    loaded = load(request, status)
    return problem_of(loaded, request.seed), loaded.model


def load(request: Request, status: Status) -> Loaded:
    """The files or arrays; the status knows their digests from now on."""
    log.info("load: %s, %s", *(name or "as given" for name in request.given.names))
    loaded = request.given.load()
    status.network_sha256, status.property_sha256 = loaded.model.sha256, loaded.property_sha256
    for warning in loaded.property.warnings:
        log.warning("%s", warning)
    return loaded


def problem_of(
    loaded: Loaded, seed: int, merge: Callable[[Network], Merging] = Merging, restate: Restate = as_given
) -> Problem:
    """The instance, checked: counts fit, and the lowered and merged network computes what the original one does.

    Where the original one has no numbers to compare with inside of a box, nothing can be proved of the instance.
    Raises UnsupportedOperator or InputError, naming the file.
    """
    work = Groundwork.of(loaded.model, loaded.property, merge, restate)
    problem = work.problem(loaded.property)
    if len(loaded.property.boxes):
        try:
            work.check(loaded.model, loaded.property.boxes, seed)
        except NotFinite as error:
            log.warning("%s: nothing can be proved", error.message)
            problem = problem.unprovable(error.message)
    return problem


@dataclass(frozen=True, eq=False)
class Groundwork:
    """What is done once for a network, and serves all properties that ask the same about boxes inside of some boxes."""

    given: Network  # as it was read
    merged: Merging  # what is searched
    whole: Network  # with all outputs of the file
    restate: Restate

    @classmethod
    def of(
        cls,
        model: Original,
        prop: Property,
        merge: Callable[[Network], Merging] = merging,
        restate: Restate = as_needed,
    ) -> Groundwork:
        """For the boxes of a property.  Raises UnsupportedOperator or InputError, naming the file."""
        given = faithful_network(model, (prop.boxes.lower, prop.boxes.upper))
        simpler = restate(given, prop)
        found = merge(given if simpler is None else simpler.network)
        return cls(given, found, found.network if simpler is None else given, restate)

    def check(self, model: Original, boxes: Boxes, seed: int) -> None:
        """Raises NetworkMismatch if the network does not compute what the original one does."""
        check_against(model, self.whole, (boxes.lower, boxes.upper), seed)

    def problem(self, prop: Property) -> Problem:
        """The instance.  Requires: the property asks the same as the one that this was made for, of smaller boxes."""
        simpler, problem = self.restate(self.given, prop), canonicalise(self.whole, prop)
        if simpler is not None:
            stated = None if simpler.equivalent else Stated(problem.network, prop)
            problem = replace(canonicalise(self.merged.network, simpler.property), stated=stated)
        return replace(problem, merged=self.merged.layers)


def moved(problem: Problem, device: torch.device) -> Problem:
    """The problem on another device."""
    if device.type == "cpu":
        return problem
    rows = [ClauseRows(r.A.to(device), None if r.B is None else r.B.to(device), r.c.to(device)) for r in problem.rows]
    box = problem.lower.to(device), problem.upper.to(device)
    return replace(problem, network=problem.network.to(device), lower=box[0], upper=box[1], rows=tuple(rows))
