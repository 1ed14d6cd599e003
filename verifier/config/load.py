"""Configurations: YAML in, frozen objects out.

A configuration is a preset (a file of `configs/`) or a YAML file, plus overrides.  What a file leaves out is as in the
preset or file that it `extends`; else it has the default that stands in `options`, or in the file of a method.  An
unknown key or a value of the wrong kind is an error that names the key, the file or override that holds it, and what is
valid.
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
from verifier.config.describe import kind_at, methods_of, names_of, words
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
        path = _locate(path_name(source, "the name of a preset, a YAML file or a Config"), Path())
        plain = _written(path)
    config = _convert(plain, path)
    for assignment in overrides:
        flag = f"--set {assignment}"
        try:
            _override(plain, assignment)
            _plug_in(plain, Path())
            _check_keys(plain, flag)
        except InputError as error:
            raise error.located(flag)  # noqa: B904 (the same error, with what it is about)
        config = _convert(plain, flag)
    return config


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


def summaries() -> dict[str, str]:
    """What the first line of every preset says about it."""
    folder = _folder()
    first = {name: (folder / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0] for name in presets()}
    return {name: line.removeprefix("#").strip() for name, line in first.items()}


def _locate(name: str, folder: Path) -> Path:
    """A preset by its name, or a file by its path from the folder."""
    preset = _folder() / f"{name}.yaml"
    if name in presets():
        return preset
    path = folder / name
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    raise ConfigError("there is no such preset or file", name, presets())


def _written(path: Path, inner: tuple[Path, ...] = ()) -> dict[Any, Any]:
    """What stands in a file, on top of what it extends; `inner` are the files that extend this one."""
    plain = _read(path)
    base = plain.pop("extends", None)
    _plug_in(plain, path.parent)
    _check_keys(plain, path)
    if base is None:
        return plain
    if not isinstance(base, str):
        raise ConfigError("the name of a preset or a YAML file is expected", "extends", path=path)
    try:
        below = _locate(base, path.parent)
        if below.resolve() in [file.resolve() for file in (*inner, path)]:
            raise ConfigError(f"'{base}' extends this file in turn", "extends")
    except ConfigError as error:
        raise error.located(path)  # noqa: B904 (the same error, with its file)
    first = _written(below, (*inner, path))
    _convert(first, below)  # what is wrong in it is not this file's fault
    plugins = [*first.get("plugins", ()), *plain.get("plugins", ())]
    return _merged(first, plain) | ({"plugins": plugins} if plugins else {})


def _merged(first: dict[Any, Any], then: Mapping[Any, Any]) -> dict[Any, Any]:
    """Sections are put together, key by key; of all else, lists too, the later one counts."""
    both = dict(first)
    for key, value in then.items():
        known = both.get(key)
        both[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return both


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
    """Sets one key in place; numbers count the items of lists."""
    key, equals, text = assignment.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {assignment}: an override has the form a.b=value")
    value = _parse(text, None)
    _write_out(plain, parts)
    *parents, last = parts
    here: Any = plain
    for i, parent in enumerate(parents):
        here = here[_place(here, parent, parts[:i])] if isinstance(here, list) else here.setdefault(parent, {})
        if not isinstance(here, dict | list):
            raise ConfigError("is a value, not a section", ".".join(parents[: i + 1]))
    if isinstance(here, list):
        here[_place(here, last, parents)] = value
    else:
        if last == "method" and here.get("method") != value:
            here.clear()  # another method has other options
        here[last] = value


def _write_out(plain: dict[Any, Any], parts: list[str]) -> None:
    """The list that a number among the parts points into stands in `plain` afterwards, with all its defaults."""
    first = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    if not first:
        return
    whole: Any = _convert(plain, None)
    for part in parts[:first]:
        whole = getattr(whole, part, None)
    if not isinstance(whole, tuple):
        return
    for part in parts[: first - 1]:
        plain = plain.setdefault(part, {})
    plain[parts[first - 1]] = msgspec.json.decode(msgspec.json.encode(whole))


def _place(items: list[Any], part: str, above: list[str]) -> int:
    """The place in a list that a part of a key stands for."""
    if part.isdigit() and int(part) < len(items):
        return int(part)
    there = f"there are {len(items)}: 0 to {len(items) - 1}" if items else "there are none"
    raise ConfigError(f"an item is given by its number, and {there}", ".".join([*above, part]))


def _plug_in(plain: dict[Any, Any], folder: Path) -> None:
    """Loads the plugins: what they register is known from now on.  Files are looked for from the folder."""
    names = plain.get("plugins")
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return  # what else it may be is refused later, as any value of the wrong kind
    plain["plugins"] = [str((folder / name).resolve()) if name.endswith(".py") else name for name in names]
    for name in plain["plugins"]:
        load_plugin(name)


def _check_keys(plain: Mapping[Any, Any], path: Path | str) -> None:
    """Raises ConfigError for the first key that there is no option of."""
    _check_section(plain, {f.name: f.type for f in msgspec.structs.fields(Config)} | complete(), "", path)


def _check_section(plain: Mapping[Any, Any], kinds: Mapping[str, Any], prefix: str, path: Path | str) -> None:
    for key, value in plain.items():
        if key not in kinds:
            raise ConfigError("there is no such option", f"{prefix}{key}", kinds, path)
        kind = kinds[key]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, Mapping):
            inner = {f.name: f.type for f in msgspec.structs.fields(kind)}
            _check_section(value, inner, f"{prefix}{key}.", path)


def _convert(plain: dict[Any, Any], path: Path | str | None) -> Config:
    try:
        return Config.of(plain)
    except msgspec.ValidationError as error:
        raise _explained(str(error), plain, path) from error


def _explained(said: str, plain: dict[Any, Any], path: Path | str | None) -> ConfigError:
    """What msgspec says, in our words: Expected `int`, got `str` - at `$.falsify.steps`."""
    what, _, where = said.partition(" - at ")
    key = where.strip("`").removeprefix("$").removeprefix(".") or "the configuration"
    parts = [part for part in re.split(r"[.\[\]]+", key) if part]
    kind = kind_at(parts, plain)
    if unknown := re.search(r"unknown field `(.*)`", what):
        return ConfigError("there is no such option", f"{key}.{unknown.group(1)}", names_of(kind), path)
    if parts[-1] == "method" and (methods := methods_of(kind_at([p for p in parts[:-1] if not p.isdigit()]))):
        return ConfigError("there is no such method", key, methods, path)
    valid = "" if kind is None else f"; valid: {words(kind)}"
    return ConfigError(f"{what[:1].lower()}{what[1:]}".replace("`", "'") + valid, key, path=path)
