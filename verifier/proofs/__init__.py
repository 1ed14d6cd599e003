"""Proofs: what a search writes down so that an independent program can check its `unsat` (docs/proofs.md)."""
