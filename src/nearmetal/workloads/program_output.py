"""Find numbers in the output of a user's own program, by a regular expression or by a path into JSON."""

from __future__ import annotations

from ..model.expression import LIMIT, search
from ..model.study import DecimalMark, MetricSpec, Stream
from .json_text import documents, value_at
from .numbers import NoNumber, NothingFound, Number, read_number

# Number of characters of an output that are searched, so that a search always ends.
SEARCHED = 8 << 20


def printed_text(stream: Stream, stdout: str, stderr: str) -> str:
    """Return what a program printed to a stream; to both, first its standard output."""
    return {Stream.STDOUT: stdout, Stream.STDERR: stderr, Stream.BOTH: f"{stdout}\n{stderr}"}[stream]


def metric_value(metric: MetricSpec, text: str) -> Number:
    """Return the metric's number from an output, in the unit of the metric.

    Raises NoNumber if there is none.
    """
    try:
        if metric.regex is None:
            return _by_path(metric, text)
        return number_by(metric.regex, text, decimal=metric.decimal, unit=metric.unit, scale=metric.scale)
    except NoNumber as e:
        raise type(e)(f"metric '{metric.name}': {e}") from e


def number_by(
    regex: str,
    text: str,
    *,
    decimal: DecimalMark | None = None,
    unit: str = "",
    scale: float = 1.0,
) -> Number:
    """Return the number that the only group of a regular expression matches in the text.

    decimal, unit, scale: as in read_number().

    Raises NoNumber if there is none.
    """
    try:
        found = search(regex, text)
    except TimeoutError as e:
        raise NoNumber(too_long(regex)) from e
    if found is None or found.group is None:
        raise NothingFound(f"the output holds nothing like {regex}; {ending(text)}")
    return read_number(text, found.begin, found.end, decimal=decimal, unit=unit, scale=scale)


def ending(text: str) -> str:
    """Return a sentence part that quotes the end of an output, for messages."""
    last = next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")
    return f"the output ends in {last[-200:]!r}" if last else "there is no output"


def other_text(stream: Stream, stdout: str, stderr: str) -> str:
    """Return a sentence part that says where a program printed text that was not searched; '' if nowhere."""
    if stream is Stream.BOTH:
        return ""
    other, text = (Stream.STDERR, stderr) if stream is Stream.STDOUT else (Stream.STDOUT, stdout)
    lines = sum(bool(line.strip()) for line in text.splitlines())
    return f"; {other} has {lines} line{'s' * (lines > 1)}: write stream: {other}" if lines else ""


def too_long(regex: str) -> str:
    """Return the message for a search that took too long."""
    return f"searching for {regex} took longer than {LIMIT:g} s; let fewer parts of it match the same text"


def _by_path(metric: MetricSpec, text: str) -> Number:
    path = metric.json_path or ""
    for document in documents(text):
        found = value_at(document, path)
        if isinstance(found, bool | list | dict):
            raise NoNumber(f"{path} is not a number")
        if isinstance(found, str):
            return read_number(
                found, 0, len(found), decimal=metric.decimal, unit=metric.unit, scale=metric.scale
            )
        if found is not None:
            try:
                return Number(value=float(found) * metric.scale, text=f"{found:g}")
            except OverflowError:
                raise NoNumber(f"{path} is too large") from None
    raise NothingFound(f"the output contains no {path} in JSON; {ending(text)}")
