"""All options of a run and their defaults, as frozen structs.  Nothing heavy is imported here.

Methods declare their options in their own files and are known by name from their registries: `complete` puts them into
the structs of this file.  The structs build what they describe, which imports torch.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from verifier.bounding import BOUNDERS, HIDDEN
from verifier.branching import BRANCHERS
from verifier.errors import ConfigError
from verifier.falsify import ATTACKS
from verifier.registry import AscentOptions, Count, Options, Positive, Registry, Seconds, Share, Step, load_plugin
from verifier.search import TIERS

if TYPE_CHECKING:
    from verifier.bounding.core.base import Bounder
    from verifier.bounding.hidden import GroupBounds
    from verifier.bounding.lp.integer import MixedInteger
    from verifier.falsify.base import Falsifier
    from verifier.search.loop import Limits
    from verifier.search.saved import Keeping
    from verifier.search.sharpen import Sharpening
    from verifier.search.signs.space import Policy


CALLS = 16
"""What one call of a bounder may hold is this part of the memory."""

UNSHAPING = ("memory_mb", "max_domains", "max_batches", "checkpoint")
"""Options that may change when a search is continued."""


class Falsify(Options, frozen=True):
    """The search for counterexamples.  The options of the attack `quick`, which comes first, are here too."""

    enabled: bool = True  # whether counterexamples are looked for
    seconds: Seconds = 10.0  # the most that one attack may take
    attacks: tuple[Options, ...] = ()  # further ones, each with its name as `method`, beside its options

    def attack(self, seed: int) -> Falsifier:
        """What looks for counterexamples: quick descents, then the further attacks."""
        from verifier.falsify.base import FirstOf

        first = ATTACKS.build("quick", self, seed)
        return FirstOf((first, *(_built(ATTACKS, more, seed) for more in self.attacks))) if self.attacks else first


class Bounding(Options, frozen=True):
    """Lower bounds over relaxations.  Each method that has options has a section of its name here."""

    # How the bounds of the hidden neurons are found.  best: of interval and, where neurons are ambiguous, crown;
    # best_all: of both everywhere; paper: of interval and wong_kolter everywhere.
    intermediate: str = "best"
    sharpen: str = "none"  # the method that then bounds hidden neurons which are still ambiguous
    batch: Positive = 256  # boxes that are bounded together, at most
    memory_mb: Positive | None = None  # what a run may hold; null: half of the machine's memory

    @property
    def budget(self) -> int:
        """The same in bytes."""
        from verifier.machine import memory_budget

        return memory_budget(None if self.memory_mb is None else self.memory_mb * 2**20)

    def bounder(self, method: str) -> Bounder:
        """The method of that name.  Guarantee: in float64 its bounds are rigorous, but for linear programs."""
        return BOUNDERS.build(method, getattr(self, method, None))

    @property
    def usual(self) -> bool:
        """Whether nobody asked for a certain way to bound hidden neurons."""
        return self.intermediate == "best" and self.sharpen == "none"

    def hidden(self) -> GroupBounds:
        """How the hidden neurons get their bounds."""
        from verifier.bounding.hidden import Sharpened

        base = HIDDEN.build(self.intermediate).within(self.budget // CALLS)
        return base if self.sharpen == "none" else Sharpened(base, self.bounder(self.sharpen))


class Tighten(Options, frozen=True):
    """Bounds of the groups after a split, computed anew in the children."""

    every: Count = 0  # at depths that are a multiple of it; 0: never
    method: str = "best"  # as for `bounding.intermediate`


class Sharpen(Options, frozen=True):
    """Bounds of hidden neurons by propagated cuts, for long searches, which then go on with them, in stages."""

    after: Seconds | None = 0.5  # seconds of search before they are computed; null: never
    share: Share = 0.6  # the part of the time that is left which the first stage may take
    tree_share: Share = 0.25  # the same of the first stage of trees; the next one may take twice as much, and so on
    initial: AscentOptions = AscentOptions(5, 0.3, 0.03)  # without cuts
    cuts: AscentOptions = AscentOptions(4, 0.3, 0.1)
    learn: bool = True  # masks of cuts too
    leaves: tuple[Positive, ...] = (16, 64, 256)  # of each neuron's tree, in the stages after the first one
    nodes: AscentOptions = AscentOptions(6, 0.1, 0.03)  # of these trees


class Mip(Options, frozen=True):
    """Mixed-integer programs, with rounds of Anderson cuts that their relaxation violates by more than `tolerance`."""

    rounds: Count = 0  # of cuts, before the program is solved
    tolerance: Step = 1e-6  # by which a cut must be violated to be added


class Checkpoints(Options, frozen=True):
    """What `--resume` writes down while a search runs."""

    seconds: Seconds = 30.0  # between two checkpoints; more where one takes longer than a hundredth of that
    megabytes: Count = 64  # for variables, which only save time; what cannot be missed takes what it takes


class SearchOptions(Options, frozen=True):
    """Branch and bound."""

    # What is split: signs of ReLUs, or the input box; auto: the box where few inputs move, in a race with signs.
    # mip: neither, HiGHS solves mixed-integer programs, whose answers are claims.
    splitting: Literal["auto", "relus", "inputs", "mip"] = "auto"
    mip: Mip = Mip()
    # From cheap to tight, each with its name as `method`, beside its options; hard subtrees go up.
    tiers: tuple[Options, ...] = msgspec.field(default_factory=lambda: (_default_tier(),))
    # How many times dearer a domain is on each next tier; without it the search measures, and its tree varies.
    cost_ratios: tuple[Step, ...] | None = None
    patience: Count = 0  # domains that a tier leaves open before the one above it is tried
    look: Count = 0  # domains after which the lowest tier is compared with cheaper bounds, on half as many; 0: never
    branching: str | Options = "intercept"  # a name, or with its options as for a tier
    sharpen: Sharpen = Sharpen()
    tighten: Tighten = Tighten()
    batch: Positive = 256  # domains that are bounded together
    fill: Positive = 16  # with fewer domains than this, several levels are split at once
    memory_mb: Positive = 2048  # of waiting domains; beyond it the search goes depth-first
    max_domains: Positive | None = None  # give up after so many, with the bound so far
    max_batches: Positive | None = None  # give up after so many batches
    checkpoint: Checkpoints = Checkpoints()

    def policy(self) -> Policy:
        """How domains are bounded and split."""
        from verifier.search.ladder import Ladder
        from verifier.search.signs.space import Policy
        from verifier.search.signs.tighten import AfterSplit, Never

        steps = len(self.tiers) - 1
        if steps < 0:
            raise ConfigError("at least one tier is needed", "search.tiers")
        if self.cost_ratios is not None and len(self.cost_ratios) != steps:
            raise ConfigError(f"{steps + 1} tier(s) need {steps} ratio(s)", "search.cost_ratios")
        ladder = Ladder(tuple(_built(TIERS, tier) for tier in self.tiers), self.cost_ratios, self.patience, self.look)
        every, method = self.tighten.every, HIDDEN.build(self.tighten.method)
        tightening = AfterSplit(method, every) if every else Never()
        rule = self.branching
        brancher = BRANCHERS.build(rule) if isinstance(rule, str) else _built(BRANCHERS, rule)
        return Policy(ladder, brancher, tightening, self.batch, self.fill)

    def sharpening(self) -> Sharpening | None:
        """How long searches get better bounds of hidden neurons."""
        from verifier.bounding.core.ascent import Ascent
        from verifier.bounding.solvers.propagated import Propagated
        from verifier.bounding.solvers.solver import Certified
        from verifier.search.sharpen import Sharpening, Trees

        options = self.sharpen
        if options.after is None:
            return None
        first = Ascent.of(options.initial, check_every=5)
        then = Ascent.of(options.cuts, check_every=5)
        solver = Propagated.in_rounds(first, then, averaged=max(1, first.iterations // 2))
        solver = solver.learned() if options.learn else solver
        trees = Trees(solver, Ascent.of(options.nodes, check_every=3), options.leaves)
        return Sharpening(Certified(solver), options.after, options.share, options.tree_share, trees=trees)

    def keeping(self) -> Keeping:
        """How checkpoints are made."""
        from verifier.search.saved import Keeping

        return Keeping(self.checkpoint.seconds, self.checkpoint.megabytes * 2**20)

    def mixed_integer(self) -> MixedInteger:
        """The programs of `splitting: mip`."""
        from verifier.bounding.lp.integer import MixedInteger

        return MixedInteger(self.mip.rounds, self.mip.tolerance)

    def limits(self) -> Limits:
        """When a search gives up or turns depth-first."""
        from verifier.search.loop import Limits

        return Limits(self.memory_mb * 2**20, self.max_domains, self.max_batches)


def _section(name: str) -> Any:
    """A section with the defaults of all methods, made when it is asked for: plugins may add some."""

    def made() -> Any:
        return complete()[name]()

    return msgspec.field(default_factory=made)


class Config(Options, frozen=True):
    """All options of a run."""

    falsify: Falsify = _section("falsify")
    bounding: Bounding = _section("bounding")
    search: SearchOptions = _section("search")
    plugins: tuple[str, ...] = ()  # files (.py) or modules that register further methods: docs/extending.md

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Config:
        """The configuration of plain values; what is left out has its default.

        Raises msgspec.ValidationError for an unknown key or a value of the wrong kind.
        """
        for plugin in msgspec.convert({key: plain[key] for key in plain if key == "plugins"}, cls).plugins:
            load_plugin(plugin)
        found = msgspec.convert(plain, config_type())
        return cls(found.falsify, found.bounding, found.search, found.plugins)

    def resolved(self) -> dict[str, Any]:
        """Every option with its value, as plain dictionaries; what only plugins need, if it is used."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if not self.plugins:
            del plain["plugins"]
        if not self.falsify.attacks:
            del plain["falsify"]["attacks"]
        return plain

    def shaping(self) -> dict[str, Any]:
        """What a search that another run continues must have been made with: all but limits and attacks."""
        plain = self.resolved()
        search = {key: value for key, value in plain["search"].items() if key not in UNSHAPING}
        bounding = {key: value for key, value in plain["bounding"].items() if key not in UNSHAPING}
        return {"search": search, "bounding": bounding, "plugins": list(self.plugins)}

    def __reduce__(self) -> tuple[Any, ...]:
        return Config.of, (self.resolved(),)  # the complete structs have no home that pickle could look them up in


