"""Properties: VNN-LIB text to boxes and rows, and back for local robustness."""
