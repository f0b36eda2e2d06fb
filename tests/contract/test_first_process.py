"""Another user of the machine takes the socket of an instance's first process, or connects to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nearmetal.environments import InstanceRequest, Tools
from nearmetal.environments.instance import BoxInstance, make_instance
from nearmetal.environments.native import native_argv
from nearmetal.errors import RunError
from nearmetal.host import LocalHost
from nearmetal.model.study import Attachment, Environment

pytestmark = [
    pytest.mark.attack,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user"),
]
BECOME_NOBODY = "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
PREDICTED = "-predicted"
#: Binds the names of its arguments, and says at the end of its input how many bytes and descriptors arrived.
TAKES = """\
takers = []
for name in sys.argv[1:]:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        taker = socket.socket(socket.AF_UNIX, kind)
        taker.bind(b"\\0nm-init/" + name.encode())
        taker.setblocking(False)
        if kind == socket.SOCK_SEQPACKET:
            taker.listen()
        takers.append(taker)
print("taken", flush=True)
sys.stdin.read()
got = 0
for taker in takers:
    try:
        if taker.type == socket.SOCK_SEQPACKET:
            taker = taker.accept()[0]
            taker.setblocking(False)
        data, ancillary, *_ = taker.recvmsg(4096, 4096)
        got += len(data) + len(ancillary)
    except BlockingIOError:
        pass
print(got, flush=True)
"""
#: Connects to the name of its argument again and again, and keeps the connections.
CONNECTS = """\
kept = []
for _ in range(200):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(b"\\0nm-init/" + sys.argv[1].encode())
    kept.append(peer)
    try:
        peer.send(bytes(16))
    except BrokenPipeError:
        pass
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def asked(tmp_path: Path) -> InstanceRequest:
    environment = Environment(name="e", backend="native", attachment=Attachment.HOST, placements=())
    label = f"nearmetal-check-{os.getpid()}{PREDICTED}"
    return InstanceRequest(label=label, hostname="nmf", environment=environment, scratch=tmp_path)


@contextmanager
def first_process(tools: Tools, asked: InstanceRequest) -> Iterator[BoxInstance]:
    """Run nm-init in the network of the machine."""
    launched = LocalHost().launch(native_argv(tools, asked), expect={"first"}, timeout=60)
    pid = launched.process.pid
    try:
        yield make_instance(tools, asked, pid=pid, namespaces_of=0, groups={}, phases={})
    finally:
        launched.process.kill()


@contextmanager
def another_user(program: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of another user; yields when it has printed a line."""
    argv, pipe = [sys.executable, "-c", BECOME_NOBODY + program, *words], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            yield process
        finally:
            process.kill()


def names_in(enter: Sequence[str]) -> list[str]:
    """Return the names that a command line for a command in an instance shows."""
    return sorted({enter[i + 1] for i, word in enumerate(enter) if word in ("--label", "--by-init")} - {"--"})


def test_a_name_that_others_can_predict_is_not_used(tools: Tools, asked: InstanceRequest) -> None:
    with another_user(TAKES, asked.label), first_process(tools, asked) as instance:
        done = subprocess.run(instance.command(["echo", "on"]), capture_output=True, text=True, timeout=30)
        assert done.stdout == "on\n"


def test_who_takes_the_name_of_an_ended_instance_gets_no_command(
    tools: Tools, asked: InstanceRequest
) -> None:
    with first_process(tools, asked) as instance:
        enter = instance.command(["true"])
    with another_user(TAKES, *names_in(enter)) as taker:
        done = subprocess.run(
            enter, capture_output=True, text=True, timeout=30, env={**os.environ, "KEY": "secret"}
        )
        assert taker.communicate(timeout=30)[0] == "0\n"
    assert done.returncode != 0 and "another user has taken the name" in done.stderr


def test_others_who_connect_start_nothing_and_keep_nobody_out(tools: Tools, asked: InstanceRequest) -> None:
    with ExitStack() as stack:
        instance = stack.enter_context(first_process(tools, asked))
        *_, name = (word for word in names_in(instance.command(["true"])) if word != asked.label)
        stack.enter_context(another_user(CONNECTS, name))
        done = subprocess.run(instance.command(["echo", "on"]), capture_output=True, text=True, timeout=30)
        assert done.stdout == "on\n"
        assert not Path(f"/proc/{instance.pid}/task/{instance.pid}/children").read_text()


def test_a_first_process_whose_name_is_taken_does_not_start(tools: Tools, asked: InstanceRequest) -> None:
    """Who reads the name from a command line before the first process has it can do no more."""
    name = native_argv(tools, asked)[-1]
    with another_user(TAKES, name), pytest.raises(RunError), first_process(tools, asked):
        pytest.fail("it uses a name of another user")
