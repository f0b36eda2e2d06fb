"""Gives readers of files damaged and invented contents, in a child with little memory and a limit on time."""

from __future__ import annotations

import copy
import faulthandler
import json
import os
import random
import re
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from nearmetal.errors import FileError, NearmetalError
from nearmetal.host.untrusted import LIMIT

MEMORY = 1 << 30
HANGS = 120
"""Seconds after which a reader of one content counts as hanging, however busy the machine is."""
EXAMPLES = 100
"""Contents in one run of Hypothesis; runs follow each other until the time is over."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One way by which nearmetal reads a file.

    name: name of the reader, for tests.
    read: reads the file at a path, whose directory is empty but for what `prepare` makes.
    seeds: valid contents.
    file: name of the file, below the directory.
    prepare: makes what else is in the directory.
    by_lines: whether the file is read by lines or frames, so that its size has no limit.
    """

    name: str
    read: Callable[[Path], object]
    seeds: tuple[bytes, ...]
    file: str = "file"
    prepare: Callable[[Path], object] = lambda _: None
    by_lines: bool = False


def refused(reader: Reader, directory: Path, content: bytes, hole: int = 0) -> str:
    """Let a reader read a content, and behind it a hole of some bytes, which takes no room on the disk.

    Returns the error that it refuses the content with; '' if it accepts it. Any other error passes.
    """
    file = directory / reader.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    if hole:
        os.truncate(file, len(content) + hole)
    try:
        reader.read(file)
    except NearmetalError as e:
        assert e.where or isinstance(e, FileError), f"an error without a place: {e!r}"
        str(e).encode(errors="surrogateescape")
        return str(e)
    return ""


def fuzz(reader: Reader, seconds: float) -> str:
    """Fuzz a reader for a time in a child. Returns what failed, with the content; '' if nothing did."""
    return _in_child(reader, lambda directory: _fuzz(reader, directory, time.monotonic() + seconds))


def try_contents(reader: Reader, contents: Iterable[bytes], hole: int = 0, memory: int = MEMORY) -> str:
    """Let a reader read contents in a child. Returns what failed; '' if nothing did.

    hole: see refused().
    memory: bytes that the child may take.
    """

    def read(directory: Path) -> None:
        for content in contents:
            _refused_in_time(reader, directory, content, hole)

    return _in_child(reader, read, memory)


def _in_child(reader: Reader, work: Callable[[Path], None], memory: int = MEMORY) -> str:
    with tempfile.TemporaryDirectory() as directory:  # so that the child need not import what the reader uses
        reader.prepare(Path(directory))
        refused(reader, Path(directory), reader.seeds[0])
    with tempfile.TemporaryFile("w+") as report:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with tempfile.TemporaryDirectory() as directory:
                    _limit(report.fileno(), memory)
                    reader.prepare(Path(directory))
                    work(Path(directory))
                status = 0
            except BaseException as e:
                report.write("\n".join([traceback.format_exc()[-3000:], *getattr(e, "__notes__", ())]))
            finally:
                report.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        report.seek(0)
        return report.read() or (f"it ended by status {status}" if status else "")


def _limit(report: int, memory: int) -> None:
    """Limit the memory of this process beyond what it has now, and write where it hangs, if it does."""
    has = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert has is not None
    most = (int(has[1]) << 10) + memory
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(report)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, report, chain=True)


def _refused_in_time(reader: Reader, directory: Path, content: bytes, hole: int = 0) -> None:
    signal.alarm(HANGS)
    try:
        refused(reader, directory, content, hole)
    except MemoryError:
        raise AssertionError("more memory than allowed") from None
    finally:
        signal.alarm(0)


def _fuzz(reader: Reader, directory: Path, until: float) -> None:
    while time.monotonic() < until:
        failed = False

        @seed(random.SystemRandom().getrandbits(64))
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        @given(contents(reader.seeds))
        def check(content: bytes) -> None:
            nonlocal failed
            if time.monotonic() > until and not failed:
                return
            try:
                _refused_in_time(reader, directory, content)
            except Exception:
                failed = True
                note(f"{reader.name}: {len(content)} bytes: {content[:2000]!r}")
                raise

        check()


