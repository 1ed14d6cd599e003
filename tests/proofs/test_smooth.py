"""Proofs of networks with smooth functions and products: those of a search are accepted, false ones are not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from checker.building import write_proof
from checker.smooth import Draft, Files, model, random_model
from onnx import TensorProto, helper

from verifier.checker.check import ACCEPTED, check
from verifier.config import load_config
from verifier.errors import InputError
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.result.verdict import Verdict


def searched(files: Files, proof: Path, splitting: str, timeout: float = 10.0) -> Verdict:
    config = load_config("auto", (f"search.splitting={splitting}",))
    machine = Machine("cpu", 1, timeout)
    request = Request(GivenFiles(str(files.network), str(files.prop)), config, machine, proof=str(proof))
    return decide(request, request.status()).verdict


def judged(files: Files, proof: Path) -> str:
    return check(str(files.network), str(files.prop), str(proof)).verdict


DEEP = {
    "sigmoids": ("Sigmoid", "Relu"),
    "waves": ("Sin", "Cos"),
    "products": ("Product", "Relu"),
    "powers": ("Square", "Tanh"),
    "quotients": ("Quotient",),
    "softmax": ("Softmax", "Tanh"),
    "softmax of two": ("Softmax of two", "Relu"),
    "logarithms of softmax": ("LogSoftmax",),
    "normalised": ("LayerNormalization", "Relu"),
    "logarithms": ("Softplus", "Log"),
}


@pytest.mark.parametrize("splitting", ["inputs", "relus"])
@pytest.mark.parametrize("name", DEEP)
def test_what_a_search_writes_is_accepted_and_proves_nothing_false(tmp_path: Path, name: str, splitting: str) -> None:
    margin = 0.5 if splitting == "inputs" else 2.0
    files, proof = Files.of(tmp_path, model(np.random.default_rng(7), 2, DEEP[name]), margin), tmp_path / "proof"
    assert searched(files, proof, splitting) is Verdict.UNSAT
    assert judged(files, proof) == ACCEPTED
    with zipfile.ZipFile(proof) as archive:
        body = archive.read("proof.bin")
    files.write(-0.01)  # now some of what was seen is unsafe
    rng = np.random.default_rng(0)
    for place in [None, *rng.integers(0, len(body), 60)]:
        changed = bytearray(body)
        if place is not None:
            changed[place] = rng.integers(256)
        forged = write_proof(tmp_path / "forged", files.network, files.prop, bytes(changed))
        assert judged(files, forged) != ACCEPTED


@pytest.mark.parametrize("seed", range(8))
def test_random_networks(tmp_path: Path, seed: int) -> None:
    require_accepted(tmp_path, seed, "auto")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 108))
def test_more_random_networks(tmp_path: Path, seed: int) -> None:
    require_accepted(tmp_path, seed, ("inputs", "relus")[seed % 2])


def require_accepted(folder: Path, seed: int, splitting: str) -> None:
    """Whatever the search calls `unsat` has a proof that is accepted."""
    margin = float(np.random.default_rng(seed).choice([0.05, 0.3, 1.0]))
    files, proof = Files.of(folder, random_model(seed), margin), folder / "proof"
    if searched(files, proof, splitting) is Verdict.UNSAT:
        assert judged(files, proof) == ACCEPTED


@pytest.mark.parametrize(("kind", "words"), [("Erf", "the function Erf"), ("HardSigmoid", "'HardSigmoid'")])
def test_what_proofs_do_not_know_is_refused_before_the_search(tmp_path: Path, kind: str, words: str) -> None:
    draft = Draft(np.random.default_rng(0))
    bent = draft.node(kind, draft.affine("X", 2, 3))
    draft.nodes.append(helper.make_node("Sigmoid", [bent], ["Y"], "last"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("X", 2), ("Y", 3))]
    graph = helper.make_graph(draft.nodes, "small", ends[:1], ends[1:], draft.held)
    files = Files(tmp_path / "net.onnx", tmp_path / "prop.vnnlib")
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    files.network.write_bytes(made.SerializeToString())
    names = "".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1", "Y_2"))
    box = "".join(f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(2))
    files.prop.write_text(f"{names}{box}(assert (<= Y_0 -1))")
    with pytest.raises(InputError, match=words):
        searched(files, tmp_path / "proof", "auto")
    assert not (tmp_path / "proof").exists()
