"""What a user's program inherits by hand, it inherits on bare metal, and in a container all but what that
changes by nature. One program prints all that it has, started by the same shell both ways."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.conftest import cache_with_programs

pytestmark = pytest.mark.more

ATTRIBUTES = r"""#!/bin/sh
# Prints lines "NAME: VALUE", with no process of another kind than a shell's between.
echo "input: $(readlink /proc/self/fd/0) $(cat | tr '\n' ' ')"
echo "directory: $(pwd -P)"
echo "descriptors: $(ls /proc/$$/fd | grep -v '^10$' | tr '\n' ' ')"  # sh keeps its script at 10
echo "priority: $(awk '{print $19, $40, $41}' /proc/self/stat) $(ionice -p $$ | tr '\n' ' ')"
for name in oom_score_adj timerslack_ns personality coredump_filter; do
    echo "$name: $(cat /proc/self/$name)"
done
echo "host: $(hostname)"
awk -F '  +' 'NR > 1 { print "limit " $1 ": " $2 " " $3 }' /proc/self/limits
grep -E '^(Umask|Sig[BI]|Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|THP|Specul|Mems_allowed)' /proc/self/status
env | sed -n 's/^\([A-Za-z0-9_]*\)=/variable \1: /p' | grep -v '^variable _:'
"""
STUDY = """\
name: by-hand
environments: {{{environments}}}
placements: {{1x1: {{instances: 1, tasks: 1}}}}
workloads: {{attributes: {{command: [./attributes]}}}}
design: {{baseline: native, mode: plain, warm_up: 0}}
"""
STARTS = {
    "as it is": "",
    "odd": "umask 077; ulimit -Sn 300; ulimit -c 0; ulimit -s 4096; echo 300 > /proc/self/oom_score_adj; "
    "trap '' INT TERM USR2; unset LANG LC_ALL LC_CTYPE; export TZ=Asia/Tokyo SLURM_PROCID=3 PMI_RANK=1; "
    "exec < lines; read first; set -- nice -n 4 nohup",
    "silent": "exec <&-; export LC_ALL=C PWD=$PWD/.",
    "nobody": "unset HOME USER LOGNAME; set -- setpriv --reuid 54321 --regid 54321 --clear-groups "
    "--inh-caps=+dac_override --ambient-caps=+dac_override",
}
"""Conditions to start in. Of the user without a name, only the capability to reach this checkout is kept."""
CONTAINERS = {
    "namespaces": set[str](),
    "runc": {"input", "CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs"},
}
"""What each backend changes by nature, besides the host name."""


def attributes(text: str) -> dict[str, str]:
    found = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
    assert len(found) > 40, text
    of_the_c_library = 0b11 << 31  # signals 32 and 33, which some runtimes reset and no program can set
    return found | {"SigIgn": f"{int(found['SigIgn'], 16) & ~of_the_c_library:x}"}


@pytest.fixture
def here() -> Iterator[Path]:
    """A directory that every user may enter, and instances do not replace."""
    with TemporaryDirectory(dir="/var/tmp", prefix="by-hand-") as name:
        directory = Path(name)
        (directory / "attributes").write_text(ATTRIBUTES)
        (directory / "attributes").chmod(0o755)
        (directory / "lines").write_text("one\ntwo\nthree\n")
        directory.chmod(0o777)
        yield directory


def started(
    here: Path, start: str, command: list[str], env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    line = f'{start}\nexec "$@" {shlex.join(command)}'
    return subprocess.run(
        ["bash", "-c", line, "bash"],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def both_ways(here: Path, start: str, environments: list[str], env: dict[str, str]) -> list[dict[str, str]]:
    """The attributes by hand, and in each environment."""
    backends = ", ".join(f"{name}: {{backend: {name}}}" for name in ["native", *environments])
    (here / "s.yaml").write_text(STUDY.format(environments=backends))
    by_hand = started(here, start, ["./attributes"], env)
    assert by_hand.returncode == 0, by_hand.stderr
    words = ["run", "s.yaml", "--max-blocks", "1", "--force", "--results", str(here / "results")]
    done = started(here, start, [sys.executable, "-m", "nearmetal", *words], env)
    assert done.returncode == 0, done.stderr
    (logs,) = (here / "results").glob("*/logs")
    printed = [logs / f"1.{name}~1x1" / "attributes.stdout.txt" for name in ["native", *environments]]
    return [attributes(by_hand.stdout), *(attributes(file.read_text()) for file in printed)]


def differences(one: dict[str, str], other: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    names = {n for n in {*one, *other} if one.get(n) != other.get(n)} - {"variable NEARMETAL_RUN"}
    return {n: (one.get(n), other.get(n)) for n in names}


@pytest.mark.parametrize("start", STARTS)
def test_a_program_inherits_on_bare_metal_what_it_has_by_hand(here: Path, start: str) -> None:
    env = dict(os.environ)
    if start == "nobody":
        if os.geteuid() != 0:
            pytest.skip("root can become a user without a name")
        env |= cache_with_programs(here / "cache") | {"XDG_STATE_HOME": str(here / "state")}
        subprocess.run(["chown", "-R", "54321:54321", here], check=True)
    containers = [b for b in CONTAINERS if start == "odd" and (b == "namespaces" or os.geteuid() == 0)]
    containers = [b for b in containers if b == "namespaces" or shutil.which(b)]
    by_hand, native, *inside = both_ways(here, STARTS[start], containers, env)
    found = differences(by_hand, native)
    if start == "silent":  # and the descriptor that is closed by hand
        assert native["input"] == "/dev/null"
        found = {n: v for n, v in found.items() if n not in ("input", "descriptors")}
    assert not found, found
    for name, has in zip(containers, inside, strict=True):
        assert set(differences(by_hand, has)) - {"host"} <= CONTAINERS[name], differences(by_hand, has)


def test_a_pipe_is_read_once_and_given_to_every_run(here: Path) -> None:
    by_hand, native = both_ways(here, "exec < <(echo one; sleep 0.2; echo two)", [], dict(os.environ))
    assert by_hand["input"].endswith(" one two") and native["input"].endswith(" one two")
    assert set(differences(by_hand, native)) == {"input"}
