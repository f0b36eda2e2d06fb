"""Kernel counters: their files, their parsers, and the differences over a trial.

Must not know why a counter is read, or what its value means for a verdict."""
