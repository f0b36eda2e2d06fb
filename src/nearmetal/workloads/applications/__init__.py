"""Applications: programs from packages, or at a user's path. Each has one file that chooses its size, writes
its input, reads its output and verifies it.

This package knows no environment and starts no process."""
