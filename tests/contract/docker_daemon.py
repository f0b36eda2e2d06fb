"""A Docker daemon of the tests' own, with everything it keeps in one directory, where none runs."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearmetal.host.namespaces import detach


def answers() -> bool:
    version = ["docker", "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(version, capture_output=True, check=False, timeout=600).returncode == 0


@contextmanager
def docker_daemon(directory: Path) -> Iterator[None]:
    """DOCKER_HOST leads to a daemon inside; ended by its pid. As a user, or where dockerd is missing: as it
    is."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None or answers():
        yield
        return
    socket = f"unix://{directory}/socket"
    argv = ["dockerd", "--host", socket, "--pidfile", f"{directory}/pid"]
    argv += ["--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec"]
    # It touches no network of the machine.
    argv += ["--bridge", "none", "--iptables=false", "--ip-masq=false", "--ip-forward=false"]
    with (
        pytest.MonkeyPatch.context() as patch,
        (directory / "log").open("wb") as log,
        subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True) as daemon,
    ):
        patch.setenv("DOCKER_HOST", socket)
        try:
            end = time.monotonic() + 600
            while not answers() and daemon.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            yield
        finally:
            daemon.terminate()
            try:
                daemon.wait(600)
            finally:
                daemon.kill()
                for left in directory.glob("exec/netns/*"):
                    try:
                        detach(left)
                    except OSError as e:
                        if e.errno != errno.EINVAL:  # EINVAL: nothing is mounted there
                            raise
