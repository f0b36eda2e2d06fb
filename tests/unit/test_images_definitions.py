"""Definitions of images: those that come with nearmetal, a user's own, and what is said of mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nearmetal.errors import StudyError, UsageError
from nearmetal.images import ImageStore, builtin_definition, builtin_names, no_image
from nearmetal.images.store import TreeDescription, checked_name, definition_key
from nearmetal.model.environments.image import ImageDefinition, Variant
from nearmetal.study_file import Catalog, load_text
from nearmetal.study_file.environments.images import load_definition, read_definition
from nearmetal.testing.fake_host import FakeHost

OWN = """\
suite: trixie
packages: [gcc, openmpi-bin]
variant: essential
mirror: file:/srv/debian
sources: ['deb [trusted=yes] file:/srv/own ./']
"""
STUDY = """\
name: imaged
environments:
  native: {backend: native, image: %s}
  box: {backend: namespaces, image: %s}
images:
  own: {suite: trixie, packages: [gcc]}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
design: {baseline: native, seed: 1}
"""
OS_RELEASE = 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian"\n'


def host() -> FakeHost:
    return FakeHost(files={"/etc/os-release": OS_RELEASE})


def catalog(store: ImageStore) -> Catalog:
    return Catalog(
        backends=("native", "namespaces"),
        kernels={"ep": {"class": ("S | W", "problem size")}},
        no_image=lambda name, own, file: no_image(host(), store, name, own, file),
    )


def test_those_that_come_with_it_hold_what_kernels_need() -> None:
    assert {"debian-mpi", "trixie-mpi"} <= set(builtin_names())
    for name in builtin_names():
        found = builtin_definition(name)
        assert found is not None and found.name == name
        # Some are a kernel for guests or a tool for the machine, and nobody runs in them.
        wanted = {"gcc", "make", "cmake", "libopenmpi-dev", "openmpi-bin"}
        if "-kernel" in name:
            wanted = {"linux-image-amd64" if name.endswith("-generic") else "linux-image-cloud-amd64"}
        if name == "criu":
            wanted = {"criu"}
        if name == "debian-ocean":
            wanted = {"python3", "linux-image-cloud-amd64"}
            assert found.pip == ("veros==1.7.0",)
        assert wanted <= set(found.packages)
    assert builtin_definition("no-such") is None


def test_definition_file_and_study_section_are_equivalent() -> None:
    wanted = ImageDefinition(
        name="own",
        suite="trixie",
        packages=("gcc", "openmpi-bin"),
        variant=Variant.ESSENTIAL,
        mirror="file:/srv/debian",
        sources=("deb [trusted=yes] file:/srv/own ./",),
    )
    assert read_definition(OWN, "own.yaml", "own") == wanted
    indented = "".join(f"    {line}\n" for line in OWN.splitlines())
    assert read_definition(f"images:\n  own:\n{indented}", "s.yaml", "own") == wanted


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("suite: trixie\npakages: [gcc]\n", "own.yaml:2:1", 'unknown key; did you mean "packages"?'),
        ("packages: [gcc]\n", "own.yaml:1:1", "missing; write suite: host"),
        ("suite: Trixie!\n", "own.yaml:1:8", "is not the name of a suite"),
        ("suite: host\npackages: [gcc, '--eval=x']\n", "own.yaml:2:17", "is not the name of a package"),
        ("suite: host\npackages: ['gcc,make']\n", "own.yaml:2:12", "is not the name of a package"),
        ("suite: host\nvariant: tiny\n", "own.yaml:2:10", 'unknown value "tiny"'),
        ("suite: host\nmirror: nonsense\n", "own.yaml:2:9", "is not the URI of a package archive"),
        ("suite: host\nsources: [deb-src x]\n", "own.yaml:2:11", "is not a line of sources.list"),
        ("name: other\nsuite: host\n", "own.yaml:1:7", 'the image here is called "other", not "own"'),
        ("images:\n  mine: {suite: host}\n", "own.yaml:1:1", 'no image is called "own"'),
        ("images:\n  own: {suite: host, name: x}\n", "own.yaml:2:3", 'the image is called "x" below'),
        ("[]\n", "own.yaml:1:1", "keys with values"),
    ],
)
def test_mistake_is_reported_at_its_place(text: str, place: str, what: str) -> None:
    with pytest.raises(StudyError) as caught:
        read_definition(text, "own.yaml", "own")
    assert place in str(caught.value) and what in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the definition"):
        load_definition(tmp_path / "no.yaml", "own")
    (tmp_path / "bad.yaml").write_bytes(b"suite: \xff\n")
    with pytest.raises(StudyError, match=r"bad\.yaml:1:8  not UTF-8"):
        load_definition(tmp_path / "bad.yaml", "own")


@pytest.mark.parametrize(
    ("image", "what"),
    [
        ("own", 'image "own" is not built; next: nearmetal image build own --file s.yaml'),
        ("debian-mpi", 'image "debian-mpi" is not built; next: nearmetal image build debian-mpi'),
        ("debian-mpl", 'unknown image "debian-mpl"; did you mean "debian-mpi"?'),
        ("../../etc", '"../../etc" is not a name'),
    ],
)
def test_a_study_in_an_image_that_does_not_stand(tmp_path: Path, image: str, what: str) -> None:
    with pytest.raises(StudyError) as caught:
        load_text(STUDY % ("host", image), "s.yaml", catalog(ImageStore(tmp_path)))
    assert [p.line for p in caught.value.problems] == [4]
    assert caught.value.problems[0].column == 37 and what in caught.value.problems[0].what


def test_study_may_use_an_image_that_is_built(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    own = ImageDefinition(name="own", suite="trixie", packages=("gcc",))
    key = definition_key(own, "trixie")
    with store.making("own", key) as work:
        (work / "tree").mkdir()
        made = TreeDescription(digest="d", origin="trixie", created="", size=0, packages=())
        store.adopt("own", key, work, made)
    study = load_text(STUDY % ("own", "own"), "s.yaml", catalog(store))
    assert {e.image for e in study.environments} == {"own"} and study.images == (own,)
    # Another definition under the same name is another tree.
    with pytest.raises(StudyError, match="is not built"):
        changed = STUDY.replace("[gcc]", "[gcc, make]")
        load_text(changed % ("own", "own"), "s.yaml", catalog(store))


def test_the_machines_own_root_cannot_be_defined() -> None:
    text = STUDY.replace("  own: {", "  host: {") % ("host", "host")
    with pytest.raises(StudyError, match=r"s\.yaml:6:3  images\.host: host is the machine's own root"):
        load_text(text, "s.yaml", None)


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a b", "host", "x\n"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(UsageError):
        checked_name(name)


def test_the_key_is_that_of_the_content() -> None:
    one = ImageDefinition(name="a", suite="host", packages=("gcc", "make"))
    same = replace(one, name="b", packages=("make", "gcc", "gcc"))
    assert definition_key(one, "bookworm") == definition_key(same, "bookworm")
    others = [
        definition_key(one, "trixie"),
        definition_key(replace(one, packages=("gcc",)), "bookworm"),
        definition_key(replace(one, variant=Variant.BUILDD), "bookworm"),
        definition_key(replace(one, mirror="file:/srv"), "bookworm"),
        definition_key(replace(one, sources=("deb file:/srv ./",)), "bookworm"),
    ]
    assert len({definition_key(one, "bookworm"), *others}) == 6
