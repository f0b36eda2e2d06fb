"""Orders: the blocks that workers are to run, as files `orders/<block>.json` in a results directory. The
coordinator writes them, and workers on any machine read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import UsageError
from ..model.plan import NextBlock
from .disk import is_there, require_owner, store_file

_STOP = "stop"
_decoder = msgspec.json.Decoder(NextBlock)


class Orders:
    """The orders of one results directory."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._place = directory, directory / "orders"
        self._place.mkdir(exist_ok=True)

    def give(self, order: NextBlock) -> None:
        """Write an order. It replaces an earlier order for the same block.

        Raises RecordsError and DiskFullError.
        """
        store_file(self._file(order.block.number), order_line(order), self._directory)

    def withdraw(self, block: int) -> None:
        """Remove the order for a block. Harmless if there is none."""
        self._file(block).unlink(missing_ok=True)

    def read(self) -> Iterator[NextBlock]:
        """Yield the orders, lowest block number first.

        Raises UsageError for a file that contains no order, and RecordsError for a file of another user.
        """
        for number in sorted(int(p.stem) for p in self._place.glob("[0-9]*.json")):
            with suppress(FileNotFoundError):  # withdrawn meanwhile
                require_owner(self._file(number), self._directory)
                yield order_from(self._file(number).read_bytes())

    def stop(self) -> None:
        """Remove all orders, and tell all workers to end after the block that they are running.

        Raises RecordsError and DiskFullError.
        """
        for file in self._place.glob("[0-9]*.json"):
            file.unlink(missing_ok=True)
        store_file(self._place / _STOP, b"", self._directory)

    def start(self) -> None:
        """Revoke stop(): workers wait for orders again."""
        (self._place / _STOP).unlink(missing_ok=True)

    @property
    def stopped(self) -> bool:
        return is_there(self._place / _STOP)

    def _file(self, block: int) -> Path:
        return self._place / f"{block}.json"


def order_line(order: NextBlock) -> bytes:
    """Return an order as one line of JSON, including the newline."""
    data = msgspec.to_builtins(order, str_keys=True, order="deterministic")
    return msgspec.json.encode(data) + b"\n"


def order_from(line: bytes) -> NextBlock:
    """Parse a line written by order_line().

    Raises UsageError for a line that contains no valid NextBlock.
    """
    try:
        order = _decoder.decode(line)
    except (ValueError, RecursionError) as e:  # includes msgspec.DecodeError
        raise UsageError(
            f"not a round to run: {e}",
            remedy="write one as `nearmetal run-block DIR BLOCK --dry-run --json` prints it",
        ) from e
    if order.attempt < 1 or order.block.number < 1:
        raise UsageError("not a round to run: rounds and attempts count from 1")
    return order
