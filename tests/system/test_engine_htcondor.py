"""Rounds in jobs of a real HTCondor 23.9, Debian's, whose two nodes are both this machine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.test_backends_unprivileged import NOBODY, python_for_nobody
from tests.system.debian import unpacked
from tests.system.engine_runs import (
    EXAMPLES,
    FORCE,
    STUDY,
    again,
    claims,
    directory,
    nearmetal,
    on,
    records,
    require_whole,
)

pytestmark = [pytest.mark.apart]

SOURCE = Path(__file__).parents[2] / "src"
PACKAGES = (
    *("condor", "libscitokens0t64", "libvomsapi1t64", "libmunge2", "libpcre2-8-0", "libsqlite3-0"),
    *(
        "libc6",
        "libc-bin",
        "libstdc++6",
        "libgcc-s1",
        "libgomp1",
        "libexpat1",
        "libuuid1",
        "zlib1g",
        "libzstd1",
    ),
    *("libssl3t64", "libgssapi-krb5-2", "libk5crypto3", "libkrb5-3", "libkrb5support0", "libcom-err2"),
    *("libkeyutils1", "libcurl4t64", "libnghttp2-14", "libnghttp3-9", "libngtcp2-16"),
    *("libngtcp2-crypto-gnutls8", "librtmp1", "libssh2-1t64", "libpsl5t64", "libldap2", "libsasl2-2"),
    *("libidn2-0", "libunistring5", "libgnutls30t64", "libhogweed6t64", "libnettle8t64", "libgmp10"),
    *("libp11-kit0", "libtasn1-6", "libffi8", "libbrotli1", "libpython3.13", "libpython3.13-minimal"),
    "libpython3.13-stdlib",
)
"""HTCondor of Debian 13, and the libraries that it needs beside those of Debian 12."""


@pytest.fixture(scope="module")
def htcondor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("htcondor"), PACKAGES, "trixie")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The home directory of the user. DAGMan refuses logs below /tmp."""
    with tempfile.TemporaryDirectory(prefix="nm-condor-", dir="/var/tmp") as directory:
        os.chown(directory, NOBODY, NOBODY)
        yield Path(directory)


@pytest.fixture
def here(home: Path) -> Iterator[Path]:
    """A directory of the user with the study; afterwards nothing of ours is left on the machine."""
    place = home / "here"
    place.mkdir()
    (place / "short.yaml").write_text(STUDY)
    os.chown(place, NOBODY, NOBODY)
    yield place
    runs = {r["run"] for r in records(place)}
    left = json.loads(nearmetal("clean", "--dry-run", "--json", cwd=place).stdout)["found"]
    shutil.rmtree(place)
    assert [item for item in left if any(run in str(item) for run in runs)] == []


