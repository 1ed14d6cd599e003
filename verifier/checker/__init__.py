"""An independent checker of proofs: it accepts or rejects the file that a search has written for an `unsat`.

It imports numpy and onnx's reader of files, nothing of the search, and it runs where only this folder is:

    python -m checker NET PROP PROOF

Read in this order; docs/proofs.md has the format, the derivation and the constants of rounding.

    inequality   the one bound that everything rests on, in float64 with its rounding subtracted
    scope        what is known at a node: a box, bounds of neurons, open clauses; intervals
    tree         the rules, and the walk over a proof
    implied      signs that a row of a clause forces
    witness      bytes to multipliers; not trusted, because every multiplier is sound
    stream       the archive, and numbers from its bytes
    exact        the same inequality in rational arithmetic
    maps         linear maps: forward, transposed, with absolute values
    network      affine layers and groups of ReLUs
    graph        an ONNX file as such a network
    windows      the operators of it that slide a window
    vnnlib       a VNN-LIB file as boxes and clauses

What it cannot read or does not expect, it rejects.
"""
