"""What a worker is asked for: the file of its proof."""

from __future__ import annotations

import os
import string
from dataclasses import replace
from pathlib import Path

from batch.fakes import instance

from verifier.batch.instances import Instance
from verifier.batch.jobs import Terms, proof_name

HARMLESS = set(string.ascii_letters + string.digits + "_.+=,-")
BASE = Instance("acasxu", "onnx/net_1.onnx", "vnnlib/prop_1.vnnlib", "/a/net_1.onnx", "/a/prop_1.vnnlib")


def test_names_of_proofs_can_be_read() -> None:
    assert proof_name(BASE).startswith("acasxu-net_1-prop_1-")
    assert proof_name(BASE) == proof_name(replace(BASE, timeout=7.0))
    packed = replace(BASE, onnx="net.onnx.gz", vnnlib="p.vnnlib.gz")
    assert proof_name(packed).startswith("acasxu-net-p-")


def test_names_of_proofs_are_never_shared() -> None:
    """Also where all that can be read in them is the same."""
    others = [
        replace(BASE, category="acasxu 2"),
        replace(BASE, network="/b/net_1.onnx"),
        replace(BASE, prop="/b/prop_1.vnnlib"),
        replace(BASE, vnnlib="other/prop_1.vnnlib", prop="/a/other/prop_1.vnnlib"),
    ]
    assert len({proof_name(one) for one in (BASE, *others)}) == 1 + len(others)


def test_names_of_proofs_are_names_of_files() -> None:
    hostile = replace(BASE, category="../" + "ä" * 300, onnx="a b/\n\x00.onnx", vnnlib="..")
    name = proof_name(hostile)
    assert set(name) <= HARMLESS
    assert len(name.encode()) < 255
    assert os.path.basename(name) == name


def test_a_proof_is_asked_for_where_proofs_are_wanted(tmp_path: Path) -> None:
    asked = instance(tmp_path, "p")
    assert Terms().job(asked).proof is None
    assert "--proof" not in Terms().command(asked)
    terms = Terms(proofs="/proofs")
    assert terms.job(asked).proof == os.path.join("/proofs", proof_name(asked))
    # Who repeats the instance gets a file of their own, not the one that the batch speaks of.
    assert terms.command(asked)[-2:] == ["--proof", proof_name(asked)]
