"""Programs that go wrong, for real: each gives a clear error or a failed row in time, and leaves nothing."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytestmark = pytest.mark.more

NEARMETAL = str(Path(sys.executable).parent / "nearmetal")
#: One block of two arms.
STUDY = """\
name: faults
environments:
  native: {{backend: native}}
  namespaces: {{backend: namespaces, attachment: veth-bridge, workloads: [{inside}]}}
placements:
  one: {{instances: 1, tasks: 1}}
workloads:
{workloads}
design: {{baseline: native, mode: plain, warm_up: 0, max_blocks: 6, min_blocks: 6, expected_blocks: 6}}
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A directory to run in; afterwards nothing of ours is left on the machine."""
    yield tmp_path
    done = run(tmp_path, "clean", "--dry-run", "--json")
    assert json.loads(done.stdout)["found"] == []
    assert not list(Path("/var/tmp").glob("nearmetal-??????-work"))


def run(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NEARMETAL, *words], cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )


def failed(here: Path, workload: str, code: int = 4) -> str:
    """What nearmetal says of a study whose one workload fails everywhere."""
    (here / "s.yaml").write_text(STUDY.format(workloads=workload, inside=workload.split(":")[0].strip()))
    done = run(here, "run", "s.yaml", "--seed", "1")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_disk_and_memory_are_not_compared_and_the_remedy_runs_as_printed(here: Path) -> None:
    """What a program writes outside its working directory lies in an overlay of the machine's root, which is
    in memory."""
    with TemporaryDirectory(dir="/var/tmp") as name:
        directory, out = Path(name) / "job", Path(name) / "out"
        directory.mkdir()
        weigh = ("weigh", "native", "namespaces", "--seed", "1", "--time", "2s", "--")
        done = run(directory, *weigh, "dd", "if=/dev/zero", f"of={out}", "bs=64k", "count=16")
        assert done.returncode == 2, done.stderr
        assert "dd writes 1 MiB in each run, to a disk in native/1x1 and to memory in namespaces/1x1" in (
            done.stderr
        )
        assert not list(directory.glob("results/*"))
        remedy = shlex.split(done.stderr.partition("next: ")[2].splitlines()[0])
        assert remedy == ["nearmetal", *weigh, "dd", "if=/dev/zero", "of={storage}/out", "bs=64k", "count=16"]
        for words in (remedy[1:], [*weigh, "sh", "-c", "echo 1 > out; seq 20000"]):
            done = run(directory, *words)
            assert done.returncode == 0, done.stderr
            assert "left out" not in done.stderr


def log_named_in(words: str) -> Path:
    """The directory of logs that an error names."""
    return next(Path(w.rstrip(":")) for w in words.split() if "/logs/" in w)


def test_a_program_that_hangs_is_ended_with_all_that_it_started(here: Path) -> None:
    marker = "271828"
    said = failed(
        here,
        f"""\
  hangs:
    script: |
      #!/bin/sh
      echo begun
      (setsid sleep {marker} &)
      sleep {marker}
    time_limit: 1 s""",
    )
    assert "hangs did not end within 1 s, its time_limit" in said
    assert "begun" in (here / log_named_in(said) / "hangs.stdout.txt").read_text()
    assert not running(marker)


def running(word: str) -> list[str]:
    """Command lines of processes that hold a word as an argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found += [" ".join(words)] if word in words else []
    return found


@pytest.mark.parametrize("how", ["(setsid sleep 314159 >/dev/null 2>&1 &)", "sleep 314159 &"])
def test_a_program_that_forks_away_has_no_time(here: Path, how: str) -> None:
    said = failed(here, f"  away:\n    script: |\n      #!/bin/sh\n      {how}\n      echo done")
    assert "away ended and left sleep running" in said and "in the foreground" in said
    assert not running("314159")


def test_a_signal_is_named(here: Path) -> None:
    said = failed(here, "  dies:\n    script: |\n      #!/bin/sh\n      echo half; kill -SEGV $$")
    assert "dies: was killed by SIGSEGV" in said
    assert "run it by hand in a directory with its files: /bin/sh ./script; if it fails only in" in said
    assert (here / log_named_in(said) / "dies.stdout.txt").read_text() == "half\n"


