"""What backends that wrap a container program do beyond the contract: trees of images, programs that hang or
give up."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.contract.not_here import not_here

from nearmetal.environments import InstanceRequest, Tools
from nearmetal.environments.containers.wrapped import Wrapped, started
from nearmetal.environments.holder import user_namespace_holder
from nearmetal.environments.registry import get_backend
from nearmetal.errors import RunError
from nearmetal.host import LocalHost
from nearmetal.host.leftovers import find
from nearmetal.host.processes.failure import find_error_line
from nearmetal.model.study import Attachment, Environment

pytestmark = pytest.mark.beside

HOST = LocalHost()
LABEL = f"nearmetal-test{os.getpid()}-w"
TREE = ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "var")
NAMES = ("apptainer", "bubblewrap", "charliecloud", "lxc", "nspawn")


@pytest.fixture
def asked(tools: Tools, tmp_path: Path) -> Iterator[InstanceRequest]:
    """A request with a tree that holds no program: what runs in it is static."""
    tree, scratch = tmp_path / "tree", tmp_path / "scratch"
    scratch.mkdir()
    for name in TREE:
        (tree / name).mkdir(parents=True)
    (tree / "etc/os-release").write_text("ID=tiny\n")  # systemd-nspawn takes nothing for a root without it
    (tree / "mark").write_text("tree\n")

    def request(user_namespace: str | None) -> InstanceRequest:
        return InstanceRequest(
            label=LABEL,
            hostname="nmw",
            environment=Environment(
                name="e", backend="b", image="tiny", attachment=Attachment.NONE, placements=()
            ),
            cpus=HOST.cpus()[-1:],
            seat=None,
            binds=(),
            scratch=scratch,
            tree=tree,
            user_namespace=user_namespace,
        )

    if HOST.is_root():
        yield request(None)
    else:
        with user_namespace_holder(HOST, tools, f"nearmetal-test{os.getpid()}") as holder:
            yield request(holder.path)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in not_here()])
def test_instance_root_is_the_tree_of_its_image(name: str, tools: Tools, asked: InstanceRequest) -> None:
    with get_backend(name).start(HOST, tools, asked) as instance:
        inside = Path(f"/proc/{instance.pid}/root")
        assert (inside / "mark").read_text() == "tree\n" and not (inside / "usr/bin").exists()
        # No other program is there: nm-box says that it lacks its arguments.
        done = HOST.run(instance.command([tools / "nm-box"]), timeout=600, cwd=Path("/"))
        assert done.returncode == 111 and str(find_error_line(done.stderr)).startswith("nm-box: usage:")
    assert sorted(p.name for p in asked.tree.iterdir()) == sorted([*TREE, "mark"])
    assert find(LABEL) == ()


@pytest.mark.parametrize(
    ("program", "timeout", "error"),
    [
        (["sleep", "600"], 0.5, "no first instruction within 0.5 s: sleep has not ended"),
        (["sh", "-c", "echo first >&2; echo sorry >&2; exit 3"], 60, "sh ended with 3: sorry"),
        (["sh", "-c", "exit 3"], 60, "sh ended with 3 and printed no message"),
        (["no-such-program"], 60, "nm-box: exec: No such file or directory"),
    ],
)
def test_a_program_that_hangs_or_gives_up(
    tools: Tools,
    asked: InstanceRequest,
    monkeypatch: pytest.MonkeyPatch,
    program: Sequence[str],
    timeout: float,
    error: str,
) -> None:
    monkeypatch.setattr("nearmetal.environments.program.START_TIMEOUT", timeout)

    def argv(_: Wrapped) -> Sequence[str]:
        return program

    with pytest.raises(RunError, match=error), started(HOST, tools, asked, argv):
        pass
    assert find(LABEL) == ()
