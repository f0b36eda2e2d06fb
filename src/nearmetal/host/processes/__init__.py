"""Processes: starting helpers, talking with them, naming their failures, finding those of a run.

Must not know what a process computes.
"""
