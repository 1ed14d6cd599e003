"""The operators that can be lowered, as they are named in error messages and by `verify show`."""

from __future__ import annotations

AFFINE = """
    Add Sub Mul Div Neg Sum Mean Gemm MatMul Conv ConvTranspose BatchNormalization AveragePool
    GlobalAveragePool ReduceSum ReduceMean
""".split()

MOVING = """
    Flatten Reshape Transpose Squeeze Unsqueeze Slice Split Concat Gather GatherElements Expand Tile Pad Where
    Identity Dropout Cast DepthToSpace SpaceToDepth
""".split()

PIECEWISE = """
    Relu LeakyRelu PRelu Clip HardSigmoid Abs Max Min ReduceMax ReduceMin MaxPool GlobalMaxPool
""".split()

SUPPORTED: tuple[str, ...] = (*AFFINE, *MOVING, *PIECEWISE)
