"""Results: what cannot be, and the JSON contract."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from importlib import metadata

import numpy as np
import pytest

from verifier.clock import Clock, process_start
from verifier.errors import InputError, SoundnessError, UnsupportedOperator
from verifier.result.counterexample import _REPLAYED, Counterexample
from verifier.result.result import Result, Setting, Statistics
from verifier.result.status import Status, versions
from verifier.result.verdict import Reason, Verdict


def witness(exact: bool = True) -> Counterexample:
    return Counterexample(np.float32([0.1]), np.float32([2.0, 3.0]), 0, exact, token=_REPLAYED)


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": Verdict.SAT},
        {"verdict": Verdict.UNSAT, "counterexample": True},
        {"verdict": Verdict.UNKNOWN, "counterexample": True, "reason": Reason.LIMIT},
        {"verdict": Verdict.UNSAT, "reason": Reason.LIMIT},
        {"verdict": Verdict.SAT, "counterexample": True, "reason": Reason.TIMEOUT},
        {"verdict": Verdict.UNKNOWN},
        {"verdict": Verdict.TIMEOUT},
        {"verdict": Verdict.ERROR},
    ],
)
def test_contradictory_results_cannot_be_made(fields: dict[str, object]) -> None:
    if fields.get("counterexample"):
        fields = fields | {"counterexample": witness()}
    with pytest.raises(SoundnessError):
        Result(**fields)


@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict.UNSAT, 0), (Verdict.SAT, 1), (Verdict.UNKNOWN, 3), (Verdict.TIMEOUT, 3)]
)
def test_exit_codes(verdict: Verdict, code: int) -> None:
    assert verdict.exit_code == code


KEYS = (
    "verdict reason network property network_sha256 property_sha256 timeout time lower_bound counterexample "
    "statistics config seed device threads versions"
).split()


def test_json_has_the_documented_keys_and_nothing_is_lost() -> None:
    setting = Setting("n.onnx", "p.vnnlib", 5.0, {"falsify": {"steps": 3}}, seed=7)
    status = Status(setting, Clock.begin(5.0), network_sha256="ab", device="cpu", threads=2, lower_bound=-0.25)
    status.statistics = Statistics(domains=3, domains_by_tier={"big_m": 3})
    data = json.loads(status.conclude(Verdict.SAT, counterexample=witness()).as_json())
    assert set(data) == {*KEYS, "message", "arithmetic", "rounding_witness", "undecided", "proof"}
    assert (data["verdict"], data["reason"], data["message"]) == ("sat", None, None)
    assert data["counterexample"] == {"x": [float(np.float32(0.1))], "y": [2.0, 3.0]}
    assert set(data["time"]) == {"total", "load", "attack", "root", "search"}
    assert data["statistics"].keys() == {
        *(
            "domains",
            "domains_by_tier",
            "leaves_lp",
            "max_open",
            "batches",
            "bound_iterations",
            "looks",
            "earlier_runs",
            "earlier_seconds",
            "claimed",
            "peak_rss_mb",
        )
    }
    assert data["statistics"]["domains_by_tier"] == {"big_m": 3}
    assert data["statistics"]["peak_rss_mb"] > 1
    assert (data["config"], data["seed"], data["timeout"]) == ({"falsify": {"steps": 3}}, 7, 5.0)
    assert (data["network_sha256"], data["device"], data["threads"], data["lower_bound"]) == ("ab", "cpu", 2, -0.25)
    libraries = {"torch", "onnx", "onnxruntime", "onnx2torch", "numpy", "highspy"}
    assert data["versions"].keys() == {"strata-verifier", "python", *libraries}
    assert data["versions"]["onnx2torch"] == metadata.version("onnx2torch")


def test_versions_are_known_before_anything_is_imported() -> None:
    script = (
        "import sys; from verifier.result.status import versions\nfound = versions()\n"
        "print(*found, '|', *(n for n in found if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    known, _, loaded = done.stdout.partition("|")
    assert {"torch", "onnx", "onnxruntime", "onnx2torch", "highspy"} <= set(known.split())
    assert {"torch", "onnx", "onnxruntime", "onnx2torch", "highspy"} & set(loaded.split()) == set()


def test_versions_of_a_damaged_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> str:
        raise KeyError(name)

    monkeypatch.setattr(metadata, "version", broken)
    found = versions.__wrapped__()
    assert found["numpy"] == np.__version__
    assert "strata-verifier" in found


def test_a_witness_of_an_inexact_box_is_marked() -> None:
    data = Result(Verdict.SAT, counterexample=witness(exact=False)).as_dict()
    assert data["counterexample"]["exact"] is False


def test_json_knows_no_infinity() -> None:
    result = Result(Verdict.UNKNOWN, Reason.LIMIT, lower_bound=-math.inf, time={"total": math.nan})
    data = json.loads(result.as_json())
    assert data["lower_bound"] is None
    assert data["time"]["total"] is None


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (InputError("it is empty", "a.onnx"), "a.onnx: it is empty", "a.onnx: it is empty"),
        (UnsupportedOperator("n1", "Sin", "no"), "unsupported", "node 'n1' of type Sin is not supported: no"),
        (KeyError("k\nl"), "internal error: KeyError: 'k\\nl'", "internal error: KeyError: 'k\\nl'"),
    ],
)
def test_errors_become_results_with_a_reason(error: Exception, reason: str, message: str) -> None:
    data = Status(Setting("n", "p")).fail(error).as_dict()
    assert (data["verdict"], data["reason"], data["message"]) == ("error", reason, message)
    assert (data["network"], data["property"]) == ("n", "p")


def test_the_ledger_adds_phases_up_and_counts_the_running_one() -> None:
    status = Status()
    for _ in range(2):
        with status.phase("attack"):
            time.sleep(0.02)
    assert status.running is None
    with status.phase("root"):
        time.sleep(0.01)
        times = status.times()
    assert times["attack"] >= 0.04
    assert times["root"] >= 0.01
    assert times["load"] == times["search"] == 0.0


def test_a_phase_that_raises_is_counted_too() -> None:
    status = Status()

    def fail() -> None:
        with status.phase("load"):
            time.sleep(0.01)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    assert status.times()["load"] >= 0.01
    assert status.running is None


def test_peak_memory_grows_with_the_process() -> None:
    """In a process of its own: this one may have had far more already."""
    program = (
        "from verifier.result.result import peak_rss_mb\nbefore = peak_rss_mb()\n"
        "ballast = b'x' * 100_000_000\nprint(before, peak_rss_mb())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert 1 < before < after - 80


def test_clock() -> None:
    assert Clock.begin().remaining() == math.inf
    assert not Clock.begin().expired()
    assert Clock.begin(0.0).expired()
    clock = Clock.begin(100.0, start=time.monotonic() - 40.0)
    assert 0 < clock.remaining() <= 60
    assert 40 <= clock.elapsed() < 100
    assert clock.elapsed() + clock.remaining() == pytest.approx(100, abs=40)
    assert clock.within(1.0).remaining() <= 1.0
    assert clock.within(1e9) == clock
    assert clock.within(1.0).start == clock.start


def test_the_process_began_before_now_and_not_long_ago() -> None:
    age = time.monotonic() - process_start()
    assert 0 < age < 86400
    assert abs(time.monotonic() - process_start() - age) < 1.0
