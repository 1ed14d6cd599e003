"""All keys of a configuration in words: kind, default, and the comment that stands beside the option in its file."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from verifier.config.options import Config, config_type
from verifier.falsify import ATTACKS

UNIONS = (typing.Union, types.UnionType)


@dataclass(frozen=True, slots=True)
class Key:
    """One option: its dotted name, what it may be, its default as YAML, and one line about it.

    An item of a list has N in its name, and belongs to one method; then `method` names it.
    """

    name: str
    kind: str
    default: str
    text: str
    method: str | None = None


def keys() -> list[Key]:
    """Every key that a YAML file or `--set` may name, with the defaults of a file that says nothing."""
    return list(_keys(config_type(), msgspec.to_builtins(Config()), "", None))


def _keys(struct: Any, defaults: dict[str, Any], prefix: str, method: str | None) -> Iterator[Key]:
    for field in msgspec.structs.fields(struct):
        name, kind, default = f"{prefix}{field.name}", field.type, defaults[field.name]
        if _is_struct(kind):
            yield from _keys(kind, default, f"{name}.", method)
            continue
        yield Key(name, words(kind), yaml_line(default), described(struct, field.name), method)
        for tagged in _items(kind):
            yield from _keys(tagged, msgspec.to_builtins(tagged()), f"{name}.N.", _tag(tagged))


def words(kind: Any) -> str:
    """What values there are of a kind of option."""
    if _is_struct(kind):
        return f"a section of {', '.join(names_of(kind))}"
    if typing.get_origin(kind) is typing.Annotated:
        base, *meta = typing.get_args(kind)
        return _number(base, meta[0])
    if typing.get_origin(kind) is Literal:
        return " | ".join(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        methods = _items(kind)
        return f"list of methods {' | '.join(map(_tag, methods))}" if methods else f"list of ({words(item)})"
    if typing.get_origin(kind) in UNIONS:
        parts = typing.get_args(kind)
        plain = [words(part) for part in parts if part is not type(None) and not _is_struct(part)]
        return ", or ".join(plain + ["null"] * (type(None) in parts))
    return {bool: "true | false", str: "text", int: "whole number", float: "number"}.get(kind, str(kind))


def _number(base: Any, meta: msgspec.Meta) -> str:
    word = "whole number" if base is int else "number"
    if meta.le is not None:
        return f"{word} from {meta.ge} to {meta.le}"
    return f"{word} > {meta.gt}" if meta.gt is not None else f"{word} >= {meta.ge}"


def kind_at(path: Sequence[str], chosen: Any = None) -> Any:
    """The kind of the option at a path of names and numbers, or None if there is none.

    `chosen` is a configuration as plain values, which says which methods its lists have.
    """
    kind: Any = config_type()
    for part in path:
        if typing.get_origin(kind) in UNIONS:  # only a list or a section has something below it
            kind = next((k for k in typing.get_args(kind) if typing.get_origin(k) is tuple), None)
        if _is_struct(kind):
            fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
            if part == "method" and _tag(kind):
                return None
            kind, chosen = fields.get(part), chosen.get(part) if isinstance(chosen, dict) else None
        elif typing.get_origin(kind) is tuple and part.isdigit():
            listed = isinstance(chosen, list | tuple) and int(part) < len(chosen)
            chosen = chosen[int(part)] if listed else None
            kind = _chosen(kind, chosen)
        else:
            return None
    return kind


def _chosen(kind: Any, item: Any) -> Any:
    """The kind of one item of a list: that of its method, if it has one."""
    method = item.get("method") if isinstance(item, dict) else None
    methods = _items(kind)
    return next((tagged for tagged in methods if _tag(tagged) == method), None) if methods else typing.get_args(kind)[0]


def names_of(kind: Any) -> tuple[str, ...]:
    """The keys of a section; none for what is no section."""
    return tuple(field.name for field in msgspec.structs.fields(kind)) if _is_struct(kind) else ()


def methods_of(kind: Any) -> tuple[str, ...]:
    """The methods that a list or an option may name, if they are given as mappings."""
    return tuple(_tag(tagged) for tagged in (_items(kind) or _structs_of(kind)))


def yaml_line(value: Any) -> str:
    """A plain value as YAML on one line."""
    text = yaml.safe_dump(_lists(value), default_flow_style=True, width=10**6, sort_keys=False)
    return str(text).removesuffix("\n").removesuffix("\n...")


def yaml_text(plain: dict[str, Any]) -> str:
    """A configuration as a YAML file."""
    return str(yaml.safe_dump(_lists(plain), sort_keys=False, default_flow_style=None, width=100))


def _lists(value: Any) -> Any:
    """The same with lists in the place of tuples, which YAML does not know."""
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _items(kind: Any) -> tuple[Any, ...]:
    """The structs of the methods that a list may hold."""
    return _structs_of(typing.get_args(kind)[0]) if typing.get_origin(kind) is tuple else ()


def _structs_of(kind: Any) -> tuple[Any, ...]:
    parts = typing.get_args(kind) if typing.get_origin(kind) in UNIONS else (kind,)
    return tuple(part for part in parts if _is_struct(part))


def _tag(struct: Any) -> str:
    return str(struct.__struct_config__.tag or "")


# -- the comments beside the options -------------------------------------------------------------------------


def described(struct: Any, name: str) -> str:
    """The comment beside an option where it is declared, or above it; else that of a struct which it comes from."""
    for base in (*struct.__mro__, ATTACKS.options("quick")):  # whose options stand in the section `falsify`
        text = _comments(base.__module__).get((base.__name__, name))
        if text:
            return text
    return ""


@functools.cache
def _comments(module: str) -> dict[tuple[str, str], str]:
    """The comments of all fields in a file, by class and name."""
    found: dict[tuple[str, str], str] = {}
    owner, above = "", []
    for line in _source(module).splitlines():
        if opened := re.match(r"class (\w+)\(", line):
            owner = opened.group(1)
        elif comment := re.fullmatch(r"    # (.*)", line):
            above.append(comment.group(1))
            continue
        elif field := re.match(r"    (\w+): .*?(?:  # (.*))?$", line):
            found[owner, field.group(1)] = " ".join([*above, field.group(2) or ""]).strip()
        above = []
    return found


def _source(module: str) -> str:
    loaded = sys.modules.get(module)
    spec = None if loaded is not None else importlib.util.find_spec(module)
    path = getattr(loaded, "__file__", None) if loaded is not None else None if spec is None else spec.origin
    return Path(path).read_text(encoding="utf-8") if path and path.endswith(".py") else ""