NUMBERS = (
    b"0", b"-1", b"-0.0", b"1.5", b"1e308", b"-1e308", b"1e400", b"9" * 20, b"9" * 400, b"9" * 5000,
    b"NaN", b"nan", b"Infinity", b"-Infinity", b".inf", b"1e-400", b"9223372036854775808", b"0x7f", b"08",
)  # fmt: skip
TOKENS = (
    *NUMBERS,
    b"null", b"true", b"{}", b"[]", b'""', b'"\\ud800"', b'"\\u0000"', b'"\\u001b[2J"', b"\xff\xfe", b"\xc3(",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\0", b"\n", b"\r\n", b"\t", b",", b":", b"=", b"[", b"]", b"{", b"}",
    b'"', b"'", b"#", b"&a", b"*a", b"!!python/name:os.system", b"%", b"../../etc/passwd", b"/dev/zero", b"~",
    b'{"a":' * 600, b"[" * 3000, b"[" * 100_000, b"x" * 10_000, b"\xe2\x80\xae", b"[0:999999999]",
    b"n[1-9999999]",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**32, 2**53 + 1, 2**63, 10**30,
    -(2**63), float("nan"), float("inf"), float("-inf"), "", " ", "a", "\0", "\ud800", "\x1b[2J", "a\nb",
    "../x", "/dev/zero", "1e999", "9" * 400, "x" * 5000, "é", [], {}, [[]], [None], [{}], ["a", "a"],
    {"": None}, {"a": 1}, [0] * 1000, [1e308] * 3, [[0, 1], [2]], json.loads("[" * 400 + "]" * 400),
)  # fmt: skip


def contents(seeds: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Return a strategy for contents that resemble the seeds more or less, or do not at all."""
    structured = tuple(seed for seed in seeds if _lines(seed) is not None)
    strategies = [
        damaged(seeds),
        st.binary(max_size=300),
        st.builds(str.encode, st.text(max_size=200).filter(_plain)),
    ]
    strategies += [damaged(seeds), _json_texts()]
    if structured:
        strategies += [restructured(structured)] * 4
    return st.one_of(strategies)


def large(reader: Reader, part: int) -> Iterator[bytes]:
    """Yield contents that need much memory: for a reader of lines many of them, and for one of JSON a text of
    many small values.

    part: the JSON is this part of the largest that is read whole.
    """
    seed = reader.seeds[0]
    if reader.by_lines:
        yield seed * ((8 << 20) // len(seed))
    if seed.startswith(b"{"):
        yield b'{"extra":[' + b'{"":0},' * (LIMIT // part // 7 - len(seed)) + b"{}]," + seed[1:]


def _plain(text: str) -> bool:
    return text.isascii() or text.encode(errors="replace") == text.encode(errors="ignore")


def _json_texts() -> st.SearchStrategy[bytes]:
    leaves = st.sampled_from(VALUES)
    keys = st.sampled_from(("schema", "name", "run", "block", "", "kernel", "key", "nodes", "ids"))
    nested = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=8,
    )
    return nested.map(lambda value: json.dumps(value).encode())


@st.composite
def damaged(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Draw a seed with some of its bytes changed, removed, repeated or replaced."""
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, max(0, len(content) - 1)))
        end = min(len(content), begin + draw(st.sampled_from((0, 1, 2, 4, 16, 100))))
        match draw(st.integers(0, 6)):
            case 0:
                bit = 1 << draw(st.integers(0, 7))
                content = (
                    content[:begin]
                    + bytes(b ^ bit for b in content[begin : begin + 1])
                    + content[begin + 1 :]
                )
            case 1:
                content = content[:begin]
            case 2:
                content = content[:begin] + content[end:]
            case 3:
                content = (
                    content[:end] + content[begin:end] * draw(st.sampled_from((1, 2, 200))) + content[end:]
                )
            case 4:
                content = content[:begin] + draw(st.sampled_from(TOKENS)) + content[end:]
            case 5:
                word = draw(st.sampled_from(list(re.finditer(rb"[\w.+-]+|$", content))))
                content = content[: word.start()] + draw(st.sampled_from(TOKENS)) + content[word.end() :]
            case 6:
                content = content[:begin] + draw(st.sampled_from(seeds))[begin:]
    return content


def _lines(content: bytes) -> list[Any] | None:
    """Return the JSON value in a content, or those in its lines; None if it is no JSON."""
    try:
        return [json.loads(content)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in content.splitlines()] or None
    except ValueError:
        return None


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of a value, and those of all values in it."""
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*at, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:20]):
            yield from _places(inner, (*at, number))


@st.composite
def restructured(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Draw a JSON seed in which some values are of other types or sizes, missing, repeated or new."""
    content = draw(st.sampled_from(seeds))
    lines = _lines(content)
    assert lines is not None
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(lines) - 1))
        where = draw(st.sampled_from(list(_places(lines[number]))))
        other = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if not where:
            lines[number] = other
            continue
        inside = lines[number]
        for key in where[:-1]:
            inside = inside[key]
        match draw(st.integers(0, 4)) if isinstance(inside, dict) else 0:
            case 0 | 1:
                inside[where[-1]] = other
            case 2:
                del inside[where[-1]]
            case 3:
                inside[draw(st.sampled_from(("", "extra", "\x1b", "schema", str(where[-1]) * 2)))] = other
            case 4:
                inside[where[-1]] = [inside[where[-1]]] * draw(st.sampled_from((1, 3)))
    text = "\n".join(json.dumps(line) for line in lines) + "\n"
    if draw(st.integers(0, 9)) == 0:  # the same key twice
        text = re.sub(r'("\w+": ?)', r"\1null, \1", text, count=1)
    return text.encode()
