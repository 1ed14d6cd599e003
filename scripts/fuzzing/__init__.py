"""Random instances whose answer is known exactly, and the judgement of verdicts by them (`scripts/fuzz.py`).

Everything that knows the truth (simplex, interpreter, pieces) is shared with nothing of package `verifier`.
"""
