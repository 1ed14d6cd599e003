"""Float32 is float32 during a run, whatever the process was set to, and that setting is there again afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import networks
import pytest
import torch
from torch import nn

import verifier
from verifier.bounding.relaxation import zonotope
from verifier.config import load_config
from verifier.precision import FEWER_DIGITS, direct_sums, full_precision
from verifier.processes import Forked, forkable
from verifier.result.verdict import Verdict


@pytest.fixture
def careless() -> Iterator[None]:
    """A process in which somebody has traded digits for speed."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)
    torch.set_float32_matmul_precision(before)


def settings() -> tuple[object, ...]:
    """What the process is set to: how products of matrices are computed, and what becomes of the smallest numbers."""
    new = getattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", None)
    least = torch.tensor([2.0**-140, 2.0**-1060], dtype=torch.float64)
    return new, torch.get_float32_matmul_precision(), bool((least * 2 > 0).all()), bool((least.float() > 0)[0])


def test_digits_are_kept_inside_and_settings_after(careless: None) -> None:
    before = settings()
    with full_precision():
        inside = settings()
        assert inside[0] in ("ieee", None)
        assert inside[2:] == (True, True)
    assert settings() == before
    assert before[2:] == (False, False)


def test_settings_come_back_after_an_error(careless: None) -> None:
    before = settings()
    with pytest.raises(RuntimeError), full_precision():
        raise RuntimeError
    assert settings() == before


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch calls one of the flags experimental
def test_convolutions_are_sums_of_products() -> None:
    """Where all products are zero, so is the sum; transforms leave errors there.  Without oneDNN torch takes these."""
    torch.manual_seed(0)
    x, weight = torch.rand(32, 16, 12, 12), torch.rand(16, 16, 3, 3)
    x[..., 3:] = 0.0
    with torch.backends.mkldnn.flags(enabled=False), full_precision():
        found = torch.nn.functional.conv2d(x, weight, padding=1)
    assert not found[..., 4:].any()


def test_single_precision_is_not_relied_upon_where_sums_may_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    here = torch.device("cpu")
    monkeypatch.delenv(FEWER_DIGITS, raising=False)
    assert direct_sums(here)
    assert not direct_sums(torch.device("cuda"))
    assert zonotope.fits_single(networks.conv(0))
    monkeypatch.setenv(FEWER_DIGITS, "strict")
    assert direct_sums(here)
    monkeypatch.setenv(FEWER_DIGITS, "BF16")
    assert not direct_sums(here)
    assert not zonotope.fits_single(networks.conv(0))


@pytest.mark.skipif(not forkable(), reason="forks do not work on this system")
def test_forks_inherit_the_settings(careless: None) -> None:
    with full_precision():
        inside = settings()
        with Forked(lambda send: settings()) as found:
            assert found.wait() == inside


def test_zonotopes_of_a_run_do_not_depend_on_the_process(careless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zonotopes in float32 are the same as in a process that nobody has changed."""
    seen: list[list[torch.Tensor]] = []
    during: set[tuple[object, ...]] = set()
    propagate = zonotope.propagate

    def listening(net: object, *box: torch.Tensor, **more: object) -> zonotope.Zonotopes:
        found = propagate(net, *box, **more)  # type: ignore[arg-type]
        during.add(settings()[::2])
        seen[-1] += [found.l_hat[0], found.u_hat[-1], found.output.centre]
        return found

    monkeypatch.setattr("verifier.search.boxes.bounds.propagate", listening)
    boxes = load_config("auto", ["falsify.enabled=false", "search.splitting=inputs", "search.max_domains=3000"])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
    least = float(net(2 * torch.rand(1000, 2) - 1).detach().min())
    for precision in ("medium", "highest"):
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(precision == "medium")
        seen.append([])
        before = settings()
        box = {"lower": [-1.0, -1.0], "upper": [1.0, 1.0]}
        found = verifier.verify(net, **box, unsafe=[([[1.0]], [least - 0.01])], config=boxes, threads=1)
        assert found.verdict in (Verdict.UNSAT, Verdict.UNKNOWN)
        assert settings() == before
    assert len(seen[0]) > 3
    assert during == {("ieee", True)} or during == {(None, True)}
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
