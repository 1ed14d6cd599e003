"""Configurations: YAML in, frozen objects out.

A configuration is a preset (a file of `configs/`) or a YAML file, plus overrides.  What a file leaves out has the
default that stands in `options`, or in the file of a method.  An unknown key or a value of the wrong kind is an error
that names the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import yaml

from verifier.arguments import path_name
from verifier.bounding import BOUNDERS
from verifier.config.options import Config, complete, config_type
from verifier.errors import ConfigError, InputError
from verifier.registry import load_plugin


def load_config(source: str | PathLike[str] | Config = "auto", overrides: Iterable[str] = ()) -> Config:
    """The configuration of a preset's name or of a YAML file, after `a.b=value` overrides.

    Guarantees: a Config whose every key is known and every value of the right kind; else ConfigError.
    """
    if isinstance(source, Config):
        plain, path = _plain(source), None
    else:
        path = _locate(path_name(source, "the name of a preset, a YAML file or a Config"))
        plain = _read(path)
        _plug_in(plain, path.parent)
        _check_keys(plain, path)
    for assignment in overrides:
        _override(plain, assignment)
        _plug_in(plain, Path())
        _check_keys(plain, None)
    return _convert(plain, path)


def schema() -> dict[str, Any]:
    """The JSON schema of configurations, with all methods that are registered now: for editors of YAML files."""
    return msgspec.json.schema(config_type())


def iteration_overrides(methods: Iterable[str], count: int) -> list[str]:
    """Overrides of the number of (main) iterations, for those of the methods that have one."""
    counts: dict[str, str] = {}
    for word in ("rounds", "iterations"):
        counts |= {name: word for name in BOUNDERS.names() if word in BOUNDERS.options(name).__struct_fields__}
    overrides = [f"bounding.{name}.{counts[name]}={count}" for name in methods if name in counts]
    if not overrides:
        raise InputError(f"only iterative methods take a number of iterations: {', '.join(sorted(counts))}")
    return overrides


def _plain(source: Config) -> dict[Any, Any]:
    """The options of a Config; what it was built with may be of any kind, but nothing else than plain values counts."""
    try:
        return source.resolved()
    except (TypeError, ValueError) as error:  # msgspec does not know the type
        raise InputError(f"the configuration holds a value of the wrong kind: {error}") from error


def presets() -> tuple[str, ...]:
    """The names that `--config` knows."""
    folder = _folder()
    return tuple(sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml")))


def _folder() -> Path:
    """`configs/` inside an installed package, or beside the package in a clone."""
    here = Path(__file__).resolve().parent.parent
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


def _plug_in(plain: dict[Any, Any], folder: Path) -> None:
    """Loads the plugins: what they register is known from now on.  Files are looked for from the folder."""
    names = plain.get("plugins")
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return  # what else it may be is refused later, as any value of the wrong kind
    plain["plugins"] = [str((folder / name).resolve()) if name.endswith(".py") else name for name in names]
    for name in plain["plugins"]:
        load_plugin(name)


def _check_keys(plain: Mapping[Any, Any], path: Path | None) -> None:
    """Raises ConfigError for the first key that there is no option of."""
    _check_section(plain, {f.name: f.type for f in msgspec.structs.fields(Config)} | complete(), "", path)


def _check_section(plain: Mapping[Any, Any], kinds: Mapping[str, Any], prefix: str, path: Path | None) -> None:
    for key, value in plain.items():
        if key not in kinds:
            raise ConfigError("there is no such option", f"{prefix}{key}", kinds, path)
        kind = kinds[key]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, Mapping):
            inner = {f.name: f.type for f in msgspec.structs.fields(kind)}
            _check_section(value, inner, f"{prefix}{key}.", path)


def _convert(plain: dict[Any, Any], path: Path | None) -> Config:
    try:
        return Config.of(plain)
    except msgspec.ValidationError as error:
        # msgspec writes: Expected `int`, got `str` - at `$.falsify.steps`
        what, _, where = str(error).partition(" - at ")
        key = where.strip("`").removeprefix("$").removeprefix(".") or "the configuration"
        raise ConfigError(what[:1].lower() + what[1:].replace("`", "'"), key, path=path) from error
