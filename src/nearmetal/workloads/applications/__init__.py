"""Programs of packages, or by a user's path: each one file that knows how to size, feed, read and verify it.

This room knows no environment and starts no process.
"""
