"""scripts/setup.sh names the packages of the system that it runs on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.sh"


@pytest.mark.parametrize(
    ("release", "manager"),
    [
        ("ID=fedora", "sudo dnf install"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"', "sudo dnf install"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "sudo zypper install"),
        ("ID=arch", "sudo pacman -S"),
        ("ID=unheard-of", "by this system's package manager"),
    ],
)
def test_missing_packages_are_named_for_the_package_manager_of_the_system(
    release: str, manager: str, tmp_path: Path
) -> None:
    (tmp_path / "os-release").write_text(release + "\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("dirname", "sh"):  # nothing else is installed
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    done = subprocess.run(
        [programs / "sh", SCRIPT, "run"],
        env={"PATH": str(programs), "NEARMETAL_OS_RELEASE": str(tmp_path / "os-release")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "missing packages; install them with:" in done.stderr and manager in done.stderr
