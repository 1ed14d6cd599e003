"""Configurations: YAML in, frozen objects out.

A configuration is a preset (a file of `configs/`) or a YAML file, plus overrides.  What a file leaves out has the
default that stands here.  An unknown key or a value of the wrong kind is an error that names the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from verifier.errors import ConfigError, InputError

if TYPE_CHECKING:  # building a method imports torch; reading a configuration does not
    from verifier.bounding import active_set
    from verifier.bounding.ascent import Ascent
    from verifier.bounding.base import Bounder
    from verifier.bounding.intermediate import GroupBounds

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Effort = Annotated[float, Meta(gt=0)]
Step = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Start = Literal["linear", "zero"]  # the multipliers of the CROWN bound, or the paper's zeros


class Falsify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The search for counterexamples by gradients."""

    enabled: bool = True
    samples: Count = 1024  # points of each box that are tried first
    restarts: Positive = 64  # starting points of the descents, per clause
    steps: Positive = 40  # steps of each descent
    effort: Effort = 0.15  # the work of one attack, in seconds of a nominal core
    seconds: Seconds = 10.0  # the most that one attack may take


class AlphaCrown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slopes of the propagated Planet dual."""

    iterations: Count = 100
    first_step: Step = 0.2
    last_step: Step = 0.01


class BigM(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dual of the Big-M relaxation; the paper's values for incomplete verification."""

    iterations: Count = 850
    first_step: Step = 1e-2
    last_step: Step = 1e-4
    start: Start = "linear"


class Initial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Big-M ascent that comes before masks: as above, but shorter."""

    iterations: Count = 500
    first_step: Step = 1e-2
    last_step: Step = 1e-4
    start: Start = "linear"


class Additions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When masks are added to an active set: `count` of them every `every` iterations, up to `most`."""

    every: Positive = 450
    count: Count = 2
    most: Count = 7


class ActiveSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dual of the Anderson relaxation with a few masks."""

    iterations: Count = 600
    first_step: Step = 1e-3
    last_step: Step = 1e-6
    initial: Initial = Initial()
    additions: Additions = Additions()
    masks: Literal["rows", "shared"] = "rows"  # one bit per weight, or one threshold per group
    point: Literal["minimiser", "average"] = "minimiser"  # where the oracle is asked
    threshold: Share = 0.5  # of shared masks


class PrimalStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The descent that finds the primal start of Saddle Point."""

    iterations: Count = 100
    first_step: Step = 1e-2
    last_step: Step = 1e-5


class SaddlePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Frank-Wolfe with all masks, after Big-M; steps 1 / (t + offset)."""

    iterations: Count = 1000
    offset: Positive = 10
    initial: Initial = Initial()
    primal_start: PrimalStart = PrimalStart()


class AsSp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Saddle Point after Active Set."""

    iterations: Count = 3000
    offset: Positive = 10
    initial: ActiveSet = ActiveSet()
    primal_start: PrimalStart = PrimalStart()


