"""What the control groups of Linux leave to this process: cores and memory, as containers and batch systems set them.

A machine has one tree of groups (version 2), or one for each kind of resource (version 1), or both.  A limit of any
group above a process holds for it.  Inside of a container the own group is often the top of what can be seen, although
the kernel names it by its place on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TREES = "sys/fs/cgroup"
NAMES = "proc/self/cgroup"


@dataclass(frozen=True)
class ControlGroups:
    """Those of this process, as the files below `top` tell them; where there are none, nothing is limited."""

    top: Path = Path("/")

    def cpus(self) -> float | None:
        """How many cores' worth of time it may use (`docker --cpus`); None if there is no such limit."""
        found = [_share(*_words(group / "cpu.max", 2)) for group in self._groups("")]
        for group in self._groups("cpu"):
            files = group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us"
            found.append(_share(*(word for file in files for word in _words(file, 1))))
        return min((share for share in found if share is not None), default=None)

    def memory(self) -> int | None:
        """How many bytes it may hold (`docker --memory`); None if there is no such limit."""
        found = [_number(*_words(group / "memory.max", 1)) for group in self._groups("")]
        found += [_number(*_words(group / "memory.limit_in_bytes", 1)) for group in self._groups("memory")]
        return min((limit for limit in found if limit is not None and limit > 0), default=None)

    def _groups(self, kind: str) -> Iterator[Path]:
        """The groups that the process is in, from its own one to the top of the tree for one kind of resource.

        The tree of version 2 has no kind.
        """
        for tree, own in self._trees(kind):
            folder = tree / own.lstrip("/")
            # The name of a group on the host leads nowhere in a container, which sees its own group as the top.
            inside = folder if folder.is_dir() and ".." not in folder.parts else tree
            yield inside
            yield from (parent for parent in inside.parents if parent.is_relative_to(tree))

    def _trees(self, kind: str) -> Iterator[tuple[Path, str]]:
        """The folders of trees for one kind of resource, and the name of the process's own group there."""
        trees = self.top / TREES
        try:
            lines = (self.top / NAMES).read_text().splitlines()
        except OSError:
            return
        for number, kinds, own in (line.split(":", 2) for line in lines if line.count(":") >= 2):
            if kind in kinds.split(",") and bool(kind) == (number != "0"):
                folders = (kinds, kind) if kind else ("", "unified")
                yield from ((trees / folder, own) for folder in dict.fromkeys(folders) if (trees / folder).is_dir())


def _words(file: Path, count: int) -> list[str]:
    """The words of a file; no more and no fewer, else none."""
    try:
        words = file.read_text().split()
    except OSError:
        return []
    return words if len(words) == count else []


def _number(word: str = "") -> int | None:
    """What a word says; words for "no limit" are no numbers."""
    try:
        return int(word)
    except ValueError:
        return None


def _share(quota: str = "", period: str = "") -> float | None:
    """Time per time: a quota of microseconds in each period."""
    most, each = _number(quota), _number(period)
    return None if most is None or each is None or most <= 0 or each <= 0 else most / each
