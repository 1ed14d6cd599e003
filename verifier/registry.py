"""Methods by name: which there are, what options they take, and how they are built.

A method is one file.  It declares its options, in a struct whose name ends in `Options`, and registers what builds it:

    class BigMOptions(AscentOptions, frozen=True):
        iterations: Count = 850

    @BOUNDERS.register("big_m", BigMOptions)
    def big_m(options: BigMOptions) -> Bounder: ...

Methods need torch, which takes seconds to load, and a configuration is read in milliseconds.  So a registry reads the
declarations (names and option structs) from the text of its files, and imports a file only when one of its methods is
built.  A plugin registers by being imported, as any file does.

requires: option structs use names of this module and of `typing`, and option structs of other files; nothing else
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from verifier.errors import InputError

__all__ = [
    "AscentOptions",
    "Count",
    "Literal",
    "Options",
    "Positive",
    "Registry",
    "Seconds",
    "Share",
    "Step",
    "import_rules",
    "load_plugin",
]

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Step = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a method, with their defaults: `configs/` and `--set` change them."""


class AscentOptions(Options, frozen=True):
    """An ascent: the number of its iterations, and steps that fall from the first to the last."""

    iterations: Count = 60  # steps of the ascent
    first_step: Step = 0.2  # the size of the first one
    last_step: Step = 0.01  # the size of the last one


@dataclass(frozen=True, slots=True)
class Declared:
    """What is known of a method before it is imported."""

    module: str
    options: type[Options]
    mark: str = ""  # what sets it apart from the others of its kind


MethodT = TypeVar("MethodT")
Maker = TypeVar("Maker", bound=Callable[..., Any])


class Registry(Generic[MethodT]):
    """The methods of one kind.

    `name` is that of the variable which holds the registry: files are searched for `@NAME.register(...)`.  `package`
    is the one that is searched.
    """

    def __init__(self, name: str, kind: str, package: str) -> None:
        self.name, self.kind = name, kind
        self._package = package
        self._plugged: dict[str, Declared] = {}
        self._makers: dict[str, tuple[Callable[..., MethodT], type[Options]]] = {}

    def register(self, name: str, options: type[Options] = Options, mark: str = "") -> Callable[[Maker], Maker]:
        """Decorates what builds the method: a class or function of its options, if it has any."""

        def keep(maker: Maker) -> Maker:
            module = maker.__module__
            known = self._found().get(name)
            if known is None:
                self._plugged[name] = Declared(module, options, mark)
            elif known.module != module:
                raise InputError(f"there is a {self.kind} '{name}' already, in {known.module}")
            self._makers[name] = maker, options
            return maker

        return keep

    def names(self, without: str | None = None) -> tuple[str, ...]:
        """All methods, or those without that mark; nothing is imported."""
        return tuple(sorted(name for name, known in self._found().items() if without is None or known.mark != without))

    def options(self, name: str) -> type[Options]:
        """The struct of a method's options; nothing is imported."""
        return self._known(name).options

    def build(self, name: str, options: object = None, *given: object) -> MethodT:
        """The method with these options, or with its defaults, and what else its kind is given.

        Raises InputError for an unknown name.
        """
        known = self._known(name)
        if name not in self._makers:
            importlib.import_module(known.module)
        maker, struct = self._makers[name]
        # The struct that was read from the file's text and the one that its import has made are two.
        own = struct() if options is None else msgspec.convert(options, struct, from_attributes=True)
        return maker(*given) if struct is Options else maker(own, *given)

    def _known(self, name: str) -> Declared:
        found = self._found()
        if name not in found:
            raise InputError(f"there is no {self.kind} '{name}'; the {self.kind}s are {', '.join(self.names())}")
        return found[name]

    def _found(self) -> dict[str, Declared]:
        return {**self._in_files, **self._plugged}

    @functools.cached_property
    def _in_files(self) -> dict[str, Declared]:
        """The methods of the searched files."""
        found: dict[str, Declared] = {}
        for registry, name, known in _methods(self._package):
            if registry != self.name:
                continue
            if name in found:
                raise ValueError(f"{known.module} and {found[name].module} both register the {self.kind} '{name}'")
            found[name] = known
        return found


def load_plugin(source: str) -> None:
    """Imports a module by its dotted name, or a file by its path, which ends in .py; each file once."""
    try:
        if not source.endswith(".py"):
            importlib.import_module(source)
            return
        path = Path(source).resolve()
        name = f"{path.stem}@{path.parent}"  # no other module has such a name
        spec = importlib.util.spec_from_file_location(name, path)
        if name in sys.modules or spec is None or spec.loader is None:
            return
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    except InputError as error:
        raise error.located(source) from error
    except (Exception, SystemExit) as error:  # of any kind: it is a program of a user
        raise InputError(f"the plugin cannot be loaded: {type(error).__name__}: {error}", source) from error


def import_rules(package: str, decorator: str) -> None:
    """Imports the files of a package that use this decorator, which registers what it decorates."""
    for module, path in _files(package):
        if f"\n@{decorator}(" in path.read_text(encoding="utf-8"):
            importlib.import_module(module)


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """The modules of a package, or the one module, and where they are."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(package)
    if spec.submodule_search_locations is None:
        yield package, Path(spec.origin)
        return
    top = Path(spec.origin).parent
    for path in sorted(top.rglob("*.py")):
        inner = path.relative_to(top).with_suffix("").parts
        yield ".".join((package, *(part for part in inner if part != "__init__"))), path


# The statements of a file that declare something: each begins in the first column and ends before the next one.
_STATEMENT = re.compile(
    r"^(?:from verifier\S+ import|class \w+Options\(|@[A-Z]+\.register\().*?(?=^[^\s)])", re.M | re.S
)


@functools.cache
def _methods(package: str) -> tuple[tuple[str, str, Declared], ...]:
    """All methods that the files of a package register: the registry, the name, the rest."""
    found: list[tuple[str, str, Declared]] = []
    for module, path in _files(package):
        text = path.read_text(encoding="utf-8")
        if ".register(" not in text:
            continue
        names = _structs(module, text)
        for statement in _STATEMENT.findall(text):
            if statement.startswith("@"):
                registry = statement[1:].partition(".")[0]
                name, known = eval(statement[1:], {**names, registry: _Noted(module)})
                found.append((registry, name, known))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Noted:
    """Stands for a registry while the decorators of a module are read."""

    module: str

    def register(self, name: str, options: type[Options] = Options, mark: str = "") -> tuple[str, Declared]:
        return name, Declared(self.module, options, mark)


@functools.cache
def _structs(module: str, text: str) -> dict[str, Any]:
    """The option structs of a file, made from its text; nothing else of it is run."""
    names: dict[str, Any] = {"__name__": module} | {name: globals()[name] for name in __all__}
    for statement in _STATEMENT.findall(text):
        if statement.startswith("class"):
            exec(compile(statement, module, "exec", dont_inherit=True), names)
        elif statement.startswith("from"):
            for name in {*re.findall(r"\w+Options\b", statement)} - {*names}:
                [(source, path)] = _files(statement.split()[1])
                names[name] = _structs(source, path.read_text(encoding="utf-8"))[name]
    return names
