"""The experiments of the paper, regenerated: its data become properties, a plan says who bounds and decides which."""
