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

import ast
import functools
import importlib
import importlib.util
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

    iterations: Count = 60
    first_step: Step = 0.2
    last_step: Step = 0.01


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

    `name` is that of the variable which holds the registry: files are searched for `@NAME.register(...)`.  `packages`
    are the packages or modules that are searched.
    """

    def __init__(self, name: str, kind: str, *packages: str) -> None:
        self.name, self.kind = name, kind
        self._packages = packages
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

    def plugged(self) -> bool:
        """Whether there are methods of plugins."""
        return bool(self._plugged)

    def build(self, name: str, options: object = None, *given: object) -> MethodT:
        """The method with these options, or with its defaults, and what else its kind is given.

        Raises InputError for an unknown name.
        """
        known = self._known(name)
        if name not in self._makers:
            importlib.import_module(known.module)
        maker, struct = self._makers[name]
        if struct is Options:
            return maker(*given)
        # The struct that was read from the file's text and the one that its import has made are two.
        own = struct() if options is None else msgspec.convert(options, struct, from_attributes=True)
        return maker(own, *given)

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
        for module, path in (pair for package in self._packages for pair in _files(package)):
            if f"@{self.name}.register(" not in path.read_text(encoding="utf-8"):
                continue
            for name, known in _declarations(module, path).registered(self.name, module):
                if name in found:
                    raise ValueError(f"{module} and {found[name].module} both register the {self.kind} '{name}'")
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


@dataclass(frozen=True, slots=True, eq=False)
class _Declarations:
    """The option structs of a file, and the calls that decorate its functions and classes."""

    structs: dict[str, Any]
    decorators: list[ast.Call]

    def registered(self, registry: str, module: str) -> Iterator[tuple[str, Declared]]:
        """The methods that the file adds to a registry."""
        for call in self.decorators:
            if ast.unparse(call.func) == f"{registry}.register":
                given = dict(zip(("name", "options", "mark"), call.args, strict=False))
                given |= {str(keyword.arg): keyword.value for keyword in call.keywords}
                options = self.structs[ast.unparse(given["options"])] if "options" in given else Options
                mark = ast.literal_eval(given["mark"]) if "mark" in given else ""
                yield ast.literal_eval(given["name"]), Declared(module, options, mark)


@functools.cache
def _declarations(module: str, path: Path) -> _Declarations:
    """What a file declares, from its text; only the class statements of option structs are run."""
    names: dict[str, Any] = {"__name__": module} | {name: globals()[name] for name in __all__}
    decorators: list[ast.expr] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module not in (None, __name__):
            for name in (alias.name for alias in node.names if alias.name.endswith("Options")):
                [(other, place)] = _files(str(node.module))
                names[name] = _declarations(other, place).structs[name]
        elif isinstance(node, ast.ClassDef) and node.name.endswith("Options"):
            exec(compile(ast.Module([node], []), str(path), "exec", dont_inherit=True), names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            decorators += node.decorator_list
    return _Declarations(names, [call for call in decorators if isinstance(call, ast.Call)])
