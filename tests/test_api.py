"""The entry points for Python: files and modules take the same path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import verifier
from verifier.config import Config, load_config
from verifier.errors import InputError
from verifier.precision import default_dtype
from verifier.result.verdict import Reason, Verdict


@pytest.fixture
def module() -> nn.Module:
    """y = (|x_0 - x_1|, x_0) over two inputs; a new one for each test, because `DataParallel` moves what it wraps."""
    return networks.difference_module()


BOX = {"lower": [-1.0, -1.0], "upper": [1.0, 1.0]}
SAFE, UNSAFE = [([[0.0, 1.0]], [-1.5])], [([[-1.0, 0.0]], [-1.5])]
"""Closed by the bounds of the whole box; found by the attack."""


def test_a_module_is_proved(module: nn.Module) -> None:
    result = verifier.verify(module, **BOX, unsafe=[([[0.0, 1.0]], [-1.5]), ([[0.0, -1.0]], [-1.5])])
    assert result.verdict is Verdict.UNSAT
    assert result.lower_bound is not None
    assert 0 < result.lower_bound <= 0.5
    assert result.setting.network is None


def test_a_module_is_refuted_and_the_witness_is_real(module: nn.Module) -> None:
    result = verifier.verify(module, **BOX, unsafe=[([[-1.0, 0.0], [0.0, 1.0]], [-1.5, -0.5])])
    assert result.verdict is Verdict.SAT
    witness = result.counterexample
    assert witness is not None
    assert (abs(witness.x) <= 1).all()
    y = module(torch.from_numpy(witness.x)[None])[0].detach().numpy()
    np.testing.assert_allclose(y, witness.y, rtol=1e-6, atol=1e-6)
    assert y[0] >= 1.5
    assert y[1] <= -0.5


def test_tensors_arrays_and_lists_are_the_same(module: nn.Module) -> None:
    low, high = torch.tensor(BOX["lower"], requires_grad=True), np.array(BOX["upper"])
    result = verifier.verify(module, lower=low, upper=high, unsafe=[(torch.tensor([0.0, 1.0]), -1.5)])
    assert result.verdict is Verdict.UNSAT


def test_branching_decides_what_the_root_leaves_open(module: nn.Module) -> None:
    # |x_0 - x_1| + x_0 >= -1, with equality at (-1, -1): just below it nothing is unsafe, at -0.9 something is.
    off = load_config("auto", ["falsify.enabled=false"])
    below = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.001])], config=off)
    assert below.verdict is Verdict.UNSAT
    above = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-0.9])], config=off)
    assert above.verdict is Verdict.SAT
    assert above.setting.config["falsify"]["enabled"] is False
    touching = verifier.verify(module, **BOX, unsafe=[([[1.0, 1.0]], [-1.0])])
    assert touching.verdict in (Verdict.SAT, Verdict.UNKNOWN)


def test_a_limit_of_zero_seconds(module: nn.Module) -> None:
    result = verifier.verify(module, **BOX, unsafe=[([[1.0, 0.0]], [1.0])], timeout=0.0)
    assert (result.verdict, result.reason) == (Verdict.TIMEOUT, Reason.TIMEOUT)


ROW = [([[1.0, 0.0]], [-9.0])]
"""Unsafe outputs that cannot be: whoever does not look at the other arguments answers `unsat`."""


class Hostile:
    """Whatever is asked of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __array__(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError("no array")


WRONG: list[dict[str, Any]] = [
    {"lower": [1, 0], "upper": [0, 1]},  # swapped in one entry
    {"lower": [1.0, 1.0], "upper": [-1.0, -1.0]},
    {"lower": [0.0, 0.0], "upper": [1.0]},
    {"lower": [0.0], "upper": [1.0]},
    {"lower": 0.0, "upper": 1.0},
    {"lower": [0.0, 0.0, 0.0], "upper": [1.0, 1.0, 1.0]},
    {"lower": [[0.0], [0.0]], "upper": [[1.0], [1.0]]},
    {"lower": [0.0, np.nan]},
    {"upper": [1.0, np.inf]},
    {"upper": None},
    {"lower": [], "upper": []},
    {"lower": "ab"},
    {"lower": ["0", "0"]},
    {"lower": [[0.0], [0.0, 1.0]]},
    {"lower": [0.0, None]},
    {"lower": np.zeros(2) + 0j},
    {"lower": np.ma.masked_array([0.0, 0.0], [True, False])},
    {"lower": np.array([2**53 + 1, 0]), "upper": np.array([2**60, 1])},
    {"upper": torch.ones(2, device="meta")},
    {"upper": torch.ones(2, dtype=torch.complex64)},
    {"lower": Hostile()},
    {"unsafe": []},
    {"unsafe": ()},
    {"unsafe": None},
    {"unsafe": 3},
    {"unsafe": "Y_0 <= 1"},
    {"unsafe": {0: ROW[0]}},
    {"unsafe": ROW[0]},  # without a list around it
    {"unsafe": (np.eye(2), np.zeros(2))},
    {"unsafe": [([[1.0, 0.0]], [0.0], [0.0])]},
    {"unsafe": [None]},
    {"unsafe": [(None, None)]},
    {"unsafe": [([[1.0]], [0.0])]},
    {"unsafe": [([[1.0, 0.0]], [0.0, 1.0])]},
    {"unsafe": [([[1.0, 0.0]], [[0.0]])]},
    {"unsafe": [([[[1.0, 0.0]]], [0.0])]},
    {"unsafe": [(1.0, 0.0)]},
    {"unsafe": [(np.zeros((0, 2)), [])]},
    {"unsafe": [([["a", "b"]], [0.0])]},
    {"unsafe": [([[np.nan, 0.0]], [0.0])]},
    {"prop": "p.vnnlib"},
    {"prop": 5},
    *({"device": d} for d in ("tpu", "cuda:77", "cuda:99999999999", "", None, 0, "meta", torch.device("meta"))),
    *({"seed": s} for s in (-1, 2**64, 0.5, "0", None, Hostile())),
    *({"timeout": t} for t in (-1, "60", np.nan, -np.inf, 1j, [1], True, -(10**400), Hostile())),
    *({"threads": n} for n in (0, -1, 1.5, "2", True, 10**30, Hostile())),
    *({"config": c} for c in ("nothing", None, 5, {}, b"auto", "a\0b", "", ["auto"], verifier.verify)),
    {"config": Config(search=5)},  # type: ignore[arg-type]
    {"config": Config(search=Hostile())},  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: " ".join(f"{k}={v!s:.20}" for k, v in wrong.items()))
def test_arguments_that_make_no_sense(module: nn.Module, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        verifier.verify(module, **{**BOX, "unsafe": ROW, **wrong})
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        verifier.lower_bounds(module, method="interval", **{**BOX, "unsafe": ROW, **wrong})
    if wrong.keys() <= {"lower", "upper", "prop"}:
        with pytest.raises(InputError):
            verifier.bounds(module, **{**BOX, **wrong})


@pytest.mark.parametrize("network", [None, 5, b"net.onnx", "", "a\0b", "\ud800", "none.onnx", nn.Linear, [nn.ReLU()]])
def test_networks_that_are_none(network: Any) -> None:
    for call in (verifier.verify, verifier.lower_bounds):
        with pytest.raises(InputError):
            call(network, **BOX, unsafe=ROW)
        with pytest.raises(InputError):
            call(network, "p.vnnlib")
    with pytest.raises(InputError):
        verifier.bounds(network, **BOX)


def test_exported_compiled_and_wrapped_modules_are_their_modules(module: nn.Module) -> None:
    """torch.export gives a graph of operators, torch.compile and DataParallel a module around the module."""
    lower, upper = torch.zeros(2), torch.ones(2)
    exported = torch.export.export(module, (torch.zeros(1, 2),))
    compiled = type("OptimizedModule", (nn.Module,), {})()  # to make a real one takes half a minute
    compiled._orig_mod = module
    found = [
        verifier.bounds(network, lower=lower, upper=upper)
        for network in (module, compiled, exported, exported.module(), nn.DataParallel(module))
    ]
    for other in found[1:]:
        for pair, expected in zip(other, found[0], strict=True):
            torch.testing.assert_close(pair, expected, rtol=1e-6, atol=1e-9)


class Parts(nn.Module):
    """Parts of a linear map, taken in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(36, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x.view(1, 36))
        return torch.cat([y[:, 1:3], y[:, ::2].relu(), y[:, -2:] * y[:, :1]], dim=1)


def _layers() -> nn.Module:
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)]
    layers[1].running_mean.fill_(0.3)
    layers[1].weight.data.fill_(0.7)
    return nn.Sequential(*layers, nn.Sigmoid())


@pytest.mark.parametrize("make", [_layers, Parts], ids=["layers", "parts"])
def test_an_exported_graph_is_read_as_its_module(make: Callable[[], nn.Module]) -> None:
    """Operators of exported graphs have the order of arguments of torch's own library, not of torch.nn.functional."""
    torch.manual_seed(1)
    network, x = make().eval(), torch.rand(1, 6, 6)
    exported = torch.export.export(network, (x[None],))
    one, two = (verifier.bounds(n, lower=x - 0.1, upper=x + 0.1)[-1] for n in (network, exported))
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


def test_incomplete_arguments(module: nn.Module) -> None:
    for arguments in ({}, {"lower": [0.0, 0.0]}, BOX, {"unsafe": ROW}):
        with pytest.raises(InputError, match="lower, upper and unsafe"):
            verifier.verify(module, **arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lower and upper"):
        verifier.bounds(module, lower=[0.0, 0.0])
    with pytest.raises(InputError, match="not both"):
        verifier.verify("net.onnx", "p.vnnlib", unsafe=[])


@pytest.mark.parametrize(
    "meaningful",
    [
        {"lower": np.array([False, False]), "upper": np.array([True, True])},
        {"lower": (0, 0), "upper": (1, 1)},
        {"lower": np.zeros(2, np.float16), "upper": np.ones(2, np.longdouble)},
        {"lower": torch.zeros(2, dtype=torch.bfloat16), "upper": torch.ones(2).to_sparse()},
        {"lower": [np.float32(0), 0], "upper": torch.ones(2, dtype=torch.uint8)},
        {"unsafe": (([1.0, 0.0], -9.0),)},
        {"unsafe": [[np.array([[1, 0]]), torch.tensor([-9])]]},
        {"timeout": np.float32(60), "seed": np.int64(3), "threads": np.uint8(1)},
        {"timeout": np.inf},
        {"timeout": 10**400},
        {"device": torch.device("cpu")},
        {"config": Config()},
        {"config": Path("auto")},
    ],
    ids=str,
)
def test_arguments_in_other_words(module: nn.Module, meaningful: dict[str, Any]) -> None:
    result = verifier.verify(module, **{"lower": [0, 0], "upper": [1, 1], "unsafe": ROW, **meaningful})
    assert result.verdict is Verdict.UNSAT
    limit, seed = meaningful.get("timeout"), meaningful.get("seed", 0)
    assert result.setting.timeout == (60.0 if limit == 60 else None)
    assert (type(result.setting.seed), result.setting.seed) == (int, seed)
    assert result.as_json()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file whose input has the shape [1, 3, 2, 2] and whose output is its first entry plus ten times its second."""
    path = tmp_path_factory.mktemp("image") / "image.onnx"
    weight = np.zeros((12, 1), np.float32)
    weight[:2, 0] = 1.0, 10.0
    nodes = [helper.make_node("Flatten", ["X"], ["F"]), helper.make_node("MatMul", ["F", "W"], ["Y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "image",
        [info("X", TensorProto.FLOAT, [1, 3, 2, 2])],
        [info("Y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(weight, "W")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return str(path)


@pytest.mark.parametrize("shape", [(1, 3, 2, 2), (3, 2, 2), (1, 1, 3, 2, 2), (12,), (1, 12)])
def test_a_box_in_the_shape_of_the_network(image: str, shape: tuple[int, ...]) -> None:
    x = np.arange(12.0).reshape(shape)
    (low, high) = verifier.bounds(image, lower=x, upper=x)[-1]
    assert (low.item(), high.item()) == (pytest.approx(10.0), pytest.approx(10.0))
    result = verifier.verify(Path(image), lower=x, upper=x, unsafe=[([[1.0]], [9.0])])
    assert result.verdict is Verdict.UNSAT


@pytest.mark.parametrize("shape", [(2, 2, 3), (1, 2, 2, 3), (3, 4), (2, 6), (12, 1), (3, 2, 2, 1), (3, 1, 2, 2), (11,)])
def test_a_box_in_another_shape_is_refused(image: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    for call in (verifier.verify, verifier.lower_bounds):
        with pytest.raises(InputError, match=r"shape \(1, 3, 2, 2\), or flat of shape \(12,\), not"):
            call(image, lower=x, upper=x, unsafe=[([[1.0]], [-9.0])])
    with pytest.raises(InputError, match=r"\(1, 3, 2, 2\)"):
        verifier.bounds(image, lower=x, upper=x)


def test_a_module_takes_samples_with_and_without_a_batch_axis() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    x = torch.rand(3, 3, 3)
    alone, batched = (verifier.bounds(module, lower=y, upper=y)[-1] for y in (x, x[None]))
    torch.testing.assert_close(alone, batched)
    for shape in ((27,), (1, 27), (9, 3)):
        with pytest.raises(InputError, match="shape"):
            verifier.bounds(module, lower=x.reshape(shape), upper=x.reshape(shape))
    with pytest.raises(InputError, match="shape"):
        verifier.bounds(module, lower=x[:, :, :2].permute(1, 2, 0), upper=x[:, :, :2].permute(1, 2, 0))


def test_what_the_user_has_told_torch_changes_no_answer(module: nn.Module) -> None:
    def answers() -> list[Verdict]:
        found = [verifier.verify(module, **BOX, unsafe=u, threads=n).verdict for u in (SAFE, UNSAFE) for n in (1, 2)]
        low, high = verifier.bounds(module, **BOX)[0]
        assert low.dtype is high.dtype is torch.float64
        return found

    usual = answers()
    assert usual == [Verdict.UNSAT, Verdict.UNSAT, Verdict.SAT, Verdict.SAT]
    with default_dtype(torch.float64):
        assert answers() == usual
        assert torch.get_default_dtype() is torch.float64
    for context in (torch.device("meta"), torch.autocast("cpu"), torch.no_grad(), torch.inference_mode()):
        with context:
            assert answers() == usual


def test_a_module_runs_with_the_users_type() -> None:
    class Tenth(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor([0.1])

    box = {"lower": [0.0], "upper": [0.0]}
    with default_dtype(torch.float64):
        assert verifier.bounds(Tenth(), **box)[-1][0].item() == pytest.approx(0.1, abs=1e-12)
    assert verifier.bounds(Tenth(), **box)[-1][0].item() == pytest.approx(float(np.float32(0.1)), abs=1e-12)


def test_bounds_of_every_group_contain_what_happens(module: nn.Module) -> None:
    for method in ("interval", "crown", "wong_kolter", "best", "paper"):
        found = verifier.bounds(module, **BOX, method=method)
        assert [tuple(low.shape) for low, _ in found] == [(1, 3), (1, 2)]
        x = torch.rand(1000, 2) * 2 - 1
        values = [module[0](x), module(x)]
        for (low, high), value in zip(found, values, strict=True):
            assert low.dtype is torch.float64
            assert (low <= value + 1e-6).all()
            assert (value - 1e-6 <= high).all()
    assert found[0][0].tolist()[0] == pytest.approx([-2.0, -2.0, 3.0])
    assert found[0][1].tolist()[0] == pytest.approx([2.0, 2.0, 5.0])


def test_an_unknown_method_is_refused(module: nn.Module) -> None:
    with pytest.raises(InputError, match="wong_kolter"):
        verifier.bounds(module, **BOX, method="planet")


def test_threads_are_given_back(module: nn.Module) -> None:
    before = torch.get_num_threads()
    result = verifier.verify(module, **BOX, unsafe=SAFE, threads=before + 1)
    assert result.threads == before + 1
    assert torch.get_num_threads() == before


def test_the_test_family(benchmarks: Path) -> None:
    folder = benchmarks / "test"
    for network, prop, expected in (("test_sat", "test_prop", "sat"), ("test_tiny", "test_tiny", "unsat")):
        result = verifier.verify(folder / f"onnx/{network}.onnx", folder / f"vnnlib/{prop}.vnnlib", timeout=60)
        assert result.verdict.value == expected


def test_an_unknown_name_of_the_package() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = verifier.nothing


# -- what is looked at: names, results, runs -----------------------------------------------------------------


def test_the_names_of_the_package_are_offered_and_exist() -> None:
    assert set(verifier.__all__) <= set(dir(verifier))
    for name in dir(verifier):
        assert getattr(verifier, name) is not None
    assert (Path(verifier.__file__).parent / "py.typed").is_file()


def test_a_result_prints_on_one_line(module: nn.Module) -> None:
    holds, violated = (verifier.verify(module, **BOX, unsafe=unsafe) for unsafe in (SAFE, UNSAFE))
    assert repr(holds).startswith("<Result unsat in 0.")
    assert repr(violated).startswith("<Result sat in ")
    assert repr(violated).endswith(", witness of shape [1, 2]>")
    late = verifier.Result(Verdict.TIMEOUT, Reason.TIMEOUT, lower_bound=-0.123456, time={"total": 3.14159})
    assert repr(late) == "<Result timeout in 3.14 s, lower bound -0.1235>"
    gone = verifier.Result(Verdict.UNKNOWN, Reason.MEMORY)
    assert repr(gone) == "<Result unknown, memory in 0.00 s>"


def test_a_witness_has_the_shape_of_the_network(image: str) -> None:
    x = np.arange(12.0)
    result = verifier.verify(image, lower=x, upper=x + 1, unsafe=[([[-1.0]], [0.0])])
    assert result.counterexample is not None
    assert result.counterexample.input.shape == (1, 3, 2, 2)
    np.testing.assert_array_equal(result.counterexample.input.reshape(-1), result.counterexample.x)


def test_a_notebook_is_shown_a_table(module: nn.Module) -> None:
    held, text = (verifier.verify(module, **BOX, unsafe=unsafe)._repr_html_() for unsafe in (SAFE, UNSAFE))
    assert ">sat</b>: the property is violated" in text
    assert "<img" not in text  # two numbers are no picture
    assert text.count("<tr>") == text.count("</tr>") >= 3
    assert ">unsat</b>: the property holds" in held
    assert "witness" not in held
