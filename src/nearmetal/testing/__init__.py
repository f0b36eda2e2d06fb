"""Helpers for tests of this project and of backends in other packages: a strict fake host, and simulated
records with known overheads.

Nothing that runs in production imports this package.
"""
