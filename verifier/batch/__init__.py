"""Many instances: lists of them, warm worker processes, results on disk, and what they say together.

Nothing here imports torch but the worker processes.
"""
