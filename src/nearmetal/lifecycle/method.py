"""The methods by which an instance is checkpointed, restored or moved."""

from __future__ import annotations

from enum import StrEnum

LOSES = (
    "loses the instance if the connection breaks, or either side fails, while memory is still to be fetched"
)
"""What methods do whose instance goes on before its memory has arrived (Method.fetches_later)."""
_WITH_TOOL = "if nearmetal is killed or twice interrupted then"
"""Further risk of CRIU_LAZY, whose memory is sent by programs that end with nearmetal."""


class Method(StrEnum):
    """A method of checkpoint or migration. Study files, options and output use these names and no others.

    OFFLINE: the guest stands still until all of its memory has been sent.
    PRECOPY: memory is sent while the guest runs, and changed pages again, until the rest is small.
    POSTCOPY: the guest goes on at the destination at once, and fetches the pages that it touches.
    MULTIFD: PRECOPY over several connections.
    CRIU: the process tree is written to files, which are then restored.
    CRIU_LAZY: the processes go on at the destination at once, and fetch the pages that they touch.
    CRIU_PAGESERVER: the pages are sent to a server at the destination instead of to files.
    CRIU_PRECOPY: pages are written while the processes run, and changed pages again.
    DMTCP: a library in each process of an MPI job writes it to a file; all are restarted elsewhere.
    STREAM: the saved state is sent through a connection without a file.
    AUTO: the method is chosen for a stated bound on the downtime or the total time.
    """

    OFFLINE = "offline"
    PRECOPY = "precopy"
    POSTCOPY = "postcopy"
    MULTIFD = "multifd"
    CRIU = "criu"
    CRIU_LAZY = "criu-lazy"
    CRIU_PAGESERVER = "criu-pageserver"
    CRIU_PRECOPY = "criu-precopy"
    DMTCP = "dmtcp"
    STREAM = "stream"
    AUTO = "auto"

    @property
    def by_criu(self) -> bool:
        """Whether CRIU writes and restores the processes of the instance."""
        return self.value.startswith("criu")

    @property
    def of_processes(self) -> bool:
        """Whether processes are written and restored, instead of a guest."""
        return self.by_criu or self is Method.DMTCP

    @property
    def copies_first(self) -> bool:
        """Whether memory is sent in rounds while the instance runs, so that the move may never converge."""
        return self in (Method.PRECOPY, Method.MULTIFD, Method.CRIU_PRECOPY)

    @property
    def fetches_later(self) -> bool:
        """Whether the instance goes on before its memory has arrived, so that it is lost if the connection
        is."""
        return self in (Method.POSTCOPY, Method.CRIU_LAZY)

    @property
    def risk(self) -> str:
        """What users must know before they choose the method, as a sentence; empty if there is no such
        risk."""
        with_tool = f"; also {_WITH_TOOL}" if self is Method.CRIU_LAZY else ""
        return f"{self} {LOSES}{with_tool}" if self.fetches_later else ""
