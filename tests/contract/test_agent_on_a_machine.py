"""The agent on a machine that runs already, behind a command such as ssh: what commands get, and what is
left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until

from nearmetal.environments import Tools
from nearmetal.host import REPORT_FD, LocalHost, Process
from nearmetal.host.guest_line import FrameKind, GuestLine
from nearmetal.node.real_nodes import variable_rules

pytestmark = pytest.mark.beside
EXIT_AGENT = 111


@dataclass(frozen=True)
class Agent:
    """box: nm-box; socket: that of the multiplexer."""

    box: str
    socket: Path
    multiplexer: Process

    def argv(self, rules: Path, *words: str) -> list[str]:
        return [self.box, "guest", str(self.socket), "--only", str(rules), "--", *words]


@pytest.fixture
def agent(tools: Tools, tmp_path: Path) -> Iterator[Agent]:
    """A session of its own stands for the other machine: nothing but the line joins it to the multiplexer. A
    shell stands for ssh, and ends with the multiplexer."""
    socket = tmp_path / "agent"
    serving = ["sh", "-c", f"setsid --wait {tools / 'nm-guest'} serve; exit"]
    argv = [tools / "nm-box", "multiplex", "--listen", str(socket), "--report-fd", str(REPORT_FD), "--"]
    launched = LocalHost().launch(
        [*argv, *serving],
        expect={"listening"},
        timeout=PATIENCE,
        env={"PATH": os.environ["PATH"], "OF_NODE": "node"},
        inherit=False,
    )
    try:
        with GuestLine(socket) as line:
            assert line.hello(PATIENCE).kernel == os.uname().release
        yield Agent(tools / "nm-box", socket, launched.process)
    finally:
        launched.process.kill()


def test_commands_get_the_nodes_variables_and_those_of_the_study_only(agent: Agent, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    here = {"SECRET": "s", "OMPI_OF_HEAD": "1", "TMPDIR": "/head", "LINES": "a\nb", "LD_PRELOAD_LIKE": "x"}
    rules.write_bytes(variable_rules(here, {"WANTED": "yes", "SECRET": "of-study"}))
    given = {"OMPI_SET": "2", "TMPDIR": "/trial", "WANTED": "yes", "NEARMETAL_JOB": "j", "WANTED_TOO": "no"}
    done = subprocess.run(
        agent.argv(rules, "sh", "-c", "env; exit 7"),
        env={**here, **given},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 7
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {k: v for k, v in found.items() if k not in ("PATH", "PWD", "SHLVL", "_")} == {
        "OF_NODE": "node",
        "OMPI_SET": "2",
        "TMPDIR": "/trial",
        "WANTED": "yes",
        "NEARMETAL_JOB": "j",
    }


def test_nothing_is_left_on_the_machine_when_the_line_ends(agent: Agent, tmp_path: Path) -> None:
    rules, pids = tmp_path / "rules", tmp_path / "pids"
    rules.write_bytes(variable_rules({}, {}))
    # One in a session of its own whose parent has ended, and one that the caller waits for.
    script = f"(setsid sh -c 'echo $$ >>{pids}; exec sleep 1000' &); echo $$ >>{pids}; exec sleep 1000"
    with subprocess.Popen(agent.argv(rules, "sh", "-c", script), env={}) as waiting:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        agent.multiplexer.kill()
        assert waiting.wait(PATIENCE) != 0
    for pid in pids.read_text().split():
        until(partial(ended, pid), f"the end of {pid}")


def ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.attack
@pytest.mark.parametrize("count", ["18446744073709551615", "18446744073709551614", "-1", "3", "0", ""])
def test_a_wrong_number_of_arguments_is_refused(agent: Agent, count: str) -> None:
    with GuestLine(agent.socket) as line:
        line._send(FrameKind.RUN, f"/\0{count}\0true\0".encode())
        payload = line._wait(FrameKind.ENDED, time.monotonic() + PATIENCE)
        status = int.from_bytes(payload, sys.byteorder)
    assert os.waitstatus_to_exitcode(status) == EXIT_AGENT, "nothing was started"


@pytest.mark.attack
def test_a_file_that_no_archive_can_hold_is_refused_by_name_before_anything_is_copied(
    agent: Agent, tmp_path: Path
) -> None:
    below = tmp_path / "outputs"
    below.mkdir()
    (below / "a").write_text("small")
    with (below / "b").open("wb") as file:
        file.truncate(1 << 32)
    with GuestLine(agent.socket) as line:
        done = line.run(["nm-guest", "get", str(below)], timeout=PATIENCE)
    assert (done.status, done.stdout) == (1, b"")
    assert b"4 GiB or more" in done.stderr and str(below / "b").encode() in done.stderr
