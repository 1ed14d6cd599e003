"""Sweeps for single neurons, over patches of the images before them."""
