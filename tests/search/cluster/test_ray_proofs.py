"""A proof of what the workers of a real Ray cluster have done."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from verifier.checker.check import check
from verifier.cli.main import run as command
from verifier.search.cluster import policy, search
from verifier.search.cluster.rays import RayPool
from verifier.search.journal import BLOCK

SLOW = ("search.batch=4", "search.fill=2", "search.sharpen.after=null", "falsify.enabled=false")


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree is small, so it waits for all workers, and is divided as soon as it can be."""
    usual = RayPool.come

    def come(pool: RayPool) -> list[int]:
        found = usual(pool)
        while pool._coming:
            time.sleep(0.1)
            found += usual(pool)
        return found

    monkeypatch.setattr(RayPool, "come", come)
    for module in (policy, search):
        monkeypatch.setattr(module, "WORTHWHILE", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("prompt")
def test_a_proof_of_rays_workers_is_accepted(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")
    net, prop = (str(root / "properties" / name) for name in ("onnx/digits_fc.onnx", "vnnlib/fc_branch_1438.vnnlib"))
    proof, trace, out = (str(tmp_path / name) for name in ("proof", "trace", "answer.json"))
    options = [word for key in SLOW for word in ("--set", key)]
    files = ["--proof", proof, "--trace", trace, "--json", out]
    assert command([net, prop, "--config", "no_cuts", *options, "--engine", "ray", "--threads", "2", *files]) == 0
    assert json.loads(Path(out).read_text())["proof"]["bytes"] == Path(proof).stat().st_size
    assert check(net, prop, proof).verdict == "accepted"
    domains = [json.loads(line) for line in Path(trace).read_text().splitlines()]
    assert {domain["id"] // BLOCK for domain in domains} == {0, 1}, "the second worker has numbers of its own"
