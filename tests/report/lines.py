"""Lines of `results.jsonl`, as a batch writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def line(name: str = "p", verdict: str = "unsat", seconds: float = 1.0, **keys: Any) -> dict[str, Any]:
    """A whole line about the property `name` of a network `net`; `keys` replace or add others."""
    base: dict[str, Any] = {
        "verdict": verdict,
        "reason": None if verdict in ("sat", "unsat") else "timeout",
        "message": None,
        "network": "/there/family/onnx/net.onnx",
        "property": f"/there/family/vnnlib/{name}.vnnlib",
        "network_sha256": None,
        "property_sha256": None,
        "timeout": 10.0,
        "time": {"total": seconds, "load": 0.1, "attack": 0.2, "root": 0.3, "search": 0.0},
        "lower_bound": -0.5,
        "counterexample": {"x": [0.5, -1.0], "y": [2.0]} if verdict == "sat" else None,
        "statistics": {"domains": 7, "peak_rss_mb": 123.4},
        "config": {"search": {"batch": 8}},
        "seed": 0,
        "device": "cpu",
        "threads": 1,
        "versions": {"strata-verifier": "0.1.0"},
        "category": "family",
        "onnx": "onnx/net.onnx",
        "vnnlib": f"vnnlib/{name}.vnnlib",
        "command": ["verify", "/there/net.onnx", f"/there/{name}.vnnlib", "--timeout", "10"],
        "run_time": seconds,
        "prepare_time": 0.0,
    }
    return base | keys


def folder(path: Path, *lines: dict[str, Any] | str) -> str:
    """A result folder with these lines; a string is written as it is."""
    path.mkdir(parents=True, exist_ok=True)
    texts = [text if isinstance(text, str) else json.dumps(text) + "\n" for text in lines]
    (path / "results.jsonl").write_text("".join(texts))
    return str(path)
