"""The table of readers of files that travel, and contents that were found to break one of them."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.attack.fuzzing import Reader

import nearmetal
from nearmetal.api.catalog import catalog
from nearmetal.host.guest_line import FrameKind, GuestLine
from nearmetal.images.importing import sif_offset
from nearmetal.images.store import ImageStore
from nearmetal.inventory import load_inventory
from nearmetal.inventory.slurm import parse_scontrol, parse_sinfo
from nearmetal.published.reading import load as load_paper
from nearmetal.study_file.environments.images import load_definition
from nearmetal.study_file.load import load_study
from nearmetal.testing.fake_host import FakeHost

ROOT = Path(__file__).parents[2]
SOURCE = Path(nearmetal.__file__).parent
FOUND: tuple[tuple[str, bytes], ...] = ()
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
        return f"{image.name} {image.digest[:12]} {image.size / 2**20:5.0f} {len(image.packages):4d} {image.created}"
    return None


def _named_image(path: Path) -> object:
    return ImageStore(path.parents[1]).all()


def sif() -> bytes:
    """Return a small SIF: header, two descriptors, and a squashfs."""
    import tempfile

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
                with connection, suppress(OSError):
                    connection.sendall(path.read_bytes())
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


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
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
            read=lambda path: parse_scontrol(path.read_text(errors="replace"), "slurm"),
            seeds=(SCONTROL,),
        ),
        Reader(
            name="nodes of sinfo",
            read=lambda path: parse_sinfo(path.read_text(errors="replace"), "slurm"),
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
    )
}
