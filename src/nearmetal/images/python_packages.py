"""Python packages in an image: the part of a build that runs pip inside the new tree, and the list of what it
installed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ..host.untrusted import UntrustedDirectory

NEEDED = ("python3-pip", "ca-certificates")
"""Debian packages that pip needs in the tree."""
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_COPY = "/tmp/certificates.crt"
_SUFFIX = ".dist-info"
#: Debian allows pip to write into its Python only if asked. The cache would become part of the image.
_SETTINGS = (
    "PIP_BREAK_SYSTEM_PACKAGES=1",
    "PIP_NO_CACHE_DIR=1",
    "PIP_ROOT_USER_ACTION=ignore",
    f"PIP_CERT={_COPY}",
    f"REQUESTS_CA_BUNDLE={_COPY}",  # which overrides the former
)


#: Settings of the user's own pip that would change where it installs, or refuse to.
_UNSET = (
    "USER",
    "TARGET",
    "PREFIX",
    "ROOT",
    "REQUIRE_VIRTUALENV",
    "CONSTRAINT",
    "REQUIREMENT",
    "CONFIG_FILE",
)


def pip_options(requirements: Sequence[str]) -> list[str]:
    """Return the options of mmdebstrap that install Python packages into the new tree; none without
    requirements.

    pip runs in the tree and takes its index and proxy from the environment of this process. It trusts the
    certificates of this machine, which may name an authority that the tree does not have.
    """
    if not requirements:
        return []
    unset = [word for name in _UNSET for word in ("-u", f"PIP_{name}")]
    unset += ["-u", "PYTHONPATH", "-u", "PYTHONHOME"]
    pip = ["python3", "-m", "pip", "install", "--quiet", *requirements]
    install = shlex.join(["env", *unset, *_SETTINGS, *pip])
    return [
        f'--customize-hook=cp "${{PIP_CERT:-{_CERTIFICATES}}}" "$1"{_COPY} ||'
        f' cp "$1"{_CERTIFICATES} "$1"{_COPY}',
        f'--customize-hook=chroot "$1" {install}',
        f'--customize-hook=rm "$1"{_COPY}',
    ]


def python_packages(tree: Path) -> tuple[str, ...]:
    """Return 'name version' of the Python packages that pip installed into a tree, sorted."""
    found = [
        name.removesuffix(_SUFFIX).replace("-", " ", 1)
        for python in _names(tree, "usr/local/lib")
        if python.startswith("python3")
        for name in _names(tree, f"usr/local/lib/{python}/dist-packages")
        if name.endswith(_SUFFIX)
    ]
    return tuple(sorted(found))


def _names(tree: Path, directory: str) -> tuple[str, ...]:
    try:
        return UntrustedDirectory(tree, as_root=True).names(directory)
    except OSError:
        return ()
