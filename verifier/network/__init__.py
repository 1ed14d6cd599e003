"""Networks: read from ONNX or a torch module, checked, and held as affine layers and ReLU groups.

Submodules are not imported here: `network` needs torch only, `onnx` also onnx, onnxruntime and onnx2torch.
"""
