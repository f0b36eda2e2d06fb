"""Builds networks. This is a separate program, since it moves between network
namespaces.

It reads one request as JSON on standard input (from plan.request()), and writes one line of
JSON. The kernel makes the namespaces while pyroute2 is imported, which takes about as long."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from ..host.namespaces import make_network_namespaces
from ..host.processes.parent import die_with_parent


class _Namespaces(threading.Thread):
    """Makes network namespaces in a separate thread, since the thread that makes them enters each of them.

    names: names below /run/netns.
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
        """Wait until all namespaces are made.

        Raises OSError if one could not be made.
        """
        self.join()
        if self._error is not None:
            raise self._error


def main() -> None:
    """Handle one request. An invalid request ends the program with a traceback, whose last line the caller
    shows.

    The argument is the PID of nearmetal if its namespaces outlive it. The worker is then killed together with
    it: a worker that went on could move a device after `nearmetal clean` has looked for it.
    """
    for pid in sys.argv[1:]:
        die_with_parent(int(pid))
    request: dict[str, Any] = json.load(sys.stdin)
    namespaces = _Namespaces(request.get("create", []))
    try:
        from .making import make_networks
    finally:
        namespaces.wait()
    sys.stdout.write(json.dumps(make_networks(request)) + "\n")


if __name__ == "__main__":
    main()
