"""A data folder like the paper's, with networks of a few neurons."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from paper.plan import CLASSES, LISTED, PICTURED

INPUTS, HIDDEN = 4, 8
COLUMNS = "onnx,row,idx,label,target,eps_normalised,eps_pixel,expected"


def network(seed: int) -> onnx.ModelProto:
    """Two hidden layers, ten outputs."""
    rng = np.random.default_rng(seed)
    sizes = (INPUTS, HIDDEN, HIDDEN, CLASSES)
    nodes, held, last = [], [], "x"
    for k, (n, m) in enumerate(pairwise(sizes)):
        held += [
            numpy_helper.from_array(rng.normal(size=(n, m)).astype(np.float32), f"W{k}"),
            numpy_helper.from_array(rng.normal(size=m).astype(np.float32), f"b{k}"),
        ]
        nodes.append(helper.make_node("Gemm", [last, f"W{k}", f"b{k}"], [f"g{k}"]))
        last = f"g{k}"
        if k < len(sizes) - 2:
            nodes.append(helper.make_node("Relu", [last], [f"r{k}"]))
            last = f"r{k}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", INPUTS), (last, 10))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def output(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What the network says about a point."""
    weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    for k in range(3):
        x = x @ weights[f"W{k}"] + weights[f"b{k}"]
        x = np.maximum(x, 0) if k < 2 else x
    return x


def write(folder: Path, count: int = 3) -> Path:
    """Some properties of each network.  Labels are right, targets the classes that come next."""
    (folder / "onnx").mkdir(parents=True)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(count, INPUTS)).astype(np.float32)
    numbers = np.arange(count) * 7 + 3
    for seed, network_ in enumerate((*LISTED, *PICTURED)):
        model = network(seed)
        onnx.save(model, str(folder / "onnx" / f"{network_.onnx}.onnx"))
        order = np.argsort(-output(model, images), axis=1)
        if network_ in LISTED:
            lines = [f"n,{i},{numbers[i]},{order[i, 0]},{order[i, 1]},0.0{i + 1}5,0,unsat" for i in range(count)]
            (folder / f"{network_.table}.csv").write_text("\n".join([COLUMNS, *lines, ""]))
            continue
        clip = [0.0, 1.0] if network_.name == "mnist" else [-np.inf, np.inf]
        shown = np.clip(images, *clip)
        labels = output(model, shown).argmax(axis=1)
        np.savez(folder / f"{network_.onnx}_images.npz", images=shown, labels=labels, eps_input=0.1, clip=clip)
    np.savez(folder / "images.npz", idx=numbers, images=images)
    return folder
