"""The instances that run on a node. Programs are started in an instance through its node, so that another
process can take the instance over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ...environments import Instance


class Instances(dict[str, Instance]):
    """The running instances of a node. The key is the label with which an instance was started."""

    @contextmanager
    def started(self, start: AbstractContextManager[Instance]) -> Iterator[Instance]:
        """Start an instance, and register it until exit, when it is stopped."""
        with start as instance:
            self[instance.label] = instance
            try:
                yield instance
            finally:
                del self[instance.label]

    def moved(self, source: Instance, destination: Instance) -> None:
        """Replace an instance by the one to which it was moved. Its label here stays the same."""
        self.update({label: destination for label, i in self.items() if i is source})

    def of(self, labels: Iterable[str]) -> tuple[Instance, ...]:
        """Return instances in their current state: an instance that was moved has another process."""
        return tuple(self[label] for label in labels)
