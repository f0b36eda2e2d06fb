"""Image host for guests where virtiofsd is missing: an image of the machine's own suite."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nearmetal.environments.guests.needs import VIRTIOFSD, find_virtiofsd
from nearmetal.errors import UnavailableError
from nearmetal.images import Image
from nearmetal.images.forms import Form
from nearmetal.node import host_suite
from nearmetal.node.host_suite import OWN_SUITE, root_of_own_suite
from nearmetal.testing.fake_host import FakeHost

LACKS_IT = FakeHost(missing=("virtiofsd", *VIRTIOFSD))


class Told:
    """Keeps what a user would see."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def phase(self, text: str) -> None:
        self.notes.append(text)


def image(tmp_path: Path) -> Image:
    (tmp_path / "tree/usr/bin").mkdir(parents=True)
    (tmp_path / "tree/usr/bin/mpirun").touch()
    (tmp_path / "image.json").touch()
    return cast(Image, SimpleNamespace(name=OWN_SUITE, tree=tmp_path / "tree", directory=tmp_path))


def machine(host: FakeHost, mpirun: str = "/usr/bin/mpirun") -> Any:
    return SimpleNamespace(host=host, mpi=SimpleNamespace(mpirun=mpirun))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was built and made a form of; the store is one of ours."""
    own, calls = image(tmp_path), list[str]()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def build(host: object, store: object, definition: Any, *, progress: object) -> Image:
        calls.append(f"build {definition.name} {definition.suite}")
        return own

    def in_form(host: object, made: Image, form: Form, *, progress: object) -> Path:
        assert made is own
        calls.append(f"form {form.value}")
        return tmp_path / "root.erofs"

    monkeypatch.setattr(host_suite, "build", build)
    monkeypatch.setattr(host_suite, "in_form", in_form)
    return calls


def test_virtiofsd_is_looked_for_where_distributions_put_it() -> None:
    assert find_virtiofsd(LACKS_IT) is None
    there = VIRTIOFSD[1]
    found = FakeHost(missing=("virtiofsd", VIRTIOFSD[0]), programs={there: there})
    assert find_virtiofsd(found) == there


def test_guests_without_virtiofsd_get_an_image_of_the_same_suite(
    asked: Sequence[str], tmp_path: Path
) -> None:
    told = Told()
    with ExitStack() as stack:
        root = root_of_own_suite(machine(LACKS_IT), "vm", stack, cast(Any, told))
    assert root == tmp_path / "root.erofs" and asked == [f"build {OWN_SUITE} host", "form erofs"]
    assert told.notes[0].startswith(
        "environment vm: without virtiofsd, guests cannot use the machine's own root"
    )
    assert "apt-get install qemu-system-common" in told.notes[0]


def test_an_image_without_the_machines_mpi_is_refused(asked: Sequence[str]) -> None:
    with ExitStack() as stack, pytest.raises(UnavailableError, match="has no /opt/mpi/bin/mpirun") as caught:
        root_of_own_suite(machine(LACKS_IT, "/opt/mpi/bin/mpirun"), "vm", stack, cast(Any, Told()))
    assert f"image: {OWN_SUITE}" in caught.value.remedy


def test_suite_that_cannot_be_built_names_both_remedies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    host = FakeHost(
        root=True,
        files={"/etc/os-release": "ID=debian\nVERSION_CODENAME=bookworm\n"},
        missing=("mmdebstrap",),
    )
    with ExitStack() as stack, pytest.raises(UnavailableError, match="cannot be built: mmdebstrap") as caught:
        root_of_own_suite(machine(host), "vm", stack, cast(Any, Told()))
    assert "virtiofsd; or apt-get install" in caught.value.remedy