class LpCuts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Linear programs with rounds of cuts that are violated by more than `tolerance`."""

    rounds: Count = 1
    tolerance: Step = 1e-6


class Bounding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lower bounds over relaxations."""

    # How the bounds of the hidden neurons are found; best: of interval and crown, paper: of interval and wong_kolter.
    intermediate: Literal["best", "crown", "interval", "wong_kolter", "paper"] = "best"
    # The method that then bounds hidden neurons which are still ambiguous.
    sharpen: Literal["none", "crown", "wong_kolter", "alpha_crown", "big_m", "active_set"] = "none"
    batch: Positive = 256  # boxes that are bounded together, at most
    alpha_crown: AlphaCrown = AlphaCrown()
    big_m: BigM = BigM()
    active_set: ActiveSet = ActiveSet()
    saddle_point: SaddlePoint = SaddlePoint()
    as_sp: AsSp = AsSp()
    lp_cuts: LpCuts = LpCuts()


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Branch and bound over the signs of ReLUs."""

    root_iterations: Count = 60  # of the ascent on the whole box
    iterations: Positive = 20  # of the ascent on each domain, from its parent's variables
    batch: Positive = 256  # domains that are bounded together
    memory_mb: Positive = 2048  # of waiting domains; beyond it the search goes depth-first
    max_domains: Positive | None = None  # give up after so many, with the bound so far


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All options of a run."""

    falsify: Falsify = Falsify()
    bounding: Bounding = Bounding()
    search: Search = Search()

    def resolved(self) -> dict[str, Any]:
        """Every option with its value, as plain dictionaries."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def load_config(source: str | PathLike[str] | Config = "auto", overrides: Iterable[str] = ()) -> Config:
    """The configuration of a preset's name or of a YAML file, after `a.b=value` overrides.

    Guarantees: a Config whose every key is known and every value of the right kind; else ConfigError.
    """
    if isinstance(source, Config):
        plain, path = source.resolved(), None
    else:
        path = _locate(source)
        plain = _read(path)
        _check_keys(plain, Config, "", path)
    for assignment in overrides:
        _override(plain, assignment)
        _check_keys(plain, Config, "", None)
    return _convert(plain, path)


METHODS = tuple("interval crown wong_kolter alpha_crown big_m active_set saddle_point as_sp lp lp_cuts".split())
"""The bounding methods by name."""

_COUNTS = dict.fromkeys(("alpha_crown", "big_m", "active_set", "saddle_point", "as_sp"), "iterations")
_COUNTS["lp_cuts"] = "rounds"


def iteration_overrides(methods: Iterable[str], count: int) -> list[str]:
    """Overrides of the number of (main) iterations, for those of the methods that have one."""
    overrides = [f"bounding.{name}.{_COUNTS[name]}={count}" for name in methods if name in _COUNTS]
    if not overrides:
        raise InputError(f"only iterative methods take a number of iterations: {', '.join(_COUNTS)}")
    return overrides


def build_bounder(method: str, options: Bounding) -> Bounder:
    """The bounding method of that name.  Guarantee: in float64 its bounds are rigorous, but for linear programs."""
    from verifier.bounding import alpha_crown, big_m, interval, linear, lp
    from verifier.bounding.certified import Certified

    if method not in METHODS:
        raise InputError(f"there is no method '{method}'; the methods are {', '.join(METHODS)}")
    if method == "alpha_crown":
        return Certified(alpha_crown.AlphaCrown(_ascent(options.alpha_crown)))
    if method == "big_m":
        return Certified(big_m.BigM(_ascent(options.big_m), big_m.Start(options.big_m.start)))
    if method == "lp_cuts":
        return lp.CutLP(options.lp_cuts.rounds, options.lp_cuts.tolerance)
    if method in ("active_set", "saddle_point", "as_sp"):
        return Certified(_with_masks(method, options))
    fixed = {"interval": interval.Interval(), "lp": lp.PlanetLP()}
    return fixed[method] if method in fixed else linear.Linear(linear.Slope(method))


def build_intermediate(options: Bounding) -> GroupBounds:
    """How the hidden neurons get their bounds."""
    from verifier.bounding.intermediate import Intermediate, RootBounds, Sharpened

    base = RootBounds(Intermediate(options.intermediate))
    return base if options.sharpen == "none" else Sharpened(base, build_bounder(options.sharpen, options))


def _with_masks(method: str, options: Bounding) -> Bounder:
    from verifier.bounding import saddle_point

    if method == "active_set":
        return _active_set(options.active_set)
    if method == "as_sp":
        return saddle_point.SaddlePoint(*_saddle(options.as_sp, options.as_sp.initial))
    no_masks = ActiveSet(iterations=0, initial=options.saddle_point.initial, additions=Additions(most=0))
    return saddle_point.SaddlePoint(*_saddle(options.saddle_point, no_masks))


def _saddle(options: SaddlePoint | AsSp, initial: ActiveSet) -> tuple[int, int, active_set.ActiveSet, Ascent]:
    return options.iterations, options.offset, _active_set(initial), _ascent(options.primal_start)


def _active_set(options: ActiveSet) -> active_set.ActiveSet:
    from verifier.bounding import active_set, big_m, oracle

    return active_set.ActiveSet(
        _ascent(options),
        _ascent(options.initial),
        active_set.Additions(options.additions.every, options.additions.count, options.additions.most),
        big_m.Start(options.initial.start),
        oracle.Masks(options.masks),
        active_set.OraclePoint(options.point),
        options.threshold,
    )


def _ascent(options: AlphaCrown | BigM | Initial | ActiveSet | PrimalStart) -> Ascent:
    from verifier.bounding import ascent

    linear = not isinstance(options, AlphaCrown)
    return ascent.Ascent(options.iterations, ascent.Steps(options.first_step, options.last_step, linear))


def presets() -> tuple[str, ...]:
    """The names that `--config` knows."""
    folder = _folder()
    return tuple(sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml")))


def _folder() -> Path:
    """`configs/` inside an installed package, or beside the package in a clone."""
    here = Path(__file__).resolve().parent
    packaged = here / "configs"
    return packaged if packaged.is_dir() else here.parent / "configs"


def _locate(source: str | PathLike[str]) -> Path:
    name = str(source)
    preset = _folder() / f"{name}.yaml"
    if name in presets():
        return preset
    path = Path(source)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    raise ConfigError("there is no such preset or file", name, presets())


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but with 1e-3 as a number: PyYAML wants a dot in it and gives a string."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _read(path: Path) -> dict[Any, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise InputError(f"the configuration cannot be read: {why}", path) from error
    plain = _parse(text, path)
    if plain is None:
        return {}
    if not isinstance(plain, dict):
        raise InputError("a configuration must be a YAML mapping", path)
    return plain


def _parse(text: str, path: Path | None) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise InputError(f"not valid YAML: {getattr(error, 'problem', None) or error}", path, line) from error


def _override(plain: dict[Any, Any], assignment: str) -> None:
    """Sets one key in place."""
    key, equals, text = assignment.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {assignment}: an override has the form a.b=value")
    *parents, last = parts
    for i, parent in enumerate(parents):
        below = plain.setdefault(parent, {})
        if not isinstance(below, dict):
            raise ConfigError("is a value, not a section", ".".join(parents[: i + 1]))
        plain = below
    plain[last] = _parse(text, None)


def _check_keys(plain: Mapping[Any, Any], struct: type[msgspec.Struct], prefix: str, path: Path | None) -> None:
    """Raises ConfigError for the first key that the struct does not know."""
    fields = {f.name: f.type for f in msgspec.structs.fields(struct)}
    for key, value in plain.items():
        if key not in fields:
            raise ConfigError("there is no such option", f"{prefix}{key}", fields, path)
        kind = fields[key]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, Mapping):
            _check_keys(value, kind, f"{prefix}{key}.", path)


def _convert(plain: dict[Any, Any], path: Path | None) -> Config:
    try:
        return msgspec.convert(plain, Config)
    except msgspec.ValidationError as error:
        # msgspec writes: Expected `int`, got `str` - at `$.falsify.steps`
        what, _, where = str(error).partition(" - at ")
        key = where.strip("`").removeprefix("$").removeprefix(".") or "the configuration"
        raise ConfigError(what[:1].lower() + what[1:].replace("`", "'"), key, path=path) from error
