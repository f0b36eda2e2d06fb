"""The command line: it parses, calls, prints and exits. No other package prints or exits.

It must not make decisions about a run or a report; it calls the package api."""

from .app import main
