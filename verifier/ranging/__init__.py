"""Certified ranges of outputs: how small and how large linear functions of them become over an input set."""
