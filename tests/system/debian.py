"""Packages of Debian for tests: downloaded and unpacked, never installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

MIRROR, KEYS = "http://deb.debian.org/debian", "/usr/share/keyrings/debian-archive-keyring.gpg"


def unpacked(place: Path, packages: tuple[str, ...], suite: str | None = None) -> Path:
    """Unpack packages, and return the directory that holds their files.

    place: an empty directory.
    packages: their names; nothing that they depend on is added.
    suite: release of Debian; None for what this machine's own apt offers.
    """
    options = [] if suite is None else _options(place, suite)
    if suite is not None:
        _run(place, "apt-get", *options, "update")
    _run(place, "apt-get", *options, "download", *packages)
    for package in place.glob("*.deb"):
        _run(place, "dpkg-deb", "-x", str(package), str(place / "root"))
    return place / "root"


def _options(place: Path, suite: str) -> list[str]:
    """Let apt keep everything below the directory: the machine's own lists of packages stay as they are."""
    for name in ("lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True)
    (place / "status").touch()
    (place / "sources.list").write_text(f"deb [signed-by={KEYS}] {MIRROR} {suite} main\n")
    settings = {
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": place / "lists",
        "Dir::State::status": place / "status",
        "Dir::Cache": place / "cache",
        "APT::Sandbox::User": "root",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def _run(place: Path, *argv: str) -> None:
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(argv[:2])}: {done.stderr[-2000:]}"
