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
        """Register these instances while the context is open.

        An instance that was restored or moved is another process under the same label, and replaces the one
        that was registered.
        """
        labels = [i.label for i in instances]
        self._by_label |= {i.label: i for i in instances}
        try:
            yield
        finally:
            for label in labels:
                self._by_label.pop(label, None)

    def __getitem__(self, label: str) -> Instance:
        return self._by_label[label]
