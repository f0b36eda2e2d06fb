"""A Docker daemon of the tests, with everything it keeps in one directory, where none makes checkpoints."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearmetal.environments import Criu
from nearmetal.host.namespaces import detach

PROGRAMS = "NEARMETAL_TEST_DOCKER_PROGRAMS"
"""Names a directory on the PATH of the tests' daemon."""


def offer_criu(criu: Criu) -> None:
    """Let the tests' daemon run this CRIU, as `criu` on its PATH."""
    if directory := os.environ.get(PROGRAMS):
        script = Path(directory, "criu")
        new = script.with_name("new")
        new.write_text(f'#!/bin/sh\nexec {shlex.join(criu.argv)} "$@"\n')
        new.chmod(0o755)
        new.replace(script)


def answers() -> bool:
    """Whether a daemon answers that makes checkpoints."""
    asked = ["docker", "version", "--format", "{{.Server.Experimental}}"]
    return subprocess.run(asked, capture_output=True, check=False, timeout=600).stdout.strip() == b"true"


@contextmanager
def docker_daemon(directory: Path) -> Iterator[None]:
    """DOCKER_HOST leads to a daemon inside, which makes checkpoints; ended by its pid. As a user, or where
    dockerd is missing: as it is."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None or answers():
        yield
        return
    socket = f"unix://{directory}/socket"
    (programs := directory / "programs").mkdir()
    argv = ["dockerd", "--experimental", "--host", socket, "--pidfile", f"{directory}/pid"]
    argv += ["--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec"]
    # It touches no network of the machine.
    argv += ["--bridge", "none", "--iptables=false", "--ip-masq=false", "--ip-forward=false"]
    path = f"{programs}:{os.environ['PATH']}"
    with (
        pytest.MonkeyPatch.context() as patch,
        (directory / "log").open("wb") as log,
        subprocess.Popen(
            argv, stdout=log, stderr=log, start_new_session=True, env=os.environ | {"PATH": path}
        ) as daemon,
    ):
        patch.setenv("DOCKER_HOST", socket)
        patch.setenv(PROGRAMS, str(programs))
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