def test_a_status_of_its_own_comes_with_a_command_to_try(here: Path) -> None:
    (here / "app").write_text("#!/bin/sh\necho no licence for $1 >&2; exit 3\n")
    (here / "app").chmod(0o755)
    done = run(here, "weigh", "native", "namespaces", "--seed", "1", "--", "./app", "two words")
    assert done.returncode == 4 and "app: ended with 3: no licence for two words" in done.stderr
    line = done.stderr.partition("next: run it by hand: ")[2].splitlines()[0]
    by_hand = subprocess.run(["/bin/sh", "-c", line], cwd="/", capture_output=True, text=True, check=False)
    assert by_hand.returncode == 3 and by_hand.stderr == "no licence for two words\n"


def test_a_program_that_is_not_there_and_a_wrong_code(here: Path) -> None:
    (here / "data").write_text("1 2 3\n")
    said = failed(here, "  data:\n    command: [./data]", 2)
    assert "./data cannot be executed" in said and "chmod +x ./data" in said
    said = failed(here, "  gone:\n    command: [no-such-program]", 2)
    assert "no-such-program is not installed here" in said
    assert "install it" in said


def test_output_of_every_kind(here: Path) -> None:
    """One study: each workload has its own mistake, and its rows alone say so."""
    numbers = {
        "nothing": ("true", r"took (\\S+)"),
        "half": ("printf 'took 1.'; printf 'too' >&2", r"took (\\S+) s"),
        "nan": ("echo took nan", r"took (\\S+)"),
        "inf": ("echo took inf", r"took (\\S+)"),
        "comma": ("echo took 1,5", r"took ([\\d.]+)"),
        "twice": ("echo took 2; echo took 3", r"took (\\S+)"),
        "binary": ("head -c 100000 /dev/urandom; echo; echo took 4", r"^took (\\d+)$"),
        "never": ("echo took 5", r"lasted (\\d+)"),
        "loops": ("head -c 4000 /dev/zero | tr '\\\\0' a; echo", r"(?:a|aa)+(b)c$"),
        "long": ("yes 'filler filler filler filler' | head -c 60000000; echo took 6", r"took (\\d+)"),
    }
    text = "\n".join(
        f'  {name}:\n    command: [sh, -c, "{program}"]\n    metrics: {{m: '
        f'{{regex: "{regex}", unit: s, better: lower}}}}'
        for name, (program, regex) in numbers.items()
    )
    inside = ", ".join(name for name in numbers if name != "loops")
    (here / "s.yaml").write_text(STUDY.format(workloads=text, inside=inside))
    done = run(here, "run", "s.yaml", "--seed", "1", "--max-blocks", "1", "--json")
    assert "Traceback" not in done.stderr
    directory = here / json.loads(done.stdout)["results_dir"]
    rows: dict[str, dict[str, Any]] = {}
    for line in (directory / "trials" / "local.jsonl").read_text().splitlines():
        rows |= {r["workload"]: r for r in json.loads(line)["rows"] if r["metric"] == "m"}
    told = {name: row.get("reason") or row["values"] for name, row in rows.items()}
    assert told["twice"] == [2.0] and told["binary"] == [4.0] and told["long"] == [6.0]
    assert told["nothing"] == "metric 'm': stdout was empty"
    assert "the output ends in 'took 1.'; stderr has 1 line: write stream: stderr" in told["half"]
    assert "nan s is not a positive number" in told["nan"] and "inf s" in told["inf"]
    assert "'1,5' has a comma; write what it means: decimal: point" in told["comma"]
    assert "nothing like lasted" in told["never"]
    assert "took longer than 3 s" in told["loops"]
    logs = [p for p in directory.rglob("long.stdout.txt") if "/logs/" in str(p)]
    assert logs and all(p.stat().st_size < 2 << 20 for p in logs)
    assert "bytes left out" in logs[0].read_text()
