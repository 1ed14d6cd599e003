"""Robustness around inputs: accuracies over data sets, and the radius of single inputs."""
