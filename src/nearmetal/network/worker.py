"""Build networks, and give devices back. This is a program of its own, since it moves between network
namespaces.

It reads one request as JSON on standard input (plan.request, or that of devices.py), and writes one line of
JSON. The kernel makes the namespaces while pyroute2 is imported, which takes as long.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from ..host.namespaces import make_network_namespaces


class _Namespaces(threading.Thread):
    """Makes network namespaces in a thread of its own, since this thread enters each of them once.

    names: below /run/netns.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names
        self._error: OSError | None = None
        self.start()

    def run(self) -> None:
        try:
            make_network_namespaces(self._names)
        except OSError as e:
            self._error = e

    def wait(self) -> None:
        """Wait until all are made.

        Raises OSError if one could not be made.
        """
        self.join()
        if self._error is not None:
            raise self._error


def main() -> None:
    """Handle one request. An error of the request itself ends the program with a traceback, whose last line
    the caller shows."""
    asked: dict[str, Any] = json.load(sys.stdin)
    namespaces = _Namespaces(asked.get("create", []))
    try:
        from .making import give_back, make_networks
    finally:
        namespaces.wait()
    answer = give_back(asked) if "give_back" in asked else make_networks(asked)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