# -- the methods that are registered -------------------------------------------------------------------------


def config_type() -> Any:
    """`Config` with the complete sections: what configurations are checked against."""
    return _derived(Config, dict(complete()))


def complete() -> dict[str, type[Options]]:
    """The sections of a configuration with the names and the options of all methods that are registered now."""
    return _complete(*(registry.names() for registry in (BOUNDERS, HIDDEN, BRANCHERS, ATTACKS, TIERS)))


@functools.cache
def _complete(*names: tuple[str, ...]) -> dict[str, type[Options]]:
    bounders, hidden, branchers, attacks, tiers = names
    sections = {name: BOUNDERS.options(name) for name in bounders if BOUNDERS.options(name) is not Options}
    rigorous = ("none", *BOUNDERS.names(without="reference"))
    ways, sharpeners = Literal[hidden], Literal[rigorous]
    rules = Literal[branchers] | _one(BRANCHERS, branchers)
    quick = [(field.name, field.type, field.default) for field in msgspec.structs.fields(ATTACKS.options("quick"))]
    falsify: Any = msgspec.defstruct("Falsify", quick, bases=(Falsify,), frozen=True)
    tighten = _derived(Tighten, {"method": ways})
    return {
        "falsify": _derived(falsify, {"attacks": _many(ATTACKS, attacks)}),
        "bounding": _derived(Bounding, {"intermediate": ways, "sharpen": sharpeners, **sections}),
        "search": _derived(SearchOptions, {"tiers": _many(TIERS, tiers), "branching": rules, "tighten": tighten}),
    }


def _derived(base: type[Options], kinds: dict[str, Any]) -> Any:
    """The struct with fields of these kinds: their defaults are those that they had, or the kind's own."""
    known = {field.name: field for field in msgspec.structs.fields(base)}
    fields = []
    for name, kind in kinds.items():
        if isinstance(kind, type) and issubclass(kind, Options):
            fields.append((name, kind, kind()))
        elif known[name].default is not msgspec.NODEFAULT:
            fields.append((name, kind, known[name].default))
        else:
            fields.append((name, kind, msgspec.field(default_factory=known[name].default_factory)))
    return msgspec.defstruct(base.__name__, fields, bases=(base,), frozen=True)


def _one(registry: Registry[Any], names: tuple[str, ...]) -> Any:
    """A mapping with the name and the options of any of the methods."""
    return functools.reduce(operator.or_, (_tagged(registry, name) for name in names))


def _many(registry: Registry[Any], names: tuple[str, ...]) -> Any:
    kind = _one(registry, names)
    return tuple[kind, ...]  # type: ignore[valid-type]


@functools.cache
def _tagged(registry: Registry[Any], name: str) -> Any:
    """The options of a method with its name as `method`."""
    options = registry.options(name)
    return msgspec.defstruct(f"{registry.kind} {name}", [], bases=(options,), frozen=True, tag_field="method", tag=name)


def _default_tier() -> Options:
    tier: Options = _tagged(TIERS, "propagated")()
    return tier


def _built(registry: Registry[Any], options: Options, *given: object) -> Any:
    """The method that tagged options belong to."""
    return registry.build(str(options.__struct_config__.tag), options, *given)
