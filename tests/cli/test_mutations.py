"""Damaged files: each still is an instance, or ends in one sentence and exit code 2."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

COUNT = 200


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One of several kinds of damage."""
    where, length = chance.randrange(len(data)), chance.randrange(1, 9)
    kind = chance.randrange(5)
    if kind == 0:
        return data[:where]
    if kind == 1:
        return data[:where] + data[where + length :]
    if kind == 2:
        return data[:where] + bytes(chance.randrange(256) for _ in range(length)) + data[where + length :]
    if kind == 3:
        start = chance.randrange(len(data))
        return data[:where] + data[start : start + 4 * length] + data[where:]
    flipped = bytearray(data)
    flipped[where] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def reworded(text: str, chance: random.Random) -> str:
    """Words of a property exchanged, doubled or dropped: closer to what people get wrong than random bytes."""
    words = text.replace("(", " ( ").replace(")", " ) ").split()
    odd = [
        "(",
        ")",
        "nan",
        "inf",
        "-1e400",
        "1e-400",
        "X_9",
        "Y_0",
        "X_0",
        "or",
        "and",
        "not",
        "<=",
        "==",
        "1..2",
        "assert",
    ]
    for _ in range(chance.randrange(1, 4)):
        where = chance.randrange(len(words))
        words[where : where + chance.randrange(2)] = [chance.choice([*odd, *words])] * chance.randrange(3)
    return " ".join(words)


@pytest.mark.parametrize("which", ["network", "property", "words"])
def test_damaged_files_end_cleanly(verify: Any, tiny: Any, tmp_path: Path, which: str) -> None:
    chance = random.Random(which)
    codes: Counter[int] = Counter()
    path = tmp_path / "damaged"
    for number in range(COUNT):
        if which == "words":
            path.write_text(reworded(Path(tiny.sat).read_text(), chance))
        else:
            path.write_bytes(damaged(Path(tiny.net if which == "network" else tiny.sat).read_bytes(), chance))
        files = (path, tiny.sat) if which == "network" else (tiny.net, path)
        outcome = verify(
            *files, "--set", "falsify.steps=2", "--set", "falsify.samples=8", "--set", "falsify.restarts=2"
        )
        context = f"{which} {number}: {outcome}"
        assert outcome.code in (0, 1, 2, 3), context
        assert "Traceback" not in outcome.err, context
        assert (outcome.out == "") == (outcome.code == 2), context
        if outcome.code == 2:
            assert outcome.err.startswith("error: "), context
            assert outcome.err.count("\n") == 1, context
        codes[outcome.code] += 1
    assert codes[2] > COUNT / 10, codes
    assert codes[2] < COUNT, codes
