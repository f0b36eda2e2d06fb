"""The command line: parses, calls, prints, exits. Nothing else prints or exits.

It must not decide anything about a run or a report; it asks the package api.
"""

from .app import main

__all__ = ["main"]
