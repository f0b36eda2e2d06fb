"""The table of readers of files that travel, and contents that were found to break one of them."""

from __future__ import annotations

import json
import re
import socket
import struct
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.attack.fuzzing import Reader
from tests.attack.hostile_results import METRIC, STUDY, make_hostile_series
from tests.attack.local_readers import LOCAL_READERS, printed
from zstandard import ZstdCompressor

import nearmetal
from nearmetal.api.catalog import catalog
from nearmetal.api.checking import cpu_summary
from nearmetal.api.results import analysed, frozen_study
from nearmetal.environments.criu_images import check_images, statistics_of
from nearmetal.environments.external.saved import MANIFEST, read_saved
from nearmetal.errors import RunError
from nearmetal.host.guest_line import FrameKind, GuestLine
from nearmetal.host.replies import FirstInstruction, read_reply
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.images.importing import sif_offset
from nearmetal.images.store import ImageStore
from nearmetal.inventory import load_inventory
from nearmetal.inventory.slurm import parse_scontrol, parse_sinfo
from nearmetal.lifecycle import read_steps
from nearmetal.model.change import replace
from nearmetal.model.plan import NextBlock
from nearmetal.model.roof import MeasuredRoof, RoofRequest, roof_record
from nearmetal.model.scope import NODE
from nearmetal.model.study import Better
from nearmetal.plan import make_plan
from nearmetal.published.reading import load as load_paper
from nearmetal.records import ResultsDirectory, SeriesDirectory
from nearmetal.records.claims import CLAIMS, Claims, read_claim
from nearmetal.records.export import ExportFormat, export
from nearmetal.records.nodes import node_states
from nearmetal.records.orders import Orders
from nearmetal.report.forms.json_form import json_form
from nearmetal.report.forms.summary import summary_text
from nearmetal.report.tables.answer import absent_environments
from nearmetal.samplers.reading import read_sections
from nearmetal.study_file.environments.images import load_definition
from nearmetal.study_file.load import load_study, load_text
from nearmetal.testing.fake_host import FakeHost
from nearmetal.testing.simulate import Spread, simulate

ROOT = Path(__file__).parents[2]
SOURCE = Path(nearmetal.__file__).parent
DESCRIPTION = json.dumps(
    {
        "instance": "pid:7",
        "method": "criu",
        "own": {"lib": "/lib"},
        "machine": {"kernel": "6.1", "files": {"/bin/x": [1, "00"]}, "addresses": ["10.0.0.1:80 listening"]},
        "files": {},
        "signature": "00",
    }
).encode()
MOVE = b'{"rules": 2, "kind": "a", "method": "criu", "predicted_total": %s, "total": 1, "downtime": 1}'
FOUND: tuple[tuple[str, bytes], ...] = (
    ("SIF", b""),
    ("record of an image", b'{"digest": null, "origin": "", "created": "", "size": 1, "packages": [""]}'),
    (
        "analysis of a plan",
        b'{"schema": 2, "study": "", "seed": 7, "arms": ["box/one"], "created": 1,'
        b' "schedule": {"name": "growing looks", "closing": []}}',
    ),
    (
        "analysis of a plan",
        b'{"schema": 2, "study": "", "seed": 7, "arms": ["native/one", "box/one"], "created": 1e30,'
        b' "schedule": {"name": "growing looks", "closing": []}}',
    ),
    (
        "samples in frames",
        b'{"schema": 1, "tick": 0, "page": 4096}\n'
        b'{"time": 0, "monotonic": 0, "scopes": {"node": {"stat": "cpu 1 1"}}}',
    ),
    ("order", b"[]"),
    ("readiness of a guest", b"\0" * 4 + b"\x63\0\0\0" + b"\0" * 4),
    ("readiness of a guest", b"\0" * 4 + b"\x09\0\0\0" + b"\xff\xff\xff\xff" + b"\0" * 20),
    ("readiness of a guest", b"\0" * 4 + b"\x09\0\0\0" + b"\x0a\0\0\0" + b"\0" * 8 + b"[]"),
    ("clocks of a guest", b"\0" * 4 + b"\x0b\0\0\0" + b"\1\0\0\0" + b"\0"),
    ("command in a guest", b"\0" * 4 + b"\x08\0\0\0" + b"\4\0\0\0" + b"\x7f\x7f\0\0"),
    ("memory map of CRIU", b"\0" * 8 + b"\0\0\x10\0" + b"\xff" * (1 << 20)),
    ("steps of a rank", b'{"steps": [], "first": 1}\n'),
    *(
        (name, b'{"a":' + b"[" * 100_000)
        for name in ("own run", "moves of the past", "build", "note about dom0")
    ),
    *(
        (name, b'{"a":' + b"[" * 100_000 + b"\n")
        for name in ("cost of raw samples", "report of a helper", "upper bounds of a machine")
    ),
    ("moves of the past", b"\n".join([MOVE % b"1e308", *[MOVE % b"1"] * 4])),
    ("checks of a node", b'{"machine": {}, "checks": []}'),
    ("checks of a node", b'{"machine": {}, "checks": [{"state": 1, "what": {}}]}'),
    ("links of ranks in a guest", b"x"),
    ("links of ranks in a guest", b"0 link 0100007F"),
    ("links of ranks in a guest", b"0 link -1:0 0:0"),
    ("links of ranks in a guest", b"0\nmaps a b c d e f"),
    ("failure of a program", b'{"event":"error"' + b"[" * 100_000),
    ("failure of a program", b'{"event":"error","program":"\\ud800","process":"","what":""}'),
    ("failure of a program", b'{"event":"error"' * (1 << 18)),
    ("failure of a program", b"noticed that process rank 1 " * (1 << 16)),
    ("failure of a program", b"noticed that process rank " + b"9" * 5000 + b" with a exited on signal 1"),
    ("console of a guest", b"a" * (1 << 18) + b"Kernel panic"),
)
"""Name of a reader, and a content that once ended it by another error than one with a place."""


def texts(directory: Path, pattern: str, longest: int = 6000) -> tuple[bytes, ...]:
    """Return the contents of files that are not too long to be changed in many places."""
    found = [path.read_bytes() for path in sorted(directory.glob(pattern))]
    return tuple(content for content in found if len(content) <= longest)


def _inventory(path: Path) -> object:
    return load_inventory(str(path), FakeHost())


ANSIBLE_YAML = b"""\
all:
  vars: {ansible_user: me}
  hosts: {"n[01:04]": {ansible_host: 10.0.0.1, ansible_port: 22}}
  children: {gpu: {hosts: {"db-[a:c]": {}}, children: {a100: {hosts: {n1: {}}}}}}
"""
ANSIBLE_INI = b"""\
lone ansible_host=10.0.0.9 ansible_port=2222
[web]
n[01:16] ansible_user=me
"n2" x='a b'
[web:vars]
ansible_port=22
[all:children]
web
"""
SCONTROL = (
    b"NodeName=n1 Arch=x86_64 CPUTot=4 NodeAddr=10.0.0.1 NodeHostName=n1 State=IDLE Partitions=a,b\n"
    b"NodeName=n2 CPUTot=4 NodeAddr=n2 State=DOWN*+DRAIN Partitions=a\n"
)
SINFO = b"n1 idle a\nn[2-4] drain* b\n"
IMAGES = b"images: {own: {suite: trixie, packages: [gcc], pip: [numpy==2.0.0], expired: accept}}\n"
IMAGE_RECORD = json.dumps(
    {
        "digest": "a" * 64,
        "origin": "debian",
        "created": "2026-01-01T00:00:00Z",
        "size": 1,
        "packages": ["gcc 12"],
    }
).encode()


def _unnamed(definition: bytes) -> bytes:
    return re.sub(rb"(?m)^name: .*\n", b"", definition)


def _stored_image(path: Path) -> object:
    """Find an image whose record has this content, and use it as commands do."""
    image = ImageStore(path.parents[2]).find("a", "k")
    if image is not None:
        facts = f"{image.digest[:12]} {image.size / 2**20:5.0f} {len(image.packages):4d} {image.created}"
        return image.name + facts
    return None


def _named_image(path: Path) -> object:
    return ImageStore(path.parents[1]).all()


def sif() -> bytes:
    """Return a small SIF: header, two descriptors, and a squashfs."""
    from tests.unit.test_images_build import write_sif

    with tempfile.TemporaryDirectory() as directory:
        write_sif(Path(directory) / "a.sif", b"hsqs" + b"\0" * 60)
        return (Path(directory) / "a.sif").read_bytes()


HEAD = struct.Struct("=III")


def frame(kind: FrameKind, payload: bytes = b"") -> bytes:
    return HEAD.pack(0, kind, len(payload)) + payload


HELLO = frame(FrameKind.HELLO, b"\0" * 8 + json.dumps({"kernel": "6.1", "init": 1, "agent": 2}).encode())
PONGS = frame(FrameKind.PONG, struct.pack("=QQ", 1, 1)) * 5
ENDED = (
    frame(FrameKind.OUT, b"text") + frame(FrameKind.WINDOW, b"\1\0\0\0") + frame(FrameKind.ENDED, b"\0" * 4)
)


def from_guest(ask: Callable[[GuestLine], object]) -> Callable[[Path], object]:
    """Return a reader of what a guest sends before it ends."""

    def read(path: Path) -> object:
        place = path.with_suffix(".socket")
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place))
            listening.listen()

            def serve() -> None:
                connection, _ = listening.accept()
                with connection, suppress(OSError), path.open("rb") as file:
                    connection.sendfile(file)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                with GuestLine(place) as line:
                    return ask(line)
            finally:
                thread.join()

    return read


@cache
def results() -> dict[str, bytes]:
    """Return the files of a results directory of two workers, by name."""
    with tempfile.TemporaryDirectory() as parent:
        study = load_text(STUDY, "study.yaml", None, seed=7)
        made = ResultsDirectory.create(Path(parent), "study", study_yaml=STUDY)
        facts = {
            "boot": "b",
            "cpu": {"model": "c"},
            "kernel": {"release": "6.1"},
            "roofs": [roof_record(ROOF)],
        }
        work = {"ep": {1: 100}}
        made.freeze(
            seed=7, arms=[a.name for a in study.arms()], provenance=facts, slices={"ep": 8}, work=work
        )
        made.write_roofs([ROOF])
        made.want_roofs([RoofRequest(name="dgemm", ranks=1, transport="")])
        plan = make_plan(study, blocks=2)
        records = simulate(study, plan, metrics=[METRIC], overheads={"box/one": 0.2}, spread=Spread())
        with made.writer() as writer:
            for record in records:
                writer.append(replace(record, counters={NODE: {"user": 0.5}}, phases={"start": 0.1}))
        made.node_files.write("w", facts, node="n")
        claims = Claims(made.path / CLAIMS, "w", host="n")
        claims.take(1, 1)
        claims.close()
        block = NextBlock(
            block=plan.blocks[0], attempt=1, slices={"ep": 8}, work={"ep": {1: 100}}, verified={}
        )
        Orders(made.path).give(block)
        made.close()
        return {str(f.relative_to(made.path)): f.read_bytes() for f in made.path.rglob("*") if f.is_file()}


ROOF = MeasuredRoof(
    name="dgemm", ranks=1, transport="", value=1e9, unit="flop/s", better=Better.HIGHER, measured=1.0, how="x"
)


def of_results(
    name: str, file: str, read: Callable[[ResultsDirectory], object], *, by_lines: bool = False
) -> Reader:
    """Return a reader of one file of a results directory, whose other files are valid."""

    def prepare(directory: Path) -> None:
        for other, content in results().items():
            (directory / other).parent.mkdir(parents=True, exist_ok=True)
            (directory / other).write_bytes(content)

    depth = len(Path(file).parts) - 1
    return Reader(
        name=name,
        read=lambda path: read(ResultsDirectory(path=path.parents[depth])),
        seeds=(results()[file],),
        file=file,
        by_lines=by_lines,
        prepare=prepare,
    )


def analysis(directory: ResultsDirectory) -> object:
    """Read the records as every reading command does, up to the text that it prints."""
    found = analysed(directory)
    summary_text(
        found.study,
        found.analysis,
        machine=cpu_summary(directory.provenance),
        when=found.day,
        results_dir=str(directory.path),
        report=None,
        width=80,
        absent=absent_environments(directory.provenance),
    )
    json.dumps(json_form(found.study, found.analysis, results_dir="d", inside=found.inside), allow_nan=False)
    return export(directory, found.analysis.cells, ExportFormat.JSON)


@cache
def series() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        return (make_hostile_series(Path(directory)).path / "series.json").read_bytes()


def read_series(path: Path) -> object:
    found = SeriesDirectory(path=path.parent)
    return found.created, found.series(lambda text, name: load_text(text, name, None))


HEADER = {"schema": 1, "tick": 100, "page": 4096, "trial": "t", "windows": {"ep": [[0.0, 1.0]]}}
SAMPLE = {"time": 1.0, "monotonic": 1.0, "scopes": {"node": {"loadavg": "1 0 0\n", "stat": "cpu 1 2 3\n"}}}
SAMPLES = f"{json.dumps(HEADER)}\n{json.dumps(SAMPLE)}\n".encode()


def samples(path: Path) -> None:
    for _ in read_sections(UntrustedDirectory(path.parent), path.name):
        pass


def packed_samples(path: Path) -> None:
    """Read samples whose contents, but not whose compression, are damaged."""
    place = path.parent / "packed"
    with path.open("rb") as file, place.open("wb") as packed:
        ZstdCompressor().copy_stream(file, packed)
    samples(place)


# As CRIU writes them; see tests/unit/test_criu.py.
ENTRIES = (b"\x08\x01", b"\x08\x05\x20\x04\x28\x07", b"\x08\x09\x20\x02\x28\x03")
PAGEMAP = bytes(8) + b"".join(struct.pack("<I", len(e)) + e for e in ENTRIES)
DUMP = b"\x08\xe8\x07\x10\xd0\x0f\x38\x03"
STATISTICS = struct.pack("<III", 0x55105940, 0x57093306, len(DUMP) + 2) + b"\x0a" + bytes([len(DUMP)]) + DUMP
STEPS = b'{"steps": 3, "passes": 1, "wrong": 0, "strange": 0, "first": 5}\n10 20\n'


def steps(path: Path) -> object:
    """Read the steps of a rank as a job does, which adds the place."""
    try:
        return read_steps(printed(path))
    except ValueError as e:
        raise RunError(str(e), where=str(path)) from e


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        *LOCAL_READERS,
        Reader(
            name="study",
            read=lambda path: load_study(path, catalog(), seed=1),
            file="study.yaml",
            seeds=texts(SOURCE / "studies", "*.yaml"),
        ),
        Reader(
            name="inventory",
            read=_inventory,
            file="hosts.yaml",
            seeds=((ROOT / "examples" / "hosts.yaml").read_bytes(), ANSIBLE_YAML),
        ),
        Reader(name="inventory of Ansible", read=_inventory, seeds=(ANSIBLE_INI,)),
        Reader(
            name="nodes of scontrol",
            read=lambda path: parse_scontrol(printed(path), "slurm"),
            seeds=(SCONTROL,),
        ),
        Reader(
            name="nodes of sinfo",
            read=lambda path: parse_sinfo(printed(path), "slurm"),
            seeds=(SINFO,),
        ),
        Reader(
            name="paper", read=load_paper, file="a.toml", seeds=texts(SOURCE / "published", "*.toml", 1 << 20)
        ),
        Reader(
            name="definition of an image",
            read=lambda path: load_definition(path, "own"),
            file="own.yaml",
            seeds=(*map(_unnamed, texts(SOURCE / "images", "*.yaml")), IMAGES),
        ),
        Reader(
            name="record of an image", read=_stored_image, file="trees/k/image.json", seeds=(IMAGE_RECORD,)
        ),
        Reader(name="name of an image", read=_named_image, file="names/a.json", seeds=(b'{"key": "k"}',)),
        Reader(name="SIF", read=sif_offset, seeds=(sif(),)),
        Reader(
            name="readiness of a guest",
            read=from_guest(lambda line: line.hello(30)),
            seeds=(HELLO, frame(FrameKind.WINDOW, b"abcd") + HELLO),
        ),
        Reader(name="clocks of a guest", read=from_guest(lambda line: line.clocks()), seeds=(PONGS,)),
        Reader(
            name="command in a guest",
            read=from_guest(lambda line: line.run(["true"], b"x", timeout=30)),
            seeds=(ENDED,),
        ),
        Reader(
            name="description of a checkpoint",
            read=lambda path: read_saved(path.parent),
            file=MANIFEST,
            seeds=(DESCRIPTION,),
        ),
        Reader(
            name="memory map of CRIU",
            read=lambda path: check_images(path.parent),
            file="pagemap-1.img",
            seeds=(PAGEMAP,),
            prepare=lambda directory: (directory / "pages-1.img").write_bytes(bytes(7 * 4096)),
        ),
        Reader(
            name="statistics of CRIU",
            read=lambda path: statistics_of(path.parent),
            file="stats-dump",
            seeds=(STATISTICS,),
        ),
        Reader(
            name="first instruction of an instance",
            read=lambda path: read_reply(printed(path), FirstInstruction, str(path)),
            seeds=(b'{"first": 123}\n',),
        ),
        Reader(name="steps of a rank", read=steps, seeds=(STEPS,)),
        of_results("plan", "plan.json", lambda d: d.plan()),
        of_results("study of results", "study.yaml", lambda d: frozen_study(d)),
        of_results("provenance", "provenance.json", lambda d: (d.provenance, d.roofs(), node_states(d))),
        of_results("records", "trials/local.jsonl", lambda d: deque(d.trials(), 0), by_lines=True),
        of_results("analysis of records", "trials/local.jsonl", analysis, by_lines=True),
        of_results("analysis of a plan", "plan.json", analysis),
        of_results("analysis of a provenance", "provenance.json", analysis),
        of_results("node", "nodes/w.json", lambda d: (node_states(d), d.roofs(), d.nodes())),
        of_results("upper bounds", "roofs.json", lambda d: d.roofs()),
        of_results("wanted upper bounds", "wanted-roofs.json", lambda d: d.wanted_roofs()),
        of_results("checksums", "SHA256SUMS", lambda d: d.verify(), by_lines=True),
        of_results("claim", "claims/1.1.json", lambda d: read_claim(d.path / CLAIMS, 1, 1, lambda: 0.0)),
        of_results("order", "orders/1.json", lambda d: list(Orders(d.path).read())),
        Reader(name="samples", read=samples, seeds=(ZstdCompressor().compress(SAMPLES),)),
        Reader(name="samples in frames", read=packed_samples, seeds=(SAMPLES,), by_lines=True),
        Reader(
            name="series",
            read=read_series,
            file="series/series.json",
            seeds=(series(),),
            prepare=make_hostile_series,
        ),
        Reader(
            name="ends of a series",
            read=lambda path: SeriesDirectory(path=path.parent).ends(),
            file="ends.jsonl",
            seeds=(b'{"part": "a", "why": "b", "at": 1.5}\n' * 2,),
        ),
    )
}
