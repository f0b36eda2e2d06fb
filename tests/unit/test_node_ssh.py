"""The sshd of an instance, and the client that reaches it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

import pytest

from nearmetal.node.ssh import client_config, make_keys, server_config
from nearmetal.testing.fake_host import Answer, FakeHost


def test_servers_run_as_this_user_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`su` keeps $LOGNAME of the user who called it."""

    def made(argv: Sequence[str]) -> str:
        Path(f"{argv[-1]}.pub").write_text("ssh-ed25519 AAAA nearmetal\n")
        return ""

    keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "nearmetal", "-f")
    commands: dict[tuple[str, ...], Answer] = {
        (*keygen, str(tmp_path / "ssh" / name)): made for name in ("client", "server")
    }
    host = FakeHost(programs={"ssh": "/usr/bin/ssh", "sshd": "/usr/sbin/sshd"}, commands=commands)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    keys, user = make_keys(host, tmp_path), pwd.getpwuid(os.geteuid()).pw_name
    assert f"AllowUsers {user}\n" in server_config(keys, "10.99.0.2", {})
    assert f"  User {user}\n" in client_config(keys, {"nm0-0": "10.99.0.2"})
