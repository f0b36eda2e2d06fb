"""The instances that run on a node. An arm finds its instances through their node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...environments import Instance


class Instances:
    """The running instances of a node by label."""

    def __init__(self) -> None:
        self._by_label: dict[str, Instance] = {}

    @contextmanager
    def holding(self, instances: Iterable[Instance]) -> Iterator[None]:
        """Register these instances until exit."""
        labels = [i.label for i in instances]
        self._by_label |= {i.label: i for i in instances}
        try:
            yield
        finally:
            for label in labels:
                self._by_label.pop(label, None)

    def take_over(self, instance: Instance) -> None:
        """Replace the instance of the same label by this one.

        An instance that was restored or moved is another process, and continues under the same label.
        """
        if instance.label not in self._by_label:
            raise KeyError(instance.label)
        self._by_label[instance.label] = instance

    def __getitem__(self, label: str) -> Instance:
        return self._by_label[label]
