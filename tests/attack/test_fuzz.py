"""Every reader of files that travel returns a value or an error with its place, whatever a file holds.

`make fuzz` spends ten minutes on it. FUZZ_SECONDS: time for all readers, one after the other.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.attack.fuzzing import Reader, fuzz, refused
from tests.attack.readers import FOUND, READERS

pytestmark = pytest.mark.attack
SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_valid_file_is_read(reader: Reader, tmp_path: Path) -> None:
    reader.prepare(tmp_path)
    for content in reader.seeds:
        assert not refused(reader, tmp_path, content)


@pytest.mark.parametrize(("name", "content"), FOUND)
def test_what_was_found_is_refused_with_its_place(name: str, content: bytes, tmp_path: Path) -> None:
    READERS[name].prepare(tmp_path)
    refused(READERS[name], tmp_path, content)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_damaged_file_is_read_or_refused_with_its_place(reader: Reader) -> None:
    failed = fuzz(reader, SECONDS / len(READERS))
    assert not failed, failed
