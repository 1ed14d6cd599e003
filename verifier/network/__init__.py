"""Networks: from a file, or a torch module, to affine layers and ReLU groups that bounds can be computed of.

The way of a file, step by step:

    models/     a path or a torch module in; a model out, which its own runtime runs.  What cannot be used is refused.
    rewrite/    an ONNX graph in; the same graph out in one small dialect of opset 17, its constants folded.
    lowering/   that graph (by onnx2torch) or a module in; a `Network` of affine layers and ReLU groups out.
    merge       a `Network` in; the same function out, without neurons that others make superfluous.
    judge       model and network in; an error if the two disagree anywhere.

`network` is what all other parts of the package see.  `entries` (matrices in exact arithmetic), `rational` (a network
in rational arithmetic) and `magnitudes` (whether float64 is enough for a proof) serve it.

To support a further ONNX operator, write one function with `@rewrites` in `rewrite/`; to support a further function of
torch, one with `@lowers` in `lowering/`.  Nothing is imported here: `network` needs torch only, the others more.
"""
