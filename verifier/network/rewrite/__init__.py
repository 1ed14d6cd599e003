"""ONNX graphs in one small dialect: the form that onnx2torch converts without surprises.

In goes a validated model of any opset from 7 on; out comes `Normalised`, the same function in opset 17 with batch 1,
constants and shapes folded, paddings explicit and one output per node, together with the names that the file gives.

    normalise    the whole way: functions inlined, dead nodes dropped, folded, rewritten
    graph        the working copy that is rewritten, and the register of rewriters
    constants    folds what does not depend on the input, exactly where float64 allows it
    arithmetic, moves, windows, smooth    one rewriter per operator

Operators that are functions of one number need none (`verifier.functions`).  A further operator is one function in one
of the last four files (or in a new one beside them):

    @rewrites("Neg")
    def negated(graph: Graph, node: onnx.NodeProto) -> Rewritten:
        return [make("Mul", [node.input[0], graph.floats(-1.0)], [node.output[0]])]

It returns the nodes that take the place of its node, the last of which writes the node's first output, or the name of
the value that the output is equal to.  `tests/operator_grid` holds it against onnxruntime.
"""
