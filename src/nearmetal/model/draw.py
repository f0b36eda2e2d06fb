"""Drawing from a seed, the same on every machine and every Python: SHA-256 of what is drawn for."""

from __future__ import annotations

import hashlib


def draw(purpose: str, seed: int, number: int, name: str) -> bytes:
    """32 bytes that look random, for one purpose, block number and name; distinct inputs draw
    independently."""
    return hashlib.sha256(f"nearmetal-{purpose}-1/{seed}/{number}/{name}".encode()).digest()
