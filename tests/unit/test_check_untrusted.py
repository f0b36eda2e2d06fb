"""The check that files of others are opened in one way only."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

CHECK = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "check_untrusted.py"))


def test_every_module_on_the_list_passes() -> None:
    assert CHECK["main"]() == 0


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.open()",
        'path.open("rb", buffering=0)',
        "path.read_bytes()",
        "path.read_text(encoding='utf-8')",
        "path.write_bytes(data)",
        "list(path.rglob('*'))",
        "os.open(path, os.O_RDONLY)",
        "os.scandir(path)",
        "shutil.copytree(path, other)",
    ],
)
def test_another_way_to_open_is_found(tmp_path: Path, line: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"x = 1\n{line}\n")
    assert list(CHECK["problems"](module)) == [f"{module}:2: {line}"]
    module.write_text(f"{line}  # trusted: the user has named it\n")
    assert list(CHECK["problems"](module)) == []


@pytest.mark.parametrize(
    "line",
    ["files.open(name, flags)", "files.read_bytes(name)", "files.write_bytes(name, data)", "files.files()"],
)
def test_the_one_way_passes(tmp_path: Path, line: str) -> None:
    (tmp_path / "module.py").write_text(f"{line}\n")
    assert list(CHECK["problems"](tmp_path / "module.py")) == []
