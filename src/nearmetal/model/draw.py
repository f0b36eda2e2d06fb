"""Pseudo-random draws from a seed, identical on every machine and Python version. A draw is the SHA-256 of
its purpose and its numbers."""

from __future__ import annotations

import hashlib


def draw(purpose: str, seed: int, number: int, name: str) -> bytes:
    """Return 32 pseudo-random bytes for one purpose, block number and name. Different inputs give independent
    bytes."""
    return hashlib.sha256(f"nearmetal-{purpose}-1/{seed}/{number}/{name}".encode()).digest()
