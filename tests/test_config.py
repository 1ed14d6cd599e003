"""Configurations: presets, overrides, and errors that name the key."""

from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from verifier.bounding import BOUNDERS, HIDDEN
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.frugal import Frugal
from verifier.bounding.hidden import RootBounds, Sharpened
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.lp.integer import MixedInteger
from verifier.bounding.relaxation.interval import Interval
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.bdd_plus import BddPlus
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.bounding.solvers.solver import Certified
from verifier.branching.fsb import FilteredSmart
from verifier.config import Bounding, Config, iteration_overrides, load_config, presets, schema, summaries
from verifier.config.describe import keys, yaml_text
from verifier.config.options import complete
from verifier.errors import ConfigError, InputError
from verifier.falsify.base import FirstOf
from verifier.falsify.pgd import quick, thorough
from verifier.machine import memory_total
from verifier.search import TIERS

SECTIONS = ("alpha_crown", "propagated", "big_m", "active_set", "saddle_point", "as_sp", "lp_cuts")
"""Options of methods: they are read where methods are built, so a built method must show them."""


def options(struct: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """The dotted names of all options below a struct, sections left out."""
    names = []
    for field in msgspec.structs.fields(struct):
        nested = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        names += options(field.type, f"{prefix}{field.name}.") if nested else [f"{prefix}{field.name}"]
    return names


def all_options() -> list[str]:
    """The dotted names of all options of a configuration."""
    return [name for section, struct in complete().items() for name in options(struct, f"{section}.")]


def of_a_method(name: str) -> bool:
    return name.startswith(tuple(f"bounding.{section}." for section in SECTIONS))


def other(value: Any) -> Any:
    """Another valid value of an option of a method."""
    words = {"linear": "zero", "rows": "shared", "minimiser": "average", "oracle": "random"}
    if isinstance(value, str):
        return words[value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, list | tuple):
        return [*value, 0.25]
    return value + 1 if isinstance(value, int) else value / 2 or 0.5


def test_every_preset_loads(root: Path) -> None:
    names = presets()
    assert "auto" in names
    assert len(names) == len(list((root / "configs").rglob("*.yaml")))
    for name in names:
        assert load_config(name).resolved().keys() == complete().keys()


def test_every_option_is_read_by_somebody(root: Path) -> None:
    read = set()
    for path in (root / "verifier").rglob("*.py"):
        tree = ast.parse(path.read_text())
        read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert [name for name in all_options() if not of_a_method(name) and name.rsplit(".", 1)[-1] not in read] == []


@pytest.mark.parametrize("name", [name for name in all_options() if of_a_method(name)])
def test_every_option_of_a_method_changes_the_method(name: str) -> None:
    plain: Any = Config().resolved()
    for part in name.split("."):
        plain = plain[part]
    changed = load_config("auto", [f"{name}={other(plain)}"])
    method = name.split(".")[1]
    assert changed.bounding.bounder(method) != Bounding().bounder(method)
    for another in BOUNDERS.names():
        if another != method:
            assert changed.bounding.bounder(another) == Bounding().bounder(another)


def test_methods_have_the_defaults_of_their_classes() -> None:
    steps = Steps(1e-2, 1e-4, linear=True)
    expected = {
        "interval": Interval(),
        "crown": Linear(Slope.ADAPTIVE),
        "wong_kolter": Linear(Slope.PARALLEL),
        "alpha_crown": Certified(AlphaCrown()),
        "propagated": Certified(Propagated.in_rounds().learned()),
        "big_m": Certified(BigM(Ascent(850, steps))),  # the class has the paper's 180 of complete verification
        "bdd_plus": Certified(BddPlus()),
        "active_set": Certified(ActiveSet()),
        "saddle_point": Certified(SaddlePoint()),
        "as_sp": Certified(SaddlePoint(3000, initial=ActiveSet())),
        "lp": PlanetLP(),
        "lp_cuts": CutLP(),
    }
    assert {*expected} == {*BOUNDERS.names()}
    for method, bounder in expected.items():
        assert Bounding().bounder(method) == bounder


@pytest.mark.parametrize(("tier", "name"), [(t, name) for t in TIERS.names() for name in options(TIERS.options(t))])
def test_every_option_of_a_tier_changes_the_tier(tier: str, name: str) -> None:
    plain = {"method": tier, **msgspec.to_builtins(TIERS.options(tier)())}
    *parents, last = name.split(".")
    at = plain
    for parent in parents:
        at = at[parent]
    at[last] = 7 if at[last] is None else other(at[last])
    changed = load_config("auto", [f"search.tiers=[{json.dumps(plain)}]"]).search.policy()
    assert changed.ladder.tiers[0] != TIERS.build(tier)


BASELINES = {"paper/mip": 0, "paper/mip_cuts": 1}
"""Presets without tiers of their own: mixed-integer programs, and their rounds of cuts."""


@pytest.mark.parametrize(("name", "rounds"), BASELINES.items())
def test_baselines_are_mixed_integer_programs(name: str, rounds: int) -> None:
    search = load_config(name).search
    assert search.splitting == "mip"
    assert search.mixed_integer() == MixedInteger(rounds)
    assert load_config(name, ["search.mip.tolerance=0.5"]).search.mixed_integer() == MixedInteger(rounds, 0.5)


@pytest.mark.parametrize("name", [name for name in presets() if name not in BASELINES])
def test_every_preset_builds_its_search(name: str) -> None:
    policy = load_config(name).search.policy()
    assert [tier.name for tier in policy.ladder.tiers] == {
        "auto": ["propagated"],
        "no_cuts": ["alpha_crown"],
    }.get(name) or [part.rstrip("_0123456789") for part in name.removeprefix("paper/").split("+")]
    if name.startswith("paper/"):  # trees must not depend on the machine
        assert policy.ladder.ratios is not None
        assert load_config(name).search.sharpening() is None


def test_the_ratios_must_fit_the_tiers() -> None:
    options = load_config("auto", ["search.cost_ratios=[2, 3]"]).search
    with pytest.raises(ConfigError, match=r"1 tier\(s\) need 0 ratio"):
        options.policy()
    with pytest.raises(ConfigError, match="at least one tier"):
        load_config("auto", ["search.tiers=[]"]).search.policy()


def test_the_defaults_are_those_of_the_paper() -> None:
    """Its values for incomplete verification."""
    found = Bounding().bounder("active_set")
    assert isinstance(found, Certified)
    assert found.inner == ActiveSet(
        Ascent(600, Steps(1e-3, 1e-6, linear=True)), Ascent(500, Steps(1e-2, 1e-4, linear=True)), Additions(450, 2, 7)
    )
    found = Bounding().bounder("saddle_point")
    assert isinstance(found, Certified)
    assert isinstance(found.inner, SaddlePoint)
    assert (found.inner.iterations, found.inner.offset) == (1000, 10)
    assert found.inner.primal_start == Ascent(100, Steps(1e-2, 1e-5, linear=True))
    assert found.inner.initial.additions.most == 0


def test_an_unknown_method_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(InputError, match=r"planet.*active_set, alpha_crown, as_sp, bdd_plus, big_m, crown, interval"):
        Bounding().bounder("planet")


def test_hidden_neurons_are_bounded_as_the_options_say() -> None:
    assert [HIDDEN.build(name) for name in ("best", "crown")] == [Frugal(RootBounds(Slope.ADAPTIVE))] * 2
    assert [HIDDEN.build(name).slope for name in ("paper", "wong_kolter")] == [Slope.PARALLEL] * 2
    assert HIDDEN.build("interval").slope is None
    for name in HIDDEN.names():
        assert Bounding(intermediate=name, memory_mb=4096).hidden() == HIDDEN.build(name)
    chosen = load_config("auto", ["bounding.sharpen=alpha_crown", "bounding.alpha_crown.iterations=3"]).bounding
    expected = Certified(AlphaCrown(Ascent(3, Steps(0.2, 0.01))))
    assert chosen.hidden() == Sharpened(Frugal(RootBounds()), expected)
    for name in ("crown", "wong_kolter", "alpha_crown", "big_m", "active_set"):
        found = Bounding(sharpen=name).hidden()
        assert isinstance(found, Sharpened)
        assert found.bounder.rigorous


def test_memory_is_half_of_the_machines_unless_somebody_says() -> None:
    total = memory_total()
    assert total is not None
    assert Bounding().budget == total // 2
    small = load_config("auto", ["bounding.memory_mb=512"]).bounding
    assert small.budget == 2**29
    assert small.hidden().memory_bytes == 2**25
    with pytest.raises(ConfigError, match="memory_mb"):
        load_config("auto", ["bounding.memory_mb=0"])


def test_iterations_are_those_of_the_methods_that_have_them() -> None:
    overrides = iteration_overrides(["crown", "big_m", "lp_cuts"], 7)
    config = load_config("auto", overrides).bounding
    assert (config.big_m.iterations, config.lp_cuts.rounds, config.alpha_crown.iterations) == (7, 7, 100)
    assert {name for name in BOUNDERS.names() if name in SECTIONS} == set(SECTIONS)
    for name in SECTIONS:
        changed = load_config("auto", iteration_overrides([name], 7)).bounding
        assert changed.bounder(name) != Bounding().bounder(name)
    with pytest.raises(InputError, match="alpha_crown"):
        iteration_overrides(["crown", "lp"], 7)


def test_reading_a_configuration_loads_nothing_heavy() -> None:
    script = "import sys, verifier.config as c; c.load_config(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


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
        ("bounding.as_sp.initial.additions.evry=1", "bounding.as_sp.initial.additions.evry", "every"),
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
        ("bounding.big_m.first_step=0", "bounding.big_m.first_step"),
        ("bounding.active_set.masks=some", "bounding.active_set.masks"),
        ("bounding.sharpen=lp", "bounding.sharpen"),
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


def test_a_listed_attack_comes_after_the_descents() -> None:
    config = load_config("auto", ["falsify.attacks=[{method: thorough}]"])
    assert config.falsify.attack(5) == FirstOf((quick(seed=5), thorough(seed=5)))
    assert config.resolved()["falsify"]["attacks"] == ({"method": "thorough"},)
    assert load_config(config) == config
    assert Config().falsify.attack(5) == quick(seed=5)
    with pytest.raises(ConfigError, match=r"falsify\.attacks\[0\]\.method"):
        load_config("auto", ["falsify.attacks=[{method: nothing}]"])


def test_a_branching_rule_is_a_name_or_has_options() -> None:
    for rule in ("fsb", "{method: fsb}"):
        assert load_config("auto", [f"search.branching={rule}"]).search.policy().brancher == FilteredSmart()
    for rule in ("best", "{method: best}", "{method: fsb, more: 1}", "3"):
        with pytest.raises(ConfigError, match=r"search\.branching"):
            load_config("auto", [f"search.branching={rule}"])


def test_a_configuration_can_be_pickled_and_is_made_of_plain_values() -> None:
    config = load_config("auto", ["search.tighten.every=2", "bounding.big_m.iterations=3"])
    for other in (pickle.loads(pickle.dumps(config)), Config.of(json.loads(json.dumps(config.resolved())))):
        assert other == config
    assert Config() == Config.of({})


def test_plugins_are_found_from_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "mine.yaml").write_text("plugins: [empty.py, json]\n")
    assert load_config(tmp_path / "mine.yaml").plugins == (str(tmp_path / "empty.py"), "json")
    assert load_config("auto", [f"plugins=[{tmp_path}/empty.py]"]).resolved()["plugins"]
    assert "plugins" not in load_config("auto", ["plugins=[]"]).resolved()
    with pytest.raises(InputError, match=r"none\.py: the plugin cannot be loaded"):
        load_config("auto", [f"plugins=[{tmp_path}/none.py]"])
    for wrong in ("3", "empty.py", "[1]"):
        with pytest.raises(ConfigError, match="plugins"):
            load_config("auto", [f"plugins={wrong}"])


