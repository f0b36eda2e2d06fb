"""Every reader of files that travel returns a value or an error with its place, whatever a file holds.

`make fuzz` spends ten minutes on it. FUZZ_SECONDS: time for all readers, one after the other.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.attack.fuzzing import MEMORY, Reader, fuzz, large, refused, try_contents
from tests.attack.readers import FOUND, READERS

pytestmark = pytest.mark.attack
SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_valid_file_is_read(reader: Reader, tmp_path: Path) -> None:
    reader.prepare(tmp_path)
    for content in reader.seeds:
        assert not refused(reader, tmp_path, content)


@pytest.mark.parametrize(("name", "content"), FOUND)
def test_what_was_found_is_read_or_refused_with_its_place(name: str, content: bytes) -> None:
    failed = try_contents(READERS[name], [content])
    assert not failed, failed


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_huge_file_takes_less_than_a_gibibyte(reader: Reader) -> None:
    failed = try_contents(reader, reader.seeds[:1], MEMORY)
    part = 8  # eight times as much of the same takes eight times as much memory
    failed = failed or try_contents(reader, large(reader, part), memory=MEMORY // part)
    assert not failed, failed


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_damaged_file_is_read_or_refused_with_its_place(reader: Reader) -> None:
    failed = fuzz(reader, SECONDS / len(READERS))
    assert not failed, failed
