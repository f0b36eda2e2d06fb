"""Parse the output of HPCC and HPL: the summary, HPL's table, and each part's check of its own result."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...numbers import number, unit_size, whole, words_of_lines
from ...program_output import ending

_BEGIN, _END = "Begin of Summary section.", "End of Summary section."
# HPL's name of a variant: W, process mapping, depth, broadcast, recursion.
_VARIANT = re.compile(r"W[RC][0-9][0-9A-Za-z]{1,12}")
_EPSILON = 2.0**-53
THRESHOLD = 16.0
ERRORS_ALLOWED = 0.01  # of RandomAccess's table, by the benchmark's own rule


@dataclass(frozen=True, kw_only=True)
class Solved:
    """One line of HPL's table.

    flops: FLOP/s, from the four digits that are printed.
    passed: whether its residual passed.
    """

    n: int
    nb: int
    p: int
    q: int
    flops: float | None
    passed: bool


def summary(text: str) -> dict[str, str] | None:
    """Return the key=value lines of the last complete summary; None if there is none. HPCC appends to its
    file."""
    end = text.rfind(_END)
    begin = text.rfind(_BEGIN, 0, max(end, 0))
    if begin < 0:
        return None
    pairs = (line.partition("=") for line in text[begin:end].splitlines()[1:])
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def solved(text: str) -> tuple[Solved, ...]:
    """Return the lines of HPL's table. A residual belongs to the line before it; an incomplete line is left
    out. The heading contains the unit of the last column."""
    found: list[Solved] = []
    unit = None
    for words in words_of_lines(text):
        if words[0] == "T/V":
            unit = unit_size(words[-1], "FLOP/s")
        elif len(words) == 7 and _VARIANT.fullmatch(words[0]):
            n, nb, p, q = (whole(w) for w in words[1:5])
            rate = number(words[6])
            if n is not None and nb is not None and p is not None and q is not None:
                flops = None if unit is None or rate is None or rate <= 0 else rate * unit
                found.append(Solved(n=n, nb=nb, p=p, q=q, flops=flops, passed=False))
        elif words[0].startswith("||") and words[-1] == "PASSED" and found and not found[-1].passed:
            found[-1] = replace(found[-1], passed=True)
    return tuple(found)


def hpl_fault(lines: Sequence[Solved], blocks: Sequence[int], text: str) -> str | None:
    """Return why HPL's results cannot be trusted; None if they can."""
    missing = [nb for nb in blocks if nb not in {line.nb for line in lines}]
    if missing:
        shown = ", ".join(map(str, missing))
        return f"HPL has no line of its table for NB {shown}; {ending(text)}"
    failed = [line.nb for line in lines if not line.passed]
    return f"HPL's residual is not passed for NB {', '.join(map(str, failed))}" if failed else None


def section(text: str, name: str) -> str:
    """Return HPCC's output of one part, up to its end or the end of the output; empty if the part did not
    begin."""
    begin = text.rfind(f"Begin of {name} section.")
    if begin < 0:
        return ""
    end = text.find(f"End of {name} section.", begin)
    return text[begin:] if end < 0 else text[begin:end]


def faults(text: str, results: Mapping[str, str]) -> tuple[str, ...]:
    """Return the faults that HPCC's own checks found, as text; empty if there are none.

    results: HPCC's summary.
    """
    checks = (
        None if results.get("Success") == "1" else "HPCC does not report success",
        _ptrans(section(text, "PTRANS")),
        _random_access(results, "MPIRandomAccess"),
        _fft(results),
        *(
            _nodes(section(text, name), name)
            for name in ("StarRandomAccess", "StarDGEMM", "SingleDGEMM", "StarSTREAM", "StarFFT")
        ),
        None
        if "Solution Validates" in section(text, "StarSTREAM")
        else "STREAM does not report that its solution validates",
    )
    return tuple(found for found in checks if found is not None)


def _ptrans(text: str) -> str | None:
    counts = {
        what: [words[0] for words in words_of_lines(text) if " ".join(words[1:4]) == what]
        for what in ("tests completed and", "tests skipped because")
    }
    # Three lines: passed, failed, skipped.
    done, skipped = counts["tests completed and"], counts["tests skipped because"]
    if len(done) != 2 or len(skipped) != 1:
        return "PTRANS does not report how many of its tests passed"
    if done[0] == "0" or done[1] != "0" or skipped[0] != "0":
        return f"PTRANS: {done[0]} tests passed, {done[1]} failed, {skipped[0]} were skipped"
    return None


def _random_access(results: Mapping[str, str], name: str) -> str | None:
    wrong = number(results.get(f"{name}_ErrorsFraction", ""))
    if wrong is None or wrong < 0:
        return f"{name} does not report its errors"
    return f"{name}: {100 * wrong:g} % of the table is wrong" if wrong > ERRORS_ALLOWED else None


def _fft(results: Mapping[str, str]) -> str | None:
    """Return why an FFT failed. Its error must be below 16 x eps x log2 of its length."""
    error, length = number(results.get("MPIFFT_maxErr", "")), number(results.get("MPIFFT_N", ""))
    if error is None or length is None or error < 0 or length < 2:
        return "MPIFFT does not report its error"
    limit = THRESHOLD * _EPSILON * math.log2(length)
    return f"MPIFFT: an error of {error:g}, above {limit:.3g}" if error > limit else None


def _nodes(text: str, name: str) -> str | None:
    for words in words_of_lines(text):
        if words[:3] == ["Node(s)", "with", "error"]:
            return None if words[3:] == ["0"] else f"{name}: errors on {' '.join(words[3:])} ranks"
    return f"{name} does not report how many ranks failed"