def test_the_schema_knows_all_methods() -> None:
    found = schema()["$defs"]
    assert {*BOUNDERS.names(without="reference"), "none"} == {*found["Bounding"]["properties"]["sharpen"]["enum"]}
    assert {*SECTIONS} <= found["Bounding"]["properties"].keys()
    tiers = found["SearchOptions"]["properties"]["tiers"]["items"]["discriminator"]["mapping"]
    assert tiers.keys() == {*TIERS.names()}


# -- files that extend others, items of lists, all keys in words ---------------------------------------------


def test_a_file_extends_a_preset_or_another_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: auto\nsearch: {batch: 7, sharpen: {after: null}}\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "more.yaml").write_text("extends: ../mine.yaml\nsearch: {fill: 3, batch: 9}\n")
    one, two = load_config(tmp_path / "mine.yaml"), load_config(tmp_path / "inner" / "more.yaml")
    expected = load_config("auto", ["search.batch=7", "search.sharpen.after=null"])
    assert one == expected
    assert two == load_config(expected, ["search.fill=3", "search.batch=9"])  # the outer file counts
    assert "extends" not in one.resolved()
    assert one.search.look == load_config("auto").search.look != Config().search.look  # that of auto, not the default


def test_of_lists_the_later_one_counts(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: auto\nsearch: {tiers: [{method: alpha_crown}]}\n")
    assert [t["method"] for t in load_config(tmp_path / "mine.yaml").resolved()["search"]["tiers"]] == ["alpha_crown"]


def test_what_is_wrong_below_is_said_of_the_file_below(tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text("search: {batch: many}\n")
    (tmp_path / "top.yaml").write_text("extends: low.yaml\nsearch: {batch: 3}\n")
    with pytest.raises(ConfigError, match=r"batch.*valid: whole number >= 1") as caught:
        load_config(tmp_path / "top.yaml")
    assert caught.value.path == str(tmp_path / "low.yaml")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("extends: outo", "outo: there is no such preset or file; did you mean 'auto'"),
        ("extends: [auto]", "extends: the name of a preset"),
        ("extends: a.yaml", "extends: 'a.yaml' extends this file in turn"),
    ],
)
def test_a_bad_base_is_an_error_that_names_the_file(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=match) as caught:
        load_config(tmp_path / "a.yaml")
    assert caught.value.path == str(tmp_path / "a.yaml")


