"""Configurations: presets, overrides, and errors that name the key."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from verifier.config import Config, load_config, presets
from verifier.errors import ConfigError, InputError


def options(struct: type[msgspec.Struct]) -> list[str]:
    """The names of all options below a struct, sections left out."""
    names = []
    for field in msgspec.structs.fields(struct):
        nested = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        names += options(field.type) if nested else [field.name]
    return names


def test_every_preset_loads(root: Path) -> None:
    names = presets()
    assert "auto" in names
    assert len(names) == len(list((root / "configs").rglob("*.yaml")))
    for name in names:
        assert load_config(name).resolved().keys() == {f.name for f in msgspec.structs.fields(Config)}


def test_every_option_is_read_by_somebody(root: Path) -> None:
    read = set()
    for path in (root / "verifier").rglob("*.py"):
        if path.name != "config.py":
            tree = ast.parse(path.read_text())
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert [name for name in options(Config) if name not in read] == []


def test_a_file_overrides_the_defaults_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("falsify: {steps: 7}\n")
    config = load_config(path)
    assert config.falsify.steps == 7
    assert config.bounding == Config().bounding


def test_an_empty_file_is_the_default_configuration(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert load_config(tmp_path / "empty.yaml") == Config()


def test_overrides_are_typed_and_the_last_one_wins() -> None:
    config = load_config(
        "auto", ["falsify.steps=1", "falsify.steps=2", "falsify.seconds=1e-1", "falsify.enabled=false"]
    )
    assert config.falsify.steps == 2
    assert config.falsify.seconds == 0.1
    assert config.falsify.enabled is False
    assert config.resolved()["falsify"]["seconds"] == 0.1


@pytest.mark.parametrize(
    ("override", "key", "nearest"),
    [
        ("falsify.stepz=1", "falsify.stepz", "steps"),
        ("falsfy.steps=1", "falsfy", "falsify"),
        ("bounding.intermedate=best", "bounding.intermedate", "intermediate"),
    ],
)
def test_an_unknown_key_names_itself_and_the_nearest(override: str, key: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("auto", [override])
    assert (caught.value.key, caught.value.nearest) == (key, nearest)
    assert key in str(caught.value)
    assert nearest in str(caught.value)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("falsify.steps=many", "falsify.steps"),
        ("falsify.steps=-1", "falsify.steps"),
        ("falsify.steps=1.5", "falsify.steps"),
        ("falsify.enabled=1", "falsify.enabled"),
        ("bounding.intermediate=planet", "bounding.intermediate"),
        ("falsify=3", "falsify"),
        ("falsify.steps.more=3", "falsify.steps"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_key(override: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("auto", [override])
    assert caught.value.key == key
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("outo")
    assert caught.value.nearest == "auto"


@pytest.mark.parametrize("assignment", ["", "falsify.steps", "=3", "falsify..steps=3", "falsify.steps=[1"])
def test_a_malformed_override_is_an_error(assignment: str) -> None:
    with pytest.raises(InputError):
        load_config("auto", [assignment])


@pytest.mark.parametrize(
    ("text", "line"), [("- 1\n- 2\n", None), ("falsify:\n  steps: [1\n", 3), ("1: {}\n", None), ("\x00", None)]
)
def test_a_malformed_file_is_an_error_that_names_it(tmp_path: Path, text: str, line: int | None) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert caught.value.path == str(path)
    assert caught.value.line == line


def test_missing_and_unreadable_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "binary.yaml"):
        with pytest.raises(InputError, match=str(path)):
            load_config(path)
