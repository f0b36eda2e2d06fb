"""The table of methods and backends in the documentation is the one that the backends declare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nearmetal.environments import Checkpoints, Immovable, Migrates
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.lifecycle import Method
from nearmetal.model.study import MoveSubject
from nearmetal.model.workloads.moves import Extent
from nearmetal.subjects.migrate import MIGRATE, Migrate

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "checkpoints.md"
HEAD = "| method | backends |\n|---|---|\n"
JOB_HEAD = "| of a job | with backends |\n|---|---|\n"
STAY_HEAD = "| backend | why neither | instead |\n|---|---|---|\n"


def declared() -> str:
    """The rows of the table: a method, and the backends that declare it."""
    takers: dict[Method, list[str]] = {}
    for name in backend_names():
        backend = get_backend(name)
        methods = backend.checkpoints_by if isinstance(backend, Checkpoints) else ()
        methods += backend.moves_by if isinstance(backend, Migrates) else ()
        of_jobs = MoveSubject(name="w", facts=MIGRATE, of=Extent.JOB, method=Method.DMTCP)
        methods += (Method.DMTCP,) if Migrate.unable(of_jobs, backend) is None else ()
        chosen = MoveSubject(name="w", facts=MIGRATE, method=Method.AUTO)
        methods += (Method.AUTO,) if Migrate.unable(chosen, backend) is None else ()
        for method in methods:
            takers.setdefault(method, []).append(f"`{name}`")
    return "".join(f"| `{m}` | {', '.join(takers[m])} |\n" for m in Method if m in takers)


def jobs() -> str:
    """The rows of the table of jobs: what of a job, and the backends whose instances it can be in."""
    backends = {name: get_backend(name) for name in backend_names()}
    able = {
        extent: [
            f"`{name}`"
            for name, b in backends.items()
            if Migrate.unable(MoveSubject(name="w", facts=MIGRATE, of=extent), b) is None
        ]
        for extent in (Extent.RANK, Extent.JOB)
    }
    return "".join(f"| `of: {extent}` | {', '.join(names)} |\n" for extent, names in able.items())


def reasons() -> str:
    """The rows of the other table: backends that offer neither, and why."""
    backends = {name: get_backend(name) for name in backend_names()}
    return "".join(
        f"| `{name}` | {b.immovable.reason} | {b.immovable.remedy} |\n"
        for name, b in backends.items()
        if isinstance(b, Immovable)
    )


@pytest.mark.parametrize(("head", "rows"), [(HEAD, declared), (JOB_HEAD, jobs), (STAY_HEAD, reasons)])
def test_the_tables_of_the_page_are_what_backends_declare(
    request: pytest.FixtureRequest, head: str, rows: Callable[[], str]
) -> None:
    before, _, rest = PAGE.read_text().partition(head)
    found = rest[: rest.index("\n\n") + 1] if rest.startswith("|") else ""
    if request.config.getoption("--update-golden"):
        PAGE.write_text(before + head + rows() + rest[len(found) :])
        found = rows()
    assert found == rows(), "pytest tests/unit/test_lifecycle_table.py --update-golden"
    known = (
        "`dmtcp` | `crun`, `lxc`, `namespaces`, `native`, `podman`, `runc`",
        "`of: rank` | `crun`, `libvirt`, `lxc`, `namespaces`, `native`",
        "`nspawn`",
    )
    assert any(row in found for row in known)
