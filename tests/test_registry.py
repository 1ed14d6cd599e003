"""Methods by name: what the text of a file declares is what its import registers."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from verifier.bounding import BOUNDERS, HIDDEN
from verifier.branching import BRANCHERS
from verifier.errors import InputError
from verifier.falsify import ATTACKS
from verifier.registry import Options, Registry, load_plugin
from verifier.search import TIERS

REGISTRIES = (BOUNDERS, HIDDEN, BRANCHERS, ATTACKS, TIERS)

METHOD = """
from verifier.registry import AscentOptions, Count, Literal, Options, Registry
import torch

KINDS = Registry("KINDS", "kind", "toys")
heavy = torch.zeros(1)

class InnerOptions(AscentOptions, frozen=True):
    iterations: Count = 7

class FirstOptions(Options, frozen=True):
    inner: InnerOptions = InnerOptions()
    word: Literal["a", "b"] = "a"
    some: tuple[Count | None, ...] = (1,)

@KINDS.register("first", FirstOptions)
def first(options: FirstOptions, more: int = 0) -> tuple[FirstOptions, int]:
    return options, more

@KINDS.register("second", mark="rough")
class Second:
    pass
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[object]:
    """A package of two methods."""
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "__init__.py").write_text("")
    (tmp_path / "toys" / "methods.py").write_text(METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("toys", "toys.methods"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Registry("KINDS", "kind", "toys")


def test_declarations_are_read_without_an_import(toys: Registry[object]) -> None:
    assert toys.names() == ("first", "second")
    assert toys.names(without="rough") == ("first",)
    assert msgspec.to_builtins(toys.options("first")()) == {
        "inner": {"iterations": 7, "first_step": 0.2, "last_step": 0.01},
        "word": "a",
        "some": (1,),
    }
    assert toys.options("second") is Options
    assert "toys.methods" not in sys.modules


def test_a_method_gets_the_struct_of_its_own_file(toys: Registry[object]) -> None:
    read = msgspec.convert({"inner": {"iterations": 3}, "word": "b"}, toys.options("first"))
    module = importlib.import_module("toys.methods")
    own, more = module.KINDS.build("first", read, 5)
    assert own == module.FirstOptions(module.InnerOptions(iterations=3), "b")
    assert more == 5
    assert module.KINDS.build("first") == (module.FirstOptions(), 0)
    assert isinstance(module.KINDS.build("second"), module.Second)


def test_an_unknown_name_is_refused_with_all_that_are_known(toys: Registry[object]) -> None:
    for ask in (toys.options, toys.build):
        assert isinstance(ask, Callable)
        with pytest.raises(InputError, match="there is no kind 'third'; the kinds are first, second"):
            ask("third")


def test_a_name_is_given_once(toys: Registry[object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is a kind 'first' already, in toys\.methods"):
        toys.register("first")(Options)
    toys.register("third")(Options)
    assert toys.names() == ("first", "second", "third")
    (tmp_path / "twins").mkdir()
    for file in ("__init__.py", "again.py"):
        (tmp_path / "twins" / file).write_text('@KINDS.register("first")\ndef again(): ...\n')
    with pytest.raises(ValueError, match=r"twins\.again and twins both register the kind 'first'"):
        Registry("KINDS", "kind", "twins").names()


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.name)
def test_what_is_read_is_what_is_imported(registry: Registry[object]) -> None:
    for name in registry.names():
        registry.build(name)
        read, imported = registry.options(name), registry._makers[name][1]
        assert read.__name__ == imported.__name__
        assert msgspec.json.schema(read) == msgspec.json.schema(imported)
        assert msgspec.to_builtins(read()) == msgspec.to_builtins(imported())


def test_no_name_needs_torch() -> None:
    script = "\n".join(
        [
            "import sys",
            *(f"from verifier.{part} import {names}" for part, names in _HOMES.items()),
            *(f"{r.name}.names(), [{r.name}.options(n) for n in {r.name}.names()]" for r in REGISTRIES),
            "print('torch' in sys.modules)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


_HOMES = {"bounding": "BOUNDERS, HIDDEN", "branching": "BRANCHERS", "falsify": "ATTACKS", "search": "TIERS"}


def test_a_plugin_is_a_file_or_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "noting.py").write_text("import builtins\nbuiltins.noted.append(__name__)\n")
    noted: list[str] = []
    monkeypatch.setattr("builtins.noted", noted, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for source in (str(tmp_path / "noting.py"), str(tmp_path / "." / "noting.py"), "noting", "noting"):
        load_plugin(source)
    assert noted == [f"noting@{tmp_path.resolve()}", "noting"]


@pytest.mark.parametrize("text", [None, "1 / 0\n", "def f(:\n", "raise SystemExit\n"])
def test_a_plugin_that_fails_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "bad.py"
    if text is not None:
        path.write_text(text)
    for _ in range(2):  # a failure is not forgotten
        with pytest.raises(InputError, match="the plugin cannot be loaded") as caught:
            load_plugin(str(path))
        assert caught.value.path == str(path)
    with pytest.raises(InputError, match="the plugin cannot be loaded: ModuleNotFoundError"):
        load_plugin("no.such.module")
