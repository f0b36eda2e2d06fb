"""The test files themselves."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_each_test_file_has_a_name_of_its_own() -> None:
    """pytest cannot collect two files of one name in one session, as commands of the Makefile would need."""
    names = Counter(file.name for file in TESTS.rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []
