"""A new user's first hour in a terminal of 80 columns: 32 mistakes, and four tasks with their answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pytest
from playwright.sync_api import Browser
from tests.contract.guests import kernel
from tests.patience import PATIENCE, one_fits, until
from tests.system.test_quick import left_behind
from tests.system.test_report_browser import browser as browser
from tests.system.test_report_browser import not_accessible, opened

pytestmark = pytest.mark.more

COLUMNS, LINES = 80, 40
LINES_OF_ANSWER = 30
BIN = Path(sys.executable).parent
PROGRAMS = {
    "program.sh": "#!/bin/sh\nsleep 0.02\n",
    "burns.sh": "#!/bin/sh\ni=0; while [ $i -lt 60000 ]; do i=$((i+1)); done\n",
    "fails.sh": "#!/bin/sh\necho 'no licence' >&2\nexit 3\n",
    "hosts.sh": "#!/bin/sh\ncase $(hostname) in nm*) echo 'no licence here' >&2; exit 3;; esac\nsleep 0.02\n",
}
STUDY = """\
name: small
environments:
  native: {backend: native}
  box: {backend: namespaces, attachment: loopback}
placements: {one: {instances: 1, tasks: 1}}
workloads: {program: {command: [./program.sh]}}
design: {baseline: native, mode: plain, warm_up: 0}
"""
SLOW = STUDY.replace("loopback", "loopback, limits: {cpu: 10 %}").replace("./program.sh", "./burns.sh")
"""A container that is some ten times as slow for its CPU quota, which may be taken away. Bare metal is faster
in every round, even if it shares its CPUs with other tests."""
RING = """\
#include <mpi.h>

int main(int argc, char **argv)
{
    static char token[4096];
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 20000; i++)
        MPI_Sendrecv_replace(token, sizeof token, MPI_CHAR, (rank + 1) % size, 0, (rank + size - 1) % size, 0,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
"""
_COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])[;m]")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(frozen=True)
class Screen:
    """What a terminal showed, without colours and with them, and the exit status of the command."""

    text: str
    code: int
    raw: str = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def spawned(line: str, cwd: Path) -> pexpect.spawn[str]:
    """Type a command line into a shell in a terminal of 80 columns."""
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    env = {**plain, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    return pexpect.spawn(
        "/bin/sh",
        ["-c", line],
        cwd=cwd,
        env=env,
        dimensions=(LINES, COLUMNS),
        timeout=PATIENCE,
        encoding="utf-8",
        codec_errors="replace",
    )


def ended(terminal: pexpect.spawn[str]) -> Screen:
    """What the terminal shows from now on until the command ends."""
    terminal.expect(pexpect.EOF)
    terminal.close()
    raw = terminal.before or ""
    text = _ESCAPES.sub("", raw).replace("\r\n", "\n").expandtabs()
    shown = "\n".join(row.rpartition("\r")[2].rstrip() for row in text.split("\n"))
    code = terminal.exitstatus
    return Screen(text=shown, code=-(terminal.signalstatus or 0) if code is None else code, raw=raw)


def typed(line: str, cwd: Path) -> Screen:
    """Type a command line, and wait for its end."""
    return ended(spawned(line, cwd))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new user's directory: programs, a study with a result, and a file system that is soon full."""
    directory = tmp_path_factory.mktemp("first")
    for name, text in PROGRAMS.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    (directory / "small.yaml").write_text(STUDY)
    (directory / "typos.yaml").write_text(STUDY.replace("backend: native", "backnd: natve", 1))
    made = typed("nearmetal run small.yaml --max-blocks 2 --results 'my results/one'", directory)
    assert made.code == 0, made.text
    (result,) = (directory / "my results/one").iterdir()
    shutil.copytree(result, directory / "newer")
    plan = directory / "newer/plan.json"
    plan.write_text(re.sub(r'"schema": *\d+', '"schema": 99', plan.read_text()))
    yield directory
    assert left_behind(directory) == []


MISTAKES = (
    "nearmetal quik",
    "nearmetal quick --time 90",
    "nearmetal quick --time 5minutes",
    "nearmetal quick --margin 1",
    "nearmetal quick --no-such-option",
    "nearmetal weigh native dcoker -- ./program.sh",
    "nearmetal weigh native native -- ./program.sh",
    "nearmetal weigh native,namespaces --dry-run -- ./nosuch",
    "nearmetal weigh native namespaces ./program.sh",
    "nearmetal weigh native namespaces ls -la",
    "nearmetal weigh native namespaces -- ./nosuch",
    "nearmetal weigh native namespaces --dry-run -- ./nosuch",
    "nearmetal weigh native namespaces -- ./small.yaml",
    "nearmetal weigh native namespaces --seed 1 -- ls '|' wc",
    "nearmetal weigh native namespaces --seed 1 -- ./fails.sh",
    "nearmetal weigh native namespaces -- ./hosts.sh",
    "nearmetal weigh native namespaces -w cg:X",
    "nearmetal weigh native namespaces -w npb:cg.D",
    "unshare --user --map-user=1000 --map-group=1000 nearmetal weigh native lxc -- ./program.sh",
    "nearmetal weigh native namespaces --dry-run --mpi --ranks 6400 -- ./program.sh",
    "nearmetal weigh native namespaces",
    "nearmetal export --format excel 'my results/one'",
    "nearmetal export --format parquet 'my results/one'",
    "nearmetal compare 'my results/one'",
    "nearmetal compare 'my results/one' 'my results/one'",
    "nearmetal plan typos.yaml",
    "nearmetal plan weigh --blocks 14",
    "nearmetal run nosuch.yaml",
    "nearmetal analyze newer",
    "nearmetal analyze nosuch",
    "nearmetal resume .",
    "nearmetal resume --margin 5% 'my results/one'",
    "nearmetal run small.yaml --results /sys/kernel/here",
    "nearmetal image build nosuch",
    "nearmetal kernel bt --ranks 6400",
)
"""What a new user types wrong. Number 8 names the environments as other tools take them."""


def test_a_mistake_has_one_clear_reason(here: Path, golden: Callable[[str, str], None]) -> None:
    transcript = []
    for line in MISTAKES:
        screen = typed(line, here)
        assert screen.code in (2, 3, 4), f"{line}: {screen.code}\n{screen.text}"
        assert "Traceback" not in screen.text and len(screen.lines) <= 24, screen.text
        transcript.append(f"$ {line}\n{masked(screen.text, here)}\n[exit status {screen.code}]\n")
    golden("mistakes.txt", "\n".join(transcript))


def masked(text: str, here: Path) -> str:
    """A transcript without what differs from run to run: directories, times and process numbers."""
    text = text.replace(str(here), "HERE").strip()
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d", "TIME", text)
    return re.sub(r"(?<=on )\d+(?= CPUs)|\d+(?= of this machine may be used)", "CPUS", text)


EDGES = (
    "nearmetal status 'my results/one'",
    "nearmetal resume --dry-run 'my results/one' --margin 3%",
    "PYTHONIOENCODING=ascii nearmetal plan small.yaml --seed 1",
    "nearmetal plan small.yaml --seed 1 | head -n 3",
    "XDG_CACHE_HOME=$PWD/empty nearmetal image list",
    "nearmetal image list --json | head -c 2",
    "mkdir none && nearmetal list --results none",
)
"""What a new user types right: spaces, encodings, pipes, a place with nothing in it."""


def test_an_edge_is_no_mistake(here: Path, golden: Callable[[str, str], None]) -> None:
    transcript = []
    for line in EDGES:
        screen = typed(line, here)
        assert screen.code == 0, f"{line}: {screen.code}\n{screen.text}"
        transcript.append(f"$ {line}\n{measured(masked(screen.text, here))}\n")
    golden("edges.txt", "\n".join(transcript))


def measured(text: str) -> str:
    """A transcript without times, numbers of rounds to come, seeds and the order of trials.

    A plan follows from defaults, or from what a run of the same study took on this machine earlier.
    """
    text = re.sub(r"(?<=^all )\d+(?= files)|(?<=of )\d+(?= figures)", "N", text, flags=re.MULTILINE)
    text = re.sub(r"\d:\d\d:\d\d|(?<=of )\d+\.\d(?= s)", "TIME", text)
    text = re.sub(
        r"(about )[\d,]+( rounds of TIME s)(: TIME \(measured in an earlier run\))?", r"\1N\2", text
    )
    text = re.sub(r"(?<=about )[\d,]+(?= more rounds)|(?<=seed )[\da-f]+", "N", text)
    text = re.sub(r"(?<=… and )[\d,]+|(?<=\.\.\. and )[\d,]+|(?<=--blocks )\d+", "N", text)
    return re.sub(r"(?<=^  \d  )\S+/\S+.*", "TRIAL", text, flags=re.MULTILINE)


def test_a_pipe_is_as_wide_as_columns_says(here: Path) -> None:
    """What cannot be broken, such as a path, may be wider."""
    screen = typed("COLUMNS=60 nearmetal analyze 'my results/one' | cat", here)
    assert screen.code == 0 and not _ESCAPES.search(screen.raw), screen.text
    assert all(len(row) <= 60 or "my results/one/" in row for row in screen.lines), screen.text
    wide = typed("COLUMNS=100 nearmetal analyze 'my results/one' | cat", here)
    assert max(map(len, wide.lines)) > 70, wide.text


def test_no_color_leaves_only_bold_and_dim(here: Path) -> None:
    (here / "slow.yaml").write_text(SLOW)
    made = typed("nearmetal run slow.yaml --max-blocks 8 --results slow", here)
    assert made.code == 0, made.text
    coloured, plain = (typed(f"{no}nearmetal analyze slow", here) for no in ("", "NO_COLOR=1 "))
    assert _COLOURS.search(coloured.raw) and not _COLOURS.search(plain.raw)
    assert coloured.text == plain.text


def recorded(results: Path) -> int:
    """The number of trials that runs have recorded."""
    return sum(trials.read_text().count("\n") for trials in results.glob("*/trials/*.jsonl"))


def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(here: Path) -> None:
    run = spawned("exec nearmetal run small.yaml --max-blocks 100000 --results stopped", here)
    try:
        until(lambda: recorded(here / "stopped") >= 6, "two rounds of three trials")
        second = typed("nearmetal run small.yaml --results second", here)
    finally:
        run.sendintr()
        screen = ended(run)
    assert second.code == 3 and not (here / "second").exists(), second.text
    assert f"(pid {run.pid}: nearmetal run small.yaml" in second.text, second.text
    assert f"next: wait for it, stop it (kill -INT {run.pid})" in second.text, second.text
    assert screen.code == 130 and "Traceback" not in screen.text, screen.text
    (directory,) = here.glob("stopped/*")
    said = screen.text.rstrip().splitlines()[-1]
    saved = (
        rf"interrupted; \d+ rounds? (is|are) saved. Go on with:  nearmetal resume stopped/{directory.name}"
    )
    assert re.fullmatch(saved, said)
    answer = screen.text[screen.text.index("What does box cost") :].splitlines()
    assert len(answer) <= LINES_OF_ANSWER and "∞" not in screen.text, screen.text
    again = typed(said.partition("Go on with:  ")[2] + " --dry-run", here)
    assert again.code == 0, again.text


def test_a_full_disk_keeps_the_records_before_it(here: Path) -> None:
    """The directory is filled in a mount namespace of its own, which ends with the command."""
    (here / "full").mkdir()
    run = "nearmetal run small.yaml --results full --max-blocks 1000"
    screen = typed(
        f"unshare --mount sh -c 'mount -t tmpfs -o size=120k tmpfs full && {run}; code=$?; "
        "nearmetal status full; exit $code'",
        here,
    )
    assert screen.code == 4 and "Traceback" not in screen.text, screen.text
    text = " ".join(screen.text.split())
    assert re.search(r"full/small-\S+: no space left on the device; the records before it are whole", text)
    assert re.search(r"next: make room, then: nearmetal resume full/small-", text)
    assert re.search(r"[1-9]\d* rounds?, \d+ trials \(0 failed\)", text), screen.text


@dataclass(frozen=True)
class Task:
    """A question of a new user.

    lines: what is typed, one after the other; the last one answers the question, in the time LIMIT.
    limit: the time that it usually has.
    question: headline of terminal and page.
    environments: names that the answer has to say something about.
    """

    lines: tuple[str, ...]
    limit: str
    question: str
    environments: tuple[str, ...]


TASKS = {
    "an MPI program in Podman": Task(
        lines=(
            "mpicc -O2 ring.c -o ring",
            "nearmetal weigh native podman --mpi --ranks 2 --time LIMIT -- ./ring",
        ),
        limit="45s",
        question="What does Podman cost ./ring?",
        environments=("podman",),
    ),
    "a disk job in a virtual machine": Task(
        lines=(
            "nearmetal weigh native qemu --time LIMIT "
            "-- dd if=/dev/zero of={storage}/out bs=64k count=16 conv=fsync",
        ),
        limit="60s",
        question="What does QEMU cost dd if=/dev/zero 'of={storage}/out' bs=64k count=16 conv=fsync?",
        environments=("qemu",),
    ),
    "six runtimes by latency": Task(
        lines=(
            "nearmetal weigh native namespaces bubblewrap podman crun runc nspawn -w pingpong --time LIMIT",
        ),
        limit="60s",
        question="Which of namespaces, Bubblewrap, Podman, crun, runc and systemd-nspawn "
        "costs pingpong least?",
        environments=("namespaces", "bubblewrap", "podman", "crun", "runc", "nspawn"),
    ),
}
_LABELS = re.compile(r"^(?=▲|Noise |Next |Report |stopped: )", re.MULTILINE)


def stable(answer: str) -> tuple[str, str]:
    """What an answer says on every machine, whatever was measured: its words, and the labels of its table."""
    head, sentences, rest = answer.split("\n\n", 2)
    table, *parts = _LABELS.split(rest)
    paragraphs = {part.split()[0]: " ".join(part.split()) for part in parts}
    question = " ".join(head.split()).partition("? ")[0]
    said = [f"{row.split()[0]}  VERDICT" for row in sentences.splitlines() if not row.startswith(" ")]
    report = re.sub(r"(?<=/weigh-)[\dT-]+", "TIME", paragraphs["Report"])
    known = [f"{name} ..." for name in paragraphs if name not in ("▲", "Report")]
    words = "\n".join([f"{question}?", *said, *known, report])
    rows = [re.split(r" {2,}", row.strip())[0] for row in table.splitlines()]
    if table.startswith(" "):
        rows[0] = " ".join(table.splitlines()[0].split())
    shown = [re.sub(r"\(\d+\)", "(N)", row) for row in (*rows[:1], *sorted(rows[1:]))]
    legend = paragraphs.get("▲", "").replace(", ! changed while it was measured", "")
    return f"{words}\n", "".join(f"{row}\n" for row in (*shown, legend)) if table else ""


WORDS = {"slower", "faster", "equal", "undecided", "unsure"}
"""One of these follows the name of an environment."""


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_answered_on_one_screen_and_on_one_page(
    name: str, tmp_path: Path, browser: Browser, golden: Callable[[str, str], None]
) -> None:
    task = TASKS[name]
    if "qemu" in task.environments:
        assert kernel()
    (tmp_path / "ring.c").write_text(RING)
    for line in task.lines[:-1]:
        made = typed(line, tmp_path)
        assert made.code == 0, made.text
    limits = iter((task.limit, "10m"))  # a busy machine may end no round in the first

    def asked() -> Screen:
        screen = typed(task.lines[-1].replace("LIMIT", next(limits)), tmp_path)
        assert screen.code == 0, screen.text
        return screen

    screen = one_fits(asked, lambda shown: "no round was measured" not in shown.text, attempts=2)
    start = screen.text.replace("\n", " ").index(task.question)
    answer = screen.text[start:].rstrip().splitlines()
    assert len(answer) <= LINES_OF_ANSWER and max(map(len, answer)) <= COLUMNS, screen.text
    rows = [row.replace(" (TCG, no KVM)", "").split() for row in answer]
    said = {(row[0], row[1].strip(",")) for row in rows if len(row) > 1}
    unanswered = [e for e in task.environments if not any((e, word) in said for word in WORDS)]
    assert unanswered == [], screen.text
    words, table = stable("\n".join(answer))
    file = f"task-{name.lower().replace(' ', '-')}"
    golden(f"{file}.txt", words)
    if table or "no interval yet" not in screen.text[start:]:  # a slow machine has too few rounds for a table
        golden(f"{file}-table.txt", table)
    offered = re.findall(r"nearmetal (?:resume|try|analyze) \S+", screen.text[start:])
    assert len(offered) in (1, 2), "analyze, and what the line Next names unless nothing is undecided"
    for line in offered:
        done = typed(line if "analyze" in line else f"{line} --dry-run", tmp_path)
        assert done.code == 0, f"{line}: {done.text}"
    (report,) = tmp_path.glob("results/*/report.html")
    with opened(browser, report.as_uri()) as page:
        assert page.locator("h1").inner_text() == task.question
        first = page.locator("main, body").first.inner_text()
        assert all(e in first for e in task.environments)
        assert not_accessible(page) == []
    assert left_behind(tmp_path) == []


def boots_said(text: str) -> str:
    """What compare says on every machine: its first sentence, the upgrade, what is next, and the page."""
    head, _, rest = text.rstrip().partition("\n\n")
    sentence = " ".join(head.split()).partition(" intervals · ")[0]
    parts = re.split(r"^(?=Upgraded|Not |Next|Page)", rest, flags=re.MULTILINE)[1:]
    said = "\n".join([f"{sentence} intervals", *(" ".join(part.split()) for part in parts)])
    return re.sub(r"(?<=kernel )\S+ → \S+-next", "RELEASE → RELEASE-next", said) + "\n"


def test_two_kernels_need_several_boots(
    here: Path, browser: Browser, golden: Callable[[str, str], None]
) -> None:
    """The second side is a recorded run whose boot and kernel are given other names."""
    for side in ("before", "after"):
        made = typed(f"nearmetal run small.yaml --max-blocks 2 --results {side}", here)
        assert made.code == 0, made.text
    compared = "nearmetal compare --before before --after after --html page.html"
    same = typed(compared, here)
    assert same.code == 0 and "both sides are of one boot" in same.text, same.text
    (upgraded,) = here.glob("after/*/provenance.json")
    facts = json.loads(upgraded.read_text())
    facts["boot"] = "another"
    facts["kernel"]["release"] += "-next"
    upgraded.write_text(json.dumps(facts))
    screen = typed(compared, here)
    assert screen.code == 0 and len(screen.lines) <= LINES_OF_ANSWER, screen.text
    assert screen.text.startswith("No verdict possible: one boot on each side."), screen.text
    golden("task-two-kernels.txt", f"{boots_said(same.text)}\n{boots_said(screen.text)}")
    with opened(browser, (here / "page.html").as_uri()) as page:
        assert page.locator("h1").inner_text() == "Did the upgrade hurt?"
        assert "No verdict possible: one boot on each side." in page.locator("main, body").first.inner_text()
        assert not_accessible(page) == []