def beside(htcondor: Path, here: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script of the user beside HTCondor. `nearmetal` is a function in it."""
    environment = {
        "HOME": str(here.parent),
        "XDG_RUNTIME_DIR": str(here.parent),
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{SOURCE}:{sysconfig.get_paths()['purelib']}",
    }
    unshare = ["unshare", "--mount", str(Path(__file__).with_name("htcondor.sh"))]
    own = f'{OWN}nearmetal() {{ {shlex.quote(python_for_nobody())} -m nearmetal "$@"; }}\n'
    return subprocess.run(
        [*unshare, str(htcondor), str(here / "htcondor"), "nobody", "sh", "-c", own + script],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def words(argv: list[str]) -> str:
    return f"nearmetal {shlex.join(argv)}"


NO_JOBS = """
for _ in $(seq 300); do [ -z "$(condor_q -af ClusterId)" ] && break; sleep 0.1; done
condor_q -af:j JobStatus | sed 's/^/left in the queue: /' >&2
"""
"""Wait until no job is in the queue, and name those that stay."""
RESUMED = f"""
blocks=$(($(last_block) + 4))
{words(again("htcondor", 0)).replace("--max-blocks 0", '--max-blocks "$blocks"')} || exit 1
"""
"""Run four further rounds, and print the result."""
OWN = """
set -u
await() {
  for _ in $(seq 1200); do eval "$1" && return; sleep 0.1; done
  echo "never: $1" >&2
  exit 1
}
last_block() { ls results/*/claims | sed -n 's/^\\([0-9]*\\)[.].*/\\1/p' | sort -n | tail -1; }
"""
"""Functions of the scripts: `await` waits for a condition; `last_block` prints the number of a round."""


def test_rounds_in_jobs_of_htcondor(htcondor: Path, here: Path) -> None:
    done = beside(htcondor, here, f"{words(on('htcondor', 8))} || exit 1{NO_JOBS}")
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 8)
    assert len({r["run"] for r in records(here)}) == 2
    assert {r["attempt"] for r in records(here)} == {1}
    assert "left in the queue" not in done.stderr


def test_the_example_of_three_hosts(htcondor: Path, here: Path) -> None:
    shutil.copy(EXAMPLES / "three-hosts.yaml", here)
    argv = ["run", "three-hosts.yaml", "--engine", "htcondor", "--max-blocks", "2", "--json", *FORCE]
    done = beside(htcondor, here, words(argv))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["blocks"] == 2 and {c["workload"] for c in result["cells"]} >= {"cg", "memory", "start"}


def test_ten_thousand_workers_are_submitted_about_as_fast_as_by_htcondor_s_own_command(
    htcondor: Path, here: Path
) -> None:
    script = f"""
export PYTHONPATH={shlex.quote(str(SOURCE.parent))}:$PYTHONPATH
{shlex.quote(python_for_nobody())} -m benchmarks.engines submit --engine htcondor --runs 3"""
    done = beside(htcondor, here, script)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    found = json.loads(done.stdout.splitlines()[-1])
    # 1.2 times on a quiet machine; on a busy one, whatever the command takes, a start of it may be delayed.
    assert found["workers"] == 10_000 and found["ours"] < 2 * found["own"] + 0.1


def test_dagman_submits_the_workers(htcondor: Path, here: Path) -> None:
    argv = on("htcondor", 8, "--engine-option", "dagman=yes")
    done = beside(htcondor, here, f"{words(argv)} || exit 1{NO_JOBS}")
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 8)
    assert len({r["run"] for r in records(here)}) == 2
    assert "left in the queue" not in done.stderr
    workers = directory(here) / "workers"
    assert {file.name for file in workers.glob("*.out")} >= {"1.out", "2.out"}
    log = (workers / "workers.dag.dagman.out").read_text()
    assert "All jobs Completed!" in log


def test_an_evicted_worker_is_started_again_and_a_held_one_is_not_waited_for(
    htcondor: Path, here: Path
) -> None:
    """The evicted worker gives its round back. No job is left when the run ends, not even the held one."""
    script = f"""
{words(on("htcondor", 3000))} >/dev/null & run=$!
await 'ls results/*/claims/4.1.json >/dev/null 2>&1'
job=$(condor_q -constraint 'JobStatus == 2' -af:j ProcId | head -1 | cut -d ' ' -f 1)
condor_vacate_job "$job" >&2
await '[ "$(grep -c "Job executing" results/*/workers/htcondor.log)" = 3 ]'
condor_hold "$job" >&2
await '[ "$(condor_q "$job" -af JobStatus)" = 5 ]'
last=$(last_block)
await 'ls results/*/claims/$((last + 3)).1.json >/dev/null 2>&1'
kill -TERM $(pgrep -P $run)
wait $run
echo "ended with $?" >&2{NO_JOBS}{RESUMED}"""
    done = beside(htcondor, here, script)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, json.loads(done.stdout)["blocks"])
    assert "ended with 130" in done.stderr or "ended with 143" in done.stderr
    assert "was lost" not in done.stderr and claims(here, "held") == []
    assert "left in the queue" not in done.stderr
    events = "".join(file.read_text() for file in (directory(here) / "workers").glob("htcondor.log"))
    assert "Job was evicted" in events and "Job was held" in events
    logs = [file.read_text() for file in (directory(here) / "workers").glob("[0-9].out")]
    interrupted = [text.count("interrupted; the rounds named above are saved") for text in logs]
    assert min(interrupted) >= 1, "workers that are started again keep what was written before"


def test_a_killed_run_is_resumed_and_cancelled(htcondor: Path, here: Path) -> None:
    """Without a coordinator, the workers end by themselves."""
    script = f"""
{words(on("htcondor", 3000))} >/dev/null & run=$!
await 'ls results/*/claims/3.1.json >/dev/null 2>&1'
kill -9 $(pgrep -P $run) $run
await '[ -z "$(condor_q -af ClusterId)" ]'{RESUMED}
{words(again("htcondor", 3000))} >/dev/null & run=$!
await 'ls results/*/claims/$((blocks + 4)).1.json >/dev/null 2>&1'
nearmetal cancel >&2
wait $run
{NO_JOBS}"""
    done = beside(htcondor, here, script)
    assert done.returncode == 0, done.stderr
    blocks = json.loads(done.stdout)["blocks"]
    assert {c["n"] for c in json.loads(done.stdout)["cells"]} == {blocks} and blocks >= 7, "nothing is lost"
    assert "left in the queue" not in done.stderr and claims(here, "held") == []
    status = json.loads(nearmetal("status", "--json", cwd=here).stdout)
    assert status["blocks"] > blocks and status["missing_blocks"] == []
