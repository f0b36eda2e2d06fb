"""Convert a NextBlock to one line of JSON and back. With it, one process tells another which block to run."""

from __future__ import annotations

import msgspec

from ..errors import UsageError
from ..model.plan import NextBlock

_decoder = msgspec.json.Decoder(NextBlock)


def order_line(order: NextBlock) -> bytes:
    """Return one line, including the newline."""
    data = msgspec.to_builtins(order, str_keys=True, order="deterministic")
    return msgspec.json.encode(data) + b"\n"


def order_from(line: bytes) -> NextBlock:
    """Parse a line written by order_line.

    Raises UsageError for a line that contains no NextBlock.
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
