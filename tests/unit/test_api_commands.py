"""What the commands image, clean and kernel call: values in, values out, errors with words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nearmetal.api import cleaning
from nearmetal.api.images import FORMS, build_image, convert_image, get_image, list_images, plan_build
from nearmetal.api.kernels import run_kernel
from nearmetal.environments import leftovers
from nearmetal.errors import NearmetalError, RunError
from nearmetal.host import Host
from nearmetal.host.leftovers import Leftover, LeftoverKind


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_images_that_can_be_built_are_listed_and_planned(tmp_path: Path) -> None:
    found = list_images()
    assert found["debian-mpi"] is None
    plan = plan_build("debian-mpi")
    assert (plan.name, plan.variant) == ("debian-mpi", "minbase") and "openmpi-bin" in plan.packages
    assert all(line.startswith("deb ") for line in plan.archives)
    own = tmp_path / "own.yaml"
    own.write_text("suite: trixie\npackages: [gcc]\n")
    assert plan_build("own", own).packages == ("gcc",)
    assert list_images() == found, "a plan builds nothing"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (
            lambda: build_image("nosuch"),
            "no image called nosuch comes with nearmetal; next: one of criu, debian-",
        ),
        (lambda: build_image("no/such"), "no/such"),
        (lambda: get_image("debian-mpi"), "no image debian-mpi"),
        (lambda: convert_image("debian-mpi", "zip"), f"unknown form zip; next: one of {', '.join(FORMS)}"),
        (lambda: convert_image("debian-mpi", "tar"), "nearmetal image build debian-mpi"),
        (lambda: run_kernel("nosuch", {}), "no kernel nosuch; next: one of"),
        (lambda: run_kernel("ep", {"klass": "S"}), "ep has no key klass; did you mean"),
        (lambda: run_kernel("stream", {"elements": "many"}), "stream: elements"),
    ],
)
def test_mistakes_are_errors_with_words(call: Callable[[], object], what: str) -> None:
    with pytest.raises(NearmetalError) as found:
        call()
    assert what in f"{found.value.what}; next: {found.value.remedy}"


def test_what_cannot_be_removed_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, loose = (
        Leftover(kind=LeftoverKind.CONTAINER, name=f"nearmetal-{name}", detail="box")
        for name in ("0a1b2c", "0a1b2d")
    )
    there = [stuck, loose]

    def remove(_host: Host, leftover: Leftover) -> None:
        if leftover is stuck:
            raise RunError("stuck does not go", remedy="wait")
        there.remove(leftover)

    def find(_host: Host, *_: object, **__: object) -> tuple[Leftover, ...]:
        return tuple(there)

    for module in (cleaning, leftovers):
        monkeypatch.setattr(module, "find_all", find)
    monkeypatch.setattr(leftovers, "remove_any", remove)
    monkeypatch.setattr(cleaning, "not_searched", lambda _: ())
    assert cleaning.find_leftovers() == cleaning.Cleaned(found=(stuck, loose), left=(stuck, loose))
    done = cleaning.clean()
    assert (done.found, done.left) == ((stuck, loose), (stuck,))
    assert len(done.failures) == 1 and "stuck does not go" in done.failures[0]
