"""The command line: parses, calls, prints, exits. Nothing else prints or exits."""

from .app import main

__all__ = ["main"]
