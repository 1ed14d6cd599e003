"""Limits of control groups, told by files as kernels write them: both versions, nested, in containers, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verifier.cgroups import ControlGroups
from verifier.machine import Machine, cores_each, memory_budget, memory_each, memory_total, workers
from verifier.processes import cores

GB = 2**30
NONE_V1 = 9223372036854771712
"""What version 1 says where memory is not limited."""


def groups(top: Path, names: str, files: dict[str, str]) -> ControlGroups:
    """A system with these control groups, and nothing else."""
    (top / "proc/self").mkdir(parents=True)
    (top / "proc/self/cgroup").write_text(names)
    for name, text in files.items():
        path = top / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return ControlGroups(top)


V1 = "7:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"


@pytest.mark.parametrize(
    ("names", "files", "cpus", "memory"),
    [
        pytest.param("0::/\n", {"cpu.max": "150000 100000", "memory.max": str(GB)}, 1.5, GB, id="docker, version 2"),
        pytest.param("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, None, None, id="no limit, version 2"),
        pytest.param(
            "0::/user.slice/job.scope\n",
            {
                "user.slice/job.scope/cpu.max": "max 100000",
                "user.slice/cpu.max": "50000 25000",
                "user.slice/job.scope/memory.max": str(3 * GB),
                "user.slice/memory.max": str(2 * GB),
            },
            2.0,
            2 * GB,
            id="the group above limits",
        ),
        pytest.param(
            "0::/system.slice/docker-abc.scope\n",
            {"cpu.max": "400000 100000", "memory.max": str(GB)},
            4.0,
            GB,
            id="named as on the host",
        ),
        pytest.param(
            "0::/../../other\n", {"cpu.max": "300000 100000", "memory.max": str(GB)}, 3.0, GB, id="a group outside"
        ),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
                "memory/docker/abc/memory.limit_in_bytes": str(5 * GB),
                "memory/memory.limit_in_bytes": str(NONE_V1),
            },
            2.5,
            5 * GB,
            id="version 1",
        ),
        pytest.param(
            V1,
            {
                "cpu/cpu.cfs_quota_us": "100000",
                "cpu/cpu.cfs_period_us": "50000",
                "memory/memory.limit_in_bytes": str(GB),
            },
            2.0,
            GB,
            id="docker, version 1",
        ),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
                "memory/docker/abc/memory.limit_in_bytes": str(NONE_V1),
            },
            None,
            NONE_V1,
            id="no limit, version 1",
        ),
        pytest.param(
            "4:memory:/a\n0::/a\n",
            {"unified/a/cpu.max": "100000 100000", "memory/a/memory.limit_in_bytes": str(GB)},
            1.0,
            GB,
            id="both versions",
        ),
        pytest.param("", {}, None, None, id="no groups"),
        pytest.param("nonsense\n0::\n", {"cpu.max": "many", "memory.max": ""}, None, None, id="nonsense"),
        pytest.param("0::/\n", {"cpu.max": "0 0", "memory.max": "-5"}, None, None, id="no numbers that make sense"),
    ],
)
def test_limits(tmp_path: Path, names: str, files: dict[str, str], cpus: float | None, memory: int | None) -> None:
    found = groups(tmp_path, names, files)
    assert (found.cpus(), found.memory()) == (cpus, memory)


def test_without_the_files_nothing_is_limited(tmp_path: Path) -> None:
    assert (ControlGroups(tmp_path).cpus(), ControlGroups(tmp_path).memory()) == (None, None)


BOUND = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(1_000, 1), (50_000, 1), (100_000, 1), (110_000, min(2, BOUND)), (10**9, BOUND)],
)
def test_a_part_of_a_core_counts_as_one_and_affinity_still_holds(tmp_path: Path, quota: int, expected: int) -> None:
    assert cores(groups(tmp_path, "0::/\n", {"cpu.max": f"{quota} 100000"})) == expected


def test_memory_is_the_lesser_of_machine_and_group(tmp_path: Path) -> None:
    whole = memory_total(ControlGroups(tmp_path / "none"))
    assert whole is not None
    assert memory_total(groups(tmp_path / "small", "0::/\n", {"memory.max": "12345678"})) == 12345678
    assert memory_total(groups(tmp_path / "large", "0::/\n", {"memory.max": str(100 * whole)})) == whole


def test_a_small_container_gets_small_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, workers and budgets that nobody has named follow the limits of the groups."""
    files = {"cpu.max": "100000 100000", "memory.max": str(GB)}
    small = groups(tmp_path, "0::/\n", files)
    for module in ("processes", "machine"):
        monkeypatch.setattr(f"verifier.{module}.ControlGroups", lambda: small)
    assert (Machine().cores, workers(Machine()), cores_each(3)) == (1, 1, 1)
    assert (memory_budget(None), memory_each(2)) == (GB // 2, int(0.9 * GB / 2))
    assert Machine(threads=3).cores == 3  # what somebody has named stays