def test_plugins_of_both_files_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    for name in ("low/one.py", "two.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "low" / "a.yaml").write_text("plugins: [one.py]")
    (tmp_path / "b.yaml").write_text("extends: low/a.yaml\nplugins: [two.py]")
    found = load_config(tmp_path / "b.yaml").plugins
    assert found == (str(tmp_path / "low" / "one.py"), str(tmp_path / "two.py"))


def test_items_of_lists_are_set_by_their_numbers() -> None:
    two = load_config("auto", ["search.tiers=[{method: propagated}, {method: propagated, thresholds: [0.5, 0.5]}]"])
    before = two.resolved()["search"]["tiers"]
    found = load_config(two, ["search.tiers.1.iterations=20", "search.tiers.1.thresholds.0=0.25"])
    tiers = found.resolved()["search"]["tiers"]
    assert tiers[0] == before[0]
    assert tiers[1] == before[1] | {"iterations": 20, "thresholds": (0.25, 0.5)}


def test_items_of_a_default_list_are_set_as_well() -> None:
    found = load_config(Config(), ["search.tiers.0.root.iterations=3"]).resolved()["search"]["tiers"][0]
    default = Config().resolved()["search"]["tiers"][0]
    assert found == default | {"root": default["root"] | {"iterations": 3}}


def test_another_method_begins_with_its_own_defaults() -> None:
    found = load_config("auto", ["search.tiers.0.method=big_m"]).resolved()["search"]["tiers"]
    assert found[0] == load_config("auto", ["search.tiers=[{method: big_m}]"]).resolved()["search"]["tiers"][0]


@pytest.mark.parametrize(
    ("override", "match"),
    [
        ("search.tiers.1.iterations=3", r"search\.tiers\.1: .*there are 1: 0 to 0"),
        ("search.tiers.first.iterations=3", r"search\.tiers\.first: an item is given by its number"),
        ("search.tiers.0.itertions=3", "did you mean 'iterations'"),
        ("search.tiers.0.method=none", "no such method.*Valid: active_set, alpha_crown"),
        ("search.batch.0=3", "batch"),
        ("search.batch=0", "valid: whole number >= 1"),
        ("search.cost_ratios=[x]", r"cost_ratios\[0\].*valid: number > 0"),
        ("bounding.intermediate=planet", r"valid: best \| best_all \| crown"),
        ("search.btach=3", "did you mean 'batch'.*Valid: splitting, .*max_batches"),
    ],
)
def test_errors_of_overrides_name_the_flag_and_what_is_valid(override: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        load_config("auto", ["search.fill=3", override])
    assert str(caught.value).startswith(f"--set {override}: ")


def test_every_key_is_described_and_can_be_set_to_its_default() -> None:
    found = keys()
    assert {key.name for key in found if key.method is None} == {*all_options(), "plugins"}
    for key in found:
        assert key.text, f"{key.name}: a comment beside the option is missing"
        if key.method is None:
            assert load_config(Config(), [f"{key.name}={key.default}"]) == Config()
        else:
            first, _, rest = key.name.partition(".N.")
            chosen = [f"{first}=[{{method: {key.method}}}]"]
            item = load_config(Config(), [*chosen, f"{first}.0.{rest}={key.default}"])
            assert item == load_config(Config(), chosen)


def test_a_preset_written_out_is_the_same_preset(tmp_path: Path) -> None:
    for name in presets():
        (tmp_path / "whole.yaml").write_text(yaml_text(load_config(name).resolved()))
        assert load_config(tmp_path / "whole.yaml") == load_config(name)
    assert set(summaries()) == set(presets())
    assert all(summaries().values())
