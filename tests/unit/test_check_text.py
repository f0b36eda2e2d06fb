"""`nearmetal check` in few aligned lines, and everything behind --all."""

from __future__ import annotations

from nearmetal.api.checking import ENVIRONMENT, NOT_HERE, PARTLY, WORKS, Check
from nearmetal.cli.check_text import DETAILS, all_lines, short_lines

CHECKS = (
    Check(state=WORKS, what="kernels", why="gcc 12.2.0, Open MPI 4.1.4 (Language: C)"),
    Check(
        state=NOT_HERE,
        what="docker",
        why="no Docker daemon answers: docker ended with 1: Cannot connect",
        remedy="systemctl start docker",
        group=ENVIRONMENT,
    ),
    Check(
        state=PARTLY,
        what="qemu QEMU 7.2.22",
        why="TCG, no KVM: KVM's internal error; every figure of it is of an emulator",
        group=ENVIRONMENT,
    ),
    Check(state=WORKS, what="criu", why="4.2, /usr/sbin/criu", group="checkpoints"),
    Check(state=NOT_HERE, what="checkpoint criu-precopy", why="x", group="checkpoints"),
    Check(state=WORKS, what="attachment macvlan (bridge)", group="attachments"),
    Check(state=WORKS, what="attachment macvlan (vepa)", group="attachments"),
    Check(state=NOT_HERE, what="attachment ipvlan (l2)", why="x", remedy="y", group="attachments"),
    Check(state=WORKS, what="storage tmpfs", group="storage"),
    Check(state=NOT_HERE, what="energy", why="no RAPL domain", group="counters"),
)


def test_one_line_for_each_environment_and_each_group() -> None:
    assert short_lines(CHECKS, 100) == [
        " works        kernels      gcc 12.2.0, Open MPI 4.1.4 (Language: C)",
        " not here     docker       no Docker daemon answers; next: systemctl start docker",
        " works partly qemu         QEMU 7.2.22; TCG, no KVM; every figure of it is of an emulator",
        " works partly checkpoints  all but criu-precopy",
        " works partly attachments  all but ipvlan",
        " works        storage      tmpfs",
        " not here     counters     energy",
        DETAILS,
    ]


def test_a_line_is_cut_at_the_width() -> None:
    assert all(len(line) <= 60 for line in short_lines(CHECKS, 60)[:-1])
    assert short_lines(CHECKS, 60)[1].endswith("answers; next:…")
    assert short_lines(CHECKS, 300) == short_lines(CHECKS, 100)


def test_the_whole_form_leaves_nothing_out() -> None:
    text = "\n".join(all_lines(CHECKS))
    for check in CHECKS:
        assert check.what in text and check.why in text and check.remedy in text
