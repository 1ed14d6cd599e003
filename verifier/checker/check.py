"""A network, a property and a proof in; a judgement out."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .graph import read_network
from .merge import merged
from .proving import Setting
from .stream import Rejected, Unreadable, opened
from .tree import Walk
from .vnnlib import read_property

ACCEPTED, REJECTED, UNREADABLE = "accepted", "rejected", "unreadable"
EXIT_CODES = {ACCEPTED: 0, REJECTED: 1, UNREADABLE: 2}


@dataclass(frozen=True)
class Judgement:
    """What became of a proof: nodes that were read, clauses that were closed in leaves, the least bound of these."""

    verdict: str
    reason: str | None = None
    node: int | None = None
    nodes: int = 0
    closed: int = 0
    margin: float | None = None
    exact: bool = False

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def record(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if self.verdict == ACCEPTED:
            margin = "" if self.margin is None else f", least margin {self.margin:.3g}"
            return f"accepted ({self.nodes} nodes, {self.closed} closings{margin})"
        where = "" if self.node is None else f" at node {self.node}"
        return f"{self.verdict}{where}: {self.reason}"


def check(
    network: str, prop: str, proof: str, exact: bool = False, tell: Callable[[Walk], None] | None = None
) -> Judgement:
    """Judges a proof that a network has no point that a property calls unsafe.  Never raises what a file can cause.

    `tell` hears of every node.
    """
    walk: Walk | None = None
    try:
        (net_raw, net_data), (prop_raw, prop_data) = _read(network), _read(prop)
        net, _ = read_network(net_data)
        clauses = read_property(_text(prop_data))
        if exact and not net.piecewise_linear:
            raise Unreadable("rational arithmetic has ReLUs only, and the network has other functions")
        with opened(proof) as (header, claims, stream):
            for name, raw, digest in (("network", net_raw, header.network), ("property", prop_raw, header.property)):
                if hashlib.sha256(raw).hexdigest() != digest:
                    raise Rejected(f"it is a proof about another {name}")
            if any(len(clause.low) != net.n_in or clause.n_y != net.layers[-1].size for clause in clauses):
                raise Unreadable("network and property do not have the same numbers of inputs and outputs")
            walk = Walk(Setting(net, clauses, exact), stream)
            if claims is not None:
                walk.setting = Setting(merged(net, claims), clauses, exact)
            walk.run(tell or _silent)
        margin = walk.margin if walk.margin < math.inf else None
        return Judgement(ACCEPTED, None, None, walk.nodes, walk.closed, margin, exact)
    except Unreadable as error:
        return Judgement(UNREADABLE, str(error), exact=exact)
    except Exception as error:  # whatever was not foreseen rejects
        reason = str(error) if isinstance(error, Rejected) else f"unexpected {type(error).__name__}: {error}"
        node, nodes, closed = (walk.nodes, walk.nodes, walk.closed) if walk else (None, 0, 0)
        return Judgement(REJECTED, reason, node, nodes, closed, exact=exact)


def refusal(network: str, inputs: int, prop: str | None = None) -> str | None:
    """Why proofs about a network, and a property if it is given, could not be judged; None if they can."""
    try:
        net, shape = read_network(_read(network)[1])
        if net.n_in != inputs:
            raise Unreadable(f"the network has an input of shape {list(shape)}, not of {inputs} entries")
        if prop is not None:
            read_property(_text(_read(prop)[1]))
    except Unreadable as error:
        return str(error)
    return None


def _silent(walk: Walk) -> None:
    """Nobody listens."""


def _read(path: str) -> tuple[bytes, bytes]:
    """The bytes of a file as they lie there, and unpacked; `path.gz` if there is no such file."""
    try:
        found = Path(path) if Path(path).exists() else Path(path + ".gz")
        raw = found.read_bytes()
        return raw, gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"the property is no text: {error}") from error
