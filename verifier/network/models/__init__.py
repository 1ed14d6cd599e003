"""Networks as they are given, run by their own runtime: ONNX files by onnxruntime, torch modules by torch.

In goes a path or a module.  Out comes a `SourceModel`: it tells its shapes and its identity, runs the original, which
judges the lowered network and every counterexample, and has itself lowered to a `Network`.  Whatever is wrong with what
was given is an InputError of one sentence.

    onnx       reads a file: identity -> validate -> (on demand) rewrite, convert, lower
    identity   the digest of a file and of the files that hold its weights; needs neither torch nor onnx
    validate   what a file must satisfy before anything reads it
    module     a torch module, copied; module_state refuses what cannot be read, and tells what a module remembers
"""
