"""From torch code to affine layers and groups of neurons, by running it once on symbolic values.

In goes a torch module: a user's own, or a graph that onnx2torch has made of a rewritten file (`convert`).  Out comes a
`Network`.  What is not known is refused, with the node or the line of code at fault.

    run          the whole way: trace the module, run it once more on numbers, collect the groups
    tracing      tensors that carry expressions instead of numbers, and the state of one run
    memory       what views share, and what is written through them
    expression   affine expressions in the input and the outputs of groups, with their rounding errors
    dispatch     finds the rule of every torch function that meets such a tensor
    heads        the function that a network ends with, which a property may not need
    affine, windows, piecewise, moves, smooth, compositions    the rules

A function of one number needs no rule (`verifier.functions`).  A further function of torch is one rule in one of the
last files (or in a new one beside them):

    @lowers("negative", "neg")
    def neg(low: Lowering, input: Any) -> Expression:
        return low.value(input).negated()

It has the parameters of the torch function behind the first one, and computes with expressions; `low.relu` adds a group
of ReLUs, `low.apply` one of another function, `low.refuse` says why it cannot be done.  The names are those of the
functions and methods of torch, without the underscores of in-place variants.
"""
