"""The proofs of a batch: what is said of each, and what a later reader makes of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from report.lines import folder, line

from verifier.batch.checks import Check, Standing, check_proof, exit_code, kept, last_line, proved_of, read_checks
from verifier.batch.checks import standing_of as standing
from verifier.batch.records import Record, parse
from verifier.errors import InputError


def written(path: Path, data: bytes = b"no proof at all") -> dict[str, Any]:
    """What a line says of a proof that lies there."""
    path.write_bytes(data)
    return {"file": str(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "leaves": 3}


def record(**keys: Any) -> Record:
    found = parse(json.dumps(line("p", proof_wanted=True, **keys)))
    assert found is not None
    return found


def made(outcome: Standing, name: str = "p", margin: float | None = None) -> Check:
    return Check("family", "net", name, "/net", f"/{name}", None, None, outcome, margin=margin)


def test_only_the_file_that_the_batch_wrote_is_judged(tmp_path: Path) -> None:
    proof = written(tmp_path / "proof")
    broken = check_proof(record(proof=proof))
    assert broken.standing is Standing.UNREADABLE  # the network is not there
    (tmp_path / "proof").write_bytes(b"another one")
    assert check_proof(record(proof=proof)).standing is Standing.REJECTED
    (tmp_path / "proof").unlink()
    assert check_proof(record(proof=proof)).standing is Standing.MISSING


def test_a_proof_that_was_never_written_is_missing_and_says_why() -> None:
    found = check_proof(record(message="no proof was written: a domain lacks its sibling"))
    assert (found.standing, found.reason) == (Standing.MISSING, "no proof was written: a domain lacks its sibling")
    unasked = parse(json.dumps(line("p")))
    assert unasked is not None
    assert check_proof(unasked).standing is Standing.MISSING


@pytest.mark.parametrize(
    ("standings", "code"),
    [
        ([], 0),
        ([Standing.ACCEPTED], 0),
        ([Standing.ACCEPTED, Standing.REJECTED], 1),
        ([Standing.MISSING, Standing.ACCEPTED], 1),
        ([Standing.ACCEPTED, Standing.UNREADABLE], 2),
        ([Standing.UNREADABLE, Standing.REJECTED], 1),
    ],
)
def test_exit_codes(standings: list[Standing], code: int) -> None:
    assert exit_code([made(outcome) for outcome in standings]) == code


def test_the_last_line() -> None:
    found = [made(Standing.ACCEPTED, margin=0.25), made(Standing.ACCEPTED, margin=0.125), made(Standing.MISSING)]
    assert last_line(found, 4) == "3 of 4 proofs: 2 accepted, 1 missing; least margin 0.125"
    assert last_line([], 0) == "0 of 0 proofs: none is wanted where nothing is unsat"


def test_checks_are_read_back_as_they_were_kept(tmp_path: Path) -> None:
    found = [made(Standing.ACCEPTED, "a", 0.1), made(Standing.REJECTED, "b")]
    with kept(str(tmp_path)) as keep:
        keep(found[0])
        assert list(read_checks(tmp_path).values()) == found[:1]  # at once
        keep(found[1])
    assert list(read_checks(tmp_path).values()) == found
    with (tmp_path / "checks.jsonl").open("a") as stream:
        stream.write('7\n{"verdict": "accepted"}\n{torn')
    assert list(read_checks(tmp_path).values()) == found
    with kept(str(tmp_path)):
        pass
    assert read_checks(tmp_path) == {}


def test_what_was_said_of_an_older_proof_does_not_count(tmp_path: Path) -> None:
    old, new = (record(proof=written(tmp_path / "proof", data)) for data in (b"old", b"new"))
    assert old.proof is not None
    names = (*old.names, *old.files)
    said = Check(*names, old.proof.file, old.proof.sha256, Standing.ACCEPTED)
    checks = {said.key: said}
    assert standing(old, checks) is Standing.ACCEPTED
    assert standing(new, checks) is None
    assert standing(old, {}) is None
    assert standing(record(), checks) is Standing.MISSING


def test_every_unsat_counts_once_and_nothing_else(tmp_path: Path) -> None:
    proof = written(tmp_path / "proof")
    again = line("a") | {"proof": proof}
    elsewhere = line("a") | {"network": "/elsewhere/family/onnx/net.onnx"}  # of another folder of the same name
    source = folder(tmp_path / "run", line("a"), line("b", "sat"), line("c", "timeout"), elsewhere, again)
    found = proved_of(source)
    assert [(r.vnnlib, r.network, r.proof is None) for r in found] == [
        ("vnnlib/a.vnnlib", "/there/family/onnx/net.onnx", False),
        ("vnnlib/a.vnnlib", "/elsewhere/family/onnx/net.onnx", True),
    ]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no results\.jsonl"):
        proved_of(str(tmp_path))
