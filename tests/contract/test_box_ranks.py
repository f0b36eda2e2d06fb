"""What nm-box does for MPI launchers: instances by the number of a rank, an agent of one word,
namespaces that are kept, and whether processes may read each other's memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from nearmetal.environments import Tools
from nearmetal.host import LocalHost
from nearmetal.host.processes.failure import find_error_line

pytestmark = pytest.mark.beside

HOST = LocalHost()


def box(tools: Tools, *argv: str, **env: str) -> tuple[int, str, str]:
    done = HOST.run([tools / "nm-box", *argv], timeout=600, env=env or None)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "map"
    path.write_text("a 0 - - nearmetal-a -\nb = printf %25s,\n")
    return str(path)


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"])
def test_a_rank_enters_the_instance_of_its_line(tools: Tools, table: str, variable: str) -> None:
    argv = ("by-rank", table, "2", "printenv", "NEARMETAL_RUN")
    for rank in ("0", "1"):
        assert box(tools, *argv, **{variable: rank}) == (0, "nearmetal-a\n", "")
    for rank in ("2", "3"):  # the second instance: its line prints the words of the command
        assert box(tools, *argv, **{variable: rank}) == (0, "printenv,NEARMETAL_RUN,", "")
    code, _, said = box(tools, *argv, **{variable: "4"})
    assert (code, str(find_error_line(said))) == (111, "nm-box: host is not in the map (of this rank)")


@pytest.mark.parametrize("argv", [("by-rank",), ("by-rank", "m", "1"), ("by-rank", "m", "0", "true")])
def test_by_rank_refuses_what_it_does_not_understand(tools: Tools, argv: tuple[str, ...]) -> None:
    code, _, said = box(tools, *argv)
    error = find_error_line(said)
    assert code == 111 and error is not None and error.program == "nm-box" and said.count("\n") == 1


def test_by_the_name_of_agent_it_takes_options_in_front_of_the_map(
    tools: Tools, table: str, tmp_path: Path
) -> None:
    agent = tmp_path / "agent"
    agent.symlink_to(tools / "nm-box")
    done = HOST.run([str(agent), "-x", table, "-q", "a", "echo", "$NEARMETAL_RUN"], timeout=600)
    assert (done.returncode, done.stdout) == (0, "nearmetal-a\n")


def test_silent_gives_a_program_an_input_without_data_or_end(tools: Tools) -> None:
    assert box(tools, "silent", "--", "timeout", "0.2", "cat") == (124, "", "")
    assert box(tools, "silent", "--", "sh", "-c", "echo said; exit 3") == (3, "said\n", "")
    assert box(tools, "silent", "cat")[0] == 111


def test_nm_box_reports_whether_processes_may_read_each_other(tools: Tools) -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    free = not scope.exists() or scope.read_text().strip() == "0" or HOST.is_root()
    code, said, _ = box(tools, "cma")
    assert code == 0
    assert said == "allowed\n" if free else said.startswith("refused: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_program_that_may_not_be_read_is_refused_by_name(tools: Tools) -> None:
    """Linux does not let such a program's memory be read: as strict containers do for all."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own no other user may enter
        directory = Path(name)
        directory.chmod(0o711)
        program = directory / "nm-box"
        shutil.copy(tools / "nm-box", program)
        program.chmod(0o711)
        argv = [str(program), "cma"]
        done = subprocess.run(argv, user=65534, capture_output=True, text=True, timeout=600, cwd="/")
    assert (done.returncode, done.stdout) == (0, "refused: Operation not permitted\n")


def test_only_namespaces_that_ranks_need_in_common_can_be_kept(tools: Tools) -> None:
    code, _, said = box(tools, "start", "--share", "net")
    assert (code, str(find_error_line(said))) == (111, "nm-box: --share takes ipc or pid (net)")
