"""What xl and xentop print (Xen 4.17), and anything else that might stand there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.environments.xen import output
from nearmetal.environments.xen.settings import XenScheduler
from nearmetal.environments.xen.xl import cpu_set
from nearmetal.errors import RunError

LIST = """\
Name                                        ID   Mem VCPUs	State	Time(s)
Domain-0                                     0   768     1     r-----     111.7
nearmetal-3f9a1c-0-1                         7   128     2     -b----       9.1
(null)                                       8     0     1     --ps-d       4.0
"""
VCPUS = """\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    0   r--      84.6  all / all
nearmetal-3f9a1c-0-1                 7     0    2   -b-       9.1  0,2-3 / all
nearmetal-3f9a1c-0-1                 7     1    -   --p       0.0  3 / 0-1
"""
SHARES = """\
Cpupool Pool-0: ratelimit=1000us
Name                                ID Weight  Cap
Domain-0                             0    256    0
nearmetal-3f9a1c-0-1                 7    300   50
"""
INFO = """\
host                   : node7
nr_cpus                : 4
virt_caps              : pv hvm hap gnttab-v1
total_memory           : 2047
free_memory            : 1256
xen_major              : 4
xen_minor              : 17
xen_extra              : .7
xen_caps               : xen-3.0-x86_64 hvm-3.0-x86_32 hvm-3.0-x86_64
xen_scheduler          : credit2
xen_commandline        : dom0_mem=768M xen_minor : 3
"""
HEADER = (
    "      NAME  STATE   CPU(sec) CPU(%)     MEM(k) MEM(%)  MAXMEM(k) MAXMEM(%) VCPUS NETS NETTX(k) NETRX(k) "
    "VBDS   VBD_OO   VBD_RD   VBD_WR  VBD_RSECT  VBD_WSECT SSID\n"
)
TOP = (
    HEADER
    + "  Domain-0 -----r         84    0.0     786432   37.5   no limit       n/a     1    0        0       "
    " 0    0        0        0        0          0          0    0\n"
    "nearmetal-3f9a1c-0-1 --b---          9    0.0     131072    6.3     132096       6.3     1    2"
    "        3        5    1        1       26       12       2848         96    0\n"
)


def test_domains_are_read() -> None:
    first, ours, dying = output.domains(LIST)
    assert (first.name, first.id, first.state) == ("Domain-0", 0, "r")
    assert (ours.id, ours.state) == (7, "b")
    assert dying.state == "psd"


def test_virtual_cpus_are_read_with_their_affinities() -> None:
    _, one, two = output.virtual_cpus(VCPUS)
    assert (one.domain, one.number, one.cpu, one.hard) == ("nearmetal-3f9a1c-0-1", 0, 2, "0,2-3")
    assert (two.cpu, two.hard) == (None, "3")


def test_scheduler_shares_are_parsed() -> None:
    assert output.shares(SHARES)[1] == output.SchedulerShare(
        domain="nearmetal-3f9a1c-0-1", weight=300, cap=50
    )


def test_the_hypervisor_says_what_it_is() -> None:
    assert output.version(INFO) == "4.17.7"
    assert output.scheduler(INFO) is XenScheduler.CREDIT2
    assert output.cpus(INFO) == 4
    assert output.free_memory(INFO) == 1256 << 20
    assert {"hap", "xen-3.0-x86_64"} <= output.capabilities(INFO)
    assert output.scheduler("xen_scheduler : null\n") is None
    assert output.version("") == "" and output.free_memory("") is None


def test_counters_are_in_base_units_and_of_the_last_table() -> None:
    found = output.counters(TOP.replace("26", "99") + TOP)
    assert found["nearmetal-3f9a1c-0-1"] == {
        "cpu_seconds": 9.0,
        "memory_bytes": 131072.0 * 1024,
        "network_sent_bytes": 3.0 * 1024,
        "network_received_bytes": 5.0 * 1024,
        "disk_waits": 1.0,
        "disk_reads": 26.0,
        "disk_writes": 12.0,
        "disk_read_bytes": 2848.0 * 512,
        "disk_written_bytes": 96.0 * 512,
    }
    assert "Domain-0" in found


def test_a_column_without_a_number_is_missing_not_zero() -> None:
    line = "g ------ 9 0.0 n/a 6.3 1 6.3 1 2 3 5 1 1 26 12 2848 96 0\n"
    assert "memory_bytes" not in output.counters(HEADER + line)["g"]


@pytest.mark.parametrize(
    ("text", "wanted"), [("all", None), ("0", {0}), ("0-2", {0, 1, 2}), ("1,3-4", {1, 3, 4})]
)
def test_affinities_are_sets(text: str, wanted: set[int] | None) -> None:
    assert cpu_set(text) == wanted


@pytest.mark.parametrize("text", ["", "none", "0-", "-1", "a", "1,,2", "²"])
def test_unreadable_affinity_is_reported(text: str) -> None:
    with pytest.raises(RunError, match="cannot be read"):
        cpu_set(text)


PIECES = st.sampled_from([LIST, VCPUS, SHARES, INFO, TOP, HEADER, "\n", " ", "-", "no limit", "0", "\x00"])


@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=8).map("".join)), st.integers(0, 400))
def test_no_text_is_too_strange(text: str, cut: int) -> None:
    for part in (text, text[cut:], text[:cut]):
        output.domains(part)
        output.virtual_cpus(part)
        output.shares(part)
        output.scheduler(part)
        output.version(part)
        output.cpus(part)
        output.free_memory(part)
        output.capabilities(part)
        for values in output.counters(part).values():
            assert all(v >= 0 for v in values.values())
