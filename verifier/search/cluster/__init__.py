"""One tree on many machines."""
