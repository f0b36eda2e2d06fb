"""Orders: the blocks that workers are to run, as files `orders/<block>.json` in a results directory. The
coordinator writes them, and workers on any machine read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..errors import UsageError
from ..host.untrusted import UntrustedDirectory
from ..model.plan import NextBlock
from .disk import is_there, require_owner, store_file
from .json_files import names_in, unreadable

ORDERS, _STOP = "orders", "stop"
_NUMBER = re.compile("[1-9][0-9]{0,9}")
_decoder = msgspec.json.Decoder(NextBlock)


class Orders:
    """The orders of one results directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = UntrustedDirectory(directory)
        self._place = self._directory.below(ORDERS)
        (directory / ORDERS).mkdir(exist_ok=True)

    def give(self, order: NextBlock) -> None:
        """Write an order. It replaces an earlier order for the same block.

        Raises RecordsError and DiskFullError.
        """
        store_file(self._directory, f"{ORDERS}/{order.block.number}.json", order_line(order))

    def withdraw(self, block: int) -> None:
        """Remove the order for a block. Harmless if there is none."""
        self._place.unlink(f"{block}.json")

    def read(self) -> Iterator[NextBlock]:
        """Yield the orders, lowest block number first.

        Raises UsageError for a file that contains no order, and RecordsError for a file of another user, or
        one that cannot be read.
        """
        for number in self._numbers():
            name = f"{number}.json"
            try:
                require_owner(self._place, name)
                line = self._place.read_bytes(name)
            except FileNotFoundError:
                continue  # withdrawn meanwhile
            except OSError as e:
                raise unreadable(e, self._place.path_to(name)) from e
            yield order_from(line, str(self._place.path_to(name)))

    def stop(self) -> None:
        """Remove all orders, and tell all workers to end after the block that they are running.

        Raises RecordsError and DiskFullError.
        """
        for number in self._numbers():
            self.withdraw(number)
        store_file(self._directory, f"{ORDERS}/{_STOP}", b"")

    def start(self) -> None:
        """Revoke stop(): workers wait for orders again."""
        self._place.unlink(_STOP)

    @property
    def stopped(self) -> bool:
        return is_there(self._place, _STOP)

    def _numbers(self) -> list[int]:
        stems = (name.removesuffix(".json") for name in names_in(self._place, ".json"))
        return sorted(int(stem) for stem in stems if _NUMBER.fullmatch(stem))


def order_line(order: NextBlock) -> bytes:
    """Return an order as one line of JSON, including the newline."""
    data = msgspec.to_builtins(order, str_keys=True, order="deterministic")
    return msgspec.json.encode(data) + b"\n"


def order_from(line: bytes, where: str) -> NextBlock:
    """Parse a line written by order_line().

    where: place of the line, for error messages.

    Raises UsageError for a line that contains no valid NextBlock.
    """
    try:
        order = _decoder.decode(line)
    except (ValueError, RecursionError) as e:  # includes msgspec.DecodeError
        raise UsageError(
            f"not a round to run: {e}",
            where=where,
            remedy="write one as `nearmetal run-block DIR BLOCK --dry-run --json` prints it",
        ) from e
    if order.attempt < 1 or order.block.number < 1:
        raise UsageError("not a round to run: rounds and attempts count from 1", where=where)
    return order
