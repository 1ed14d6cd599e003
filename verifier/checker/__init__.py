"""An independent checker of proofs: it accepts or rejects the file that a search has written for an `unsat`.

It imports numpy and onnx's reader of files, nothing of the search, and it runs where only this folder is:

    python -m checker NET PROP PROOF

Read in this order; docs/proofs.md has the format, the derivation and the constants of rounding.

    inequality   the one bound that everything rests on, in float64 with its rounding subtracted
    scope        what is known at a node: a box, bounds of neurons; intervals
    nodes        the rules: what each kind of node requires, and what it leaves to prove
    implied      signs that a row of a clause forces
    zonotope     bounds of all neurons by going forward once
    proving      the inequality for many nodes at once; the same in rational arithmetic
    tree         the walk over a proof
    witness      bytes to multipliers; not trusted, because every multiplier is sound
    stream       the archive, and numbers from its bytes
    rationals    arrays of rational numbers
    maps         linear maps: forward, transposed, with absolute values
    network      affine layers and groups of ReLUs
    expression   values inside of a network, as affine expressions
    graph        an ONNX file as such a network; `rules`, `operators` and `windows` are its operators
    vnnlib       a VNN-LIB file as boxes and clauses

What it cannot read or does not expect, it rejects.
"""
