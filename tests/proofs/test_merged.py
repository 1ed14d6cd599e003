"""Proofs of networks whose neurons were merged: the search writes what it merged, and the checker does it again."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from checker.building import write_proof
from mirrored import N_IN, STYLES, Part, model, oracle_of
from oracle import minimum_of_max

from verifier.checker.check import ACCEPTED, REJECTED, check
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.result.result import Result
from verifier.result.verdict import Verdict

MARGIN = 0.02
WAYS = {"signs": ("search.splitting=relus", "search.sharpen.after=null"), "boxes": ("search.splitting=inputs",)}


@dataclass(frozen=True)
class Instance:
    """Unsafe is y_0 + y_1 / 4 <= c over [-1, 1]^2, where c is less than the minimum by MARGIN or more by as much."""

    net: Path
    prop: Path
    proof: Path

    def decided(self, way: str, proof: bool) -> Result:
        config = load_config("auto", ("falsify.seconds=0.05", *WAYS[way]))
        written = str(self.proof) if proof else None
        request = Request(GivenFiles(str(self.net), str(self.prop)), config, Machine("cpu", 1, 60.0), proof=written)
        return decide(request, request.status())

    def verdict(self, exact: bool = False) -> str:
        return check(str(self.net), str(self.prop), str(self.proof), exact).verdict

    def members(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.proof) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def least(parts: list[Part]) -> float:
    net, box = oracle_of(N_IN, parts), (-np.ones(N_IN), np.ones(N_IN))
    method = "enumeration" if sum(len(layer.bias) for layer in parts[:-1]) <= 12 else "milp"
    return minimum_of_max(net, box, np.array([[1.0, 0.25]]), np.zeros(1), method=method).value


def instance(folder: Path, style: str, seed: int, holds: bool) -> Instance:
    parts = STYLES[style](np.random.default_rng(seed))
    found = Instance(folder / "n.onnx", folder / "p.vnnlib", folder / "proof")
    found.net.write_bytes(model(N_IN, parts).SerializeToString())
    names = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    box = "".join(f"(assert (>= X_{i} -1.0))\n(assert (<= X_{i} 1.0))\n" for i in range(N_IN))
    bound = least(parts) - (MARGIN if holds else -MARGIN)
    found.prop.write_text(names + box + f"(assert (<= (+ Y_0 (* 0.25 Y_1)) {bound:.12f}))")
    return found


def require_proved(folder: Path, style: str, seed: int) -> None:
    """The verdict is that of the oracle, the proof is accepted, and merging made the search no different."""
    way = list(WAYS)[seed % len(WAYS)]
    given = instance(folder, style, seed, holds=True)
    plain, found = given.decided(way, proof=False), given.decided(way, proof=True)
    assert plain.verdict is found.verdict is Verdict.UNSAT
    assert "merged.bin" in given.members()
    assert given.verdict() == ACCEPTED
    given.proof.unlink()
    false = instance(folder, style, seed, holds=False)
    assert false.decided(way, proof=True).verdict is Verdict.SAT
    assert not false.proof.exists()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("style", STYLES)
def test_verdicts_are_right_and_their_proofs_accepted(tmp_path: Path, style: str, seed: int) -> None:
    require_proved(tmp_path, style, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 54))
@pytest.mark.parametrize("style", STYLES)
def test_so_they_are_of_more_networks(tmp_path: Path, style: str, seed: int) -> None:
    require_proved(tmp_path, style, seed)


@pytest.mark.parametrize("way", ["signs", pytest.param("boxes", marks=pytest.mark.slow)])
@pytest.mark.parametrize("style", STYLES)
def test_exact_arithmetic_confirms_them(tmp_path: Path, style: str, way: str) -> None:
    given = instance(tmp_path, style, 3, holds=True)
    assert given.decided(way, proof=True).verdict is Verdict.UNSAT
    assert given.verdict(exact=True) == ACCEPTED


def test_a_proof_without_its_merges_is_about_other_neurons(tmp_path: Path) -> None:
    given = instance(tmp_path, "lattice", 0, holds=True)
    assert given.decided("signs", proof=True).verdict is Verdict.UNSAT
    body = given.members()["proof.bin"]
    write_proof(given.proof, given.net, given.prop, body)
    assert given.verdict() == REJECTED


def test_every_flipped_bit_of_the_merges_is_rejected_or_harmless(tmp_path: Path) -> None:
    """For a property that does not hold: with whatever merges, the proof of one that holds by a hair proves nothing."""
    given = instance(tmp_path, "lattice", 0, holds=True)
    assert given.decided("boxes", proof=True).verdict is Verdict.UNSAT
    parts, reasons = given.members(), set()
    instance(tmp_path, "lattice", 0, holds=False)
    for place in range(8 * len(parts["merged.bin"])):
        claims = bytearray(parts["merged.bin"])
        claims[place // 8] ^= 1 << place % 8
        write_proof(given.proof, given.net, given.prop, parts["proof.bin"], merged=bytes(claims))
        found = check(str(given.net), str(given.prop), str(given.proof))
        assert found.verdict == REJECTED
        assert found.node is not None
        reasons.add(str(found.reason).split(":")[0])
    assert "what is merged in layer 1" in reasons


def test_weights_that_differ_by_one_unit_are_not_merged(tmp_path: Path) -> None:
    """The proof of another network that is hardly different, with the digests of this one."""
    given = instance(tmp_path, "readers", 1, holds=True)
    assert given.decided("signs", proof=True).verdict is Verdict.UNSAT
    parts = given.members()
    layers = STYLES["readers"](np.random.default_rng(1))
    layers[0].terms[0][3, 1] = np.nextafter(layers[0].terms[0][3, 1], np.float32(9))
    given.net.write_bytes(model(N_IN, layers).SerializeToString())
    write_proof(given.proof, given.net, given.prop, parts["proof.bin"], merged=parts["merged.bin"])
    found = check(str(given.net), str(given.prop), str(given.proof))
    assert (found.verdict, found.node) == (REJECTED, 0)
    assert "what is merged in layer 1: neuron 3 does not mirror neuron 0" in str(found.reason)


def test_the_checker_may_find_a_domain_empty_that_a_bound_has_closed(tmp_path: Path) -> None:
    """Maps that cancel give the checker sharper bounds: of a neuron that the search has split one side is empty."""
    given = instance(tmp_path, "readers", 66, holds=True)
    assert given.decided("signs", proof=True).verdict is Verdict.UNSAT
    assert given.verdict() == ACCEPTED
    assert given.verdict(exact=True) == ACCEPTED
