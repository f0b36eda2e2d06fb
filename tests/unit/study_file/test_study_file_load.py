"""Study files that are right, and each mistake with its line, column and words."""

# ruff: noqa: E501 (tables of cases, one to a line: what is told is long)

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nearmetal.errors import ExitCode, StudyError, UsageError
from nearmetal.model.study import (
    Attachment,
    Better,
    CommandWorkload,
    Design,
    EventSubject,
    KernelWorkload,
    Mode,
    Pages,
    Transport,
)
from nearmetal.study_file import Catalog, load_study, load_text
from nearmetal.study_file.catalog import KnownApplication
from nearmetal.subjects.start_stop import START

GOOD = """\
name: containers
question: What does it cost?
environments:
  native:
    backend: native
  lxc:
    backend: namespaces
    attachment: veth-bridge
    limits: {cpu: 150 %, memory: 2 GiB}
placements:
  1x2: {instances: 1, tasks: 2}
  2x1: {instances: 2, tasks: 1, cpus: [1, 0]}
workloads:
  triad:
    kernel: stream
    elements: 2 M
    pages: 4k
    metrics: [triad]
  lammps:
    command: [lmp, -in, 0010]
    mpi: true
    env: {OMP_NUM_THREADS: 1}
    time_limit: 10 min
    metrics:
      loop: {regex: 'Loop time of ([\\d.]+)', unit: s, better: lower}
      rate: {json_path: a.0.b, unit: B/s, better: higher}
  boot:
    subject: start
design:
  baseline: native
  margin: 3 %
  max_time: 1h30m
  seed: 0x7f3a
  primary: [triad.triad, lammps.loop]
"""


def problems(text: str, catalog: Catalog | None, *, seed: int | None = 1) -> list[str]:
    """What is told about a text, as a person sees it."""
    with pytest.raises(StudyError) as caught:
        load_text(text, "s.yaml", catalog, seed=seed)
    return [str(p) for p in caught.value.problems]


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_every_key_arrives_in_base_units(catalog: Catalog) -> None:
    study = load_text(GOOD, "s.yaml", catalog)
    native, lxc = study.environments
    assert (study.name, study.question) == ("containers", "What does it cost?")
    assert native.attachment is Attachment.HOST
    assert native.placements == ("1x2",), "two instances cannot reach each other over the host's network"
    assert lxc.placements == ("1x2", "2x1")
    assert (lxc.limits.cpu_quota, lxc.limits.memory) == (1.5, 2 * 2**30)
    assert study.placements[1].cpus == (1, 0)
    triad, lammps, boot = study.workloads
    assert triad == KernelWorkload(
        name="triad", kernel="stream", params={"elements": 2_000_000}, pages=Pages.SMALL, metrics=("triad",)
    )
    assert isinstance(lammps, CommandWorkload)
    assert lammps.argv == ("lmp", "-in", "0010"), "text stays as it was written"
    assert lammps.env == {"OMP_NUM_THREADS": "1"}
    assert (lammps.mpi, lammps.time_limit) == (True, 600.0)
    assert [(m.name, m.unit, m.better) for m in lammps.metrics] == [
        ("loop", "s", Better.LOWER),
        ("rate", "B/s", Better.HIGHER),
    ]
    assert boot == EventSubject(name="boot", facts=START)
    assert study.design == Design(
        baselines=("native",),
        margin=0.03,
        confidence=0.95,
        seed=0x7F3A,
        mode=Mode.SLICES,
        max_time=5400.0,
        primary=("triad.triad", "lammps.loop"),
    )


def test_program_that_uses_storage_needs_a_storage_key(catalog: Catalog) -> None:
    told = problems(changed("0010]", "'{storage}']"), catalog)
    assert [line.split(":")[3].split()[0] for line in told] == ['"lammps"', '"lammps"']
    assert all("write storage: {kind: overlay}" in line for line in told)
    for way in ("command: [sh, -c, 'cd $NEARMETAL_STORAGE']", 'script: "#!/bin/sh\\ncd $NEARMETAL_STORAGE"'):
        study = changed("command: [lmp, -in, 0010]", way)
        assert any("refers to storage (NEARMETAL_STORAGE)" in line for line in problems(study, catalog))


def test_a_companion_has_a_backend_that_there_is(catalog: Catalog) -> None:
    lodger = "beside: {command: [top], limits: {cpu: 10 %}, cpus: [0]}"
    said = problems(changed("attachment: veth-bridge", lodger), catalog)
    assert sum("runs in the environment's first instance; write backend" in what for what in said) == 2
    told = problems(changed("attachment: veth-bridge", "beside: {backend: lcx, command: [top]}"), catalog)
    assert "mode: plain" in told[0] and told[1].startswith(
        "s.yaml:8:23  environments.lxc.beside.backend: unknown"
    )


def test_the_seed_of_the_file_comes_first_then_the_one_handed_in(catalog: Catalog) -> None:
    without = changed("  seed: 0x7f3a\n", "")
    assert load_text(GOOD, "s.yaml", catalog, seed=5).design.seed == 0x7F3A
    assert load_text(without, "s.yaml", catalog, seed=5).design.seed == 5
    assert problems(without, catalog, seed=None) == [
        "s.yaml:30:3  design: no seed; write seed: 1, or let the command draw one"
    ]


def test_study_error_lists_all_mistakes_and_exits_with_2(catalog: Catalog) -> None:
    text = changed("    attachment: veth-bridge", "    atachment: veth-bridge").replace(
        "margin: 3 %", "margin: 3"
    )
    with pytest.raises(StudyError) as caught:
        load_text(text, "containers.yaml", catalog)
    assert caught.value.exit_code is ExitCode.USAGE
    assert str(caught.value) == (
        'containers.yaml:8:5  environments.lxc.atachment: unknown key; did you mean "attachment"?\n'
        'containers.yaml:31:11  design.margin: "3" has no unit; write "3 %"\n'
        "2 errors; nothing was started.  Keys and units: nearmetal init --explain"
    )


# (what stands in GOOD, what stands there instead, what must be told)
MISTAKES = [
    ("name: containers", "name: a/b", '1:7  name: "a/b" is not a name: letters, digits, - and _'),
    ("name: containers\n", "", "1:1  name: missing; write name: first"),
    ("question: What", "qestion: What", '2:1  qestion: unknown key; did you mean "question"?'),
    ("    backend: namespaces\n", "", "7:5  environments.lxc.backend: missing; write backend: native"),
    ("backend: namespaces", "backend: namespace", '7:14  environments.lxc.backend: unknown backend "namespace"; did you mean "namespaces"?'),
    ("backend: namespaces", "backend: qemu", "unknown backend \"qemu\"; known: handicap, namespaces, native"),
    ("backend: namespaces", "backend:", "7:5  environments.lxc.backend: a value is missing here"),
    ("backend: namespaces", "backend: [namespaces]", "7:14  environments.lxc.backend: expected one value, found a list or keys"),
    ("attachment: veth-bridge", "attachment: vth-bridg", 'did you mean "veth-bridge"?'),
    ("attachment: veth-bridge", "attachment: bridge", '8:17  environments.lxc.attachment: unknown value "bridge"'),
    ("attachment: veth-bridge", "attachment: veth\n    network: {mode: vepa}", "9:21  environments.lxc.network.mode: attachment veth has no modes; macvlan, macvtap and ipvlan have"),
    ("attachment: veth-bridge", "attachment: macvlan\n    network: {mode: vep}", '9:21  environments.lxc.network.mode: attachment macvlan has no mode "vep"; did you mean "vepa"?'),
    ("attachment: veth-bridge", "attachment: macvlan\n    network: {mut: 9000}", '9:15  environments.lxc.network.mut: unknown key; did you mean "mtu"?'),
    ("attachment: veth-bridge", "attachment: host\n    placements: [1x2]\n    network: {mtu: 9000}", "10:5  environments.lxc.network: attachment host has no network that is built for it; write attachment: veth-bridge"),
    ("attachment: veth-bridge", "attachment: phys", "8:17  environments.lxc.attachment: attachment phys needs devices; write network: {devices: [eth1]}"),
    ("attachment: veth-bridge", "attachment: phys\n    network: {devices: [eth1, eth1]}", '9:31  environments.lxc.network.devices[1]: "eth1" given twice'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {devices: [eth1]}", "9:24  environments.lxc.network.devices: attachment veth-bridge takes no device of the machine; phys and sriov do"),
    ("attachment: veth-bridge", "attachment: phys\n    network: {devices: [a-name-of-16-chr]}", '9:25  environments.lxc.network.devices[0]: "a-name-of-16-chr" is not the name of a network interface'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {rto_min: 2.5 ms}", '9:24  environments.lxc.network.rto_min: "2.5 ms": the kernel counts it in whole milliseconds'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {rto_min: 2}", '9:24  environments.lxc.network.rto_min: "2" has no unit; write "2 s"'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {rate: 1 Gbit}", '"1 Gbit": unknown unit; did you mean "1 Gbit/s"?'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {mtu: 66000}", "9:20  environments.lxc.network.mtu: 66000 is not between 68 and 65535"),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {offloads: {tso: no}}", '9:31  environments.lxc.network.offloads.tso: "no": write on or off'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {offloads: {tsso: off}}", 'unknown key; did you mean "tso"?'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {subnet: 10.0.0.1/24}", '9:23  environments.lxc.network.subnet: "10.0.0.1/24" is not an IPv4 network such as 192.168.7.0/24'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {subnet: 10.0.0.0/30}", "write a network of /8 to /29"),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: {congestion_control: Cubic!}", '"Cubic!" is not the name of a congestion control, such as cubic'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    network: fast", "9:14  environments.lxc.network: expected keys with values, such as"),
    ("attachment: veth-bridge", "attachment: veth-brige", 'did you mean "veth-bridge"?'),
    ("    backend: native\n", "    backend: native\n    attachment: none\n", "6:17  environments.native.attachment: native is the machine itself; write attachment: host, or loopback for TCP"),
    ("    backend: native\n", "    backend: native\n    placements: [1x2, 2x1]\n", '6:23  environments.native.placements[1]: "2x1" has 2 instances, which cannot reach each other by attachment host; native is the machine itself'),
    ("attachment: veth-bridge", "placements: [2x1]", '8:18  environments.lxc.placements[0]: "2x1" has 2 instances, which cannot reach each other by attachment host; write attachment: veth-bridge'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    transport: shm\n    placements: [2x1]", '10:18  environments.lxc.placements[0]: "2x1" has 2 instances, and only those of one node, with share: [ipc, pid], share memory'),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    share: [ipc, ipc]", "9:12  environments.lxc.share: a namespace given twice"),
    ("attachment: veth-bridge", "attachment: veth-bridge\n    share: [net]", 'unknown value "net"'),
    ("backend: native", "backend: native\n    share: [pid]", "6:12  environments.native.share: native is the machine itself, and has no namespaces of its own"),
    ("margin: 3 %", "mpi: mvapich", 'design.mpi: unknown value "mvapich"'),
    ("attachment: veth-bridge", "placements: [1x3]", '8:18  environments.lxc.placements[0]: unknown placement "1x3"; did you mean "1x2"?'),
    ("attachment: veth-bridge", "placements: [1x2, 1x2]", '8:23  environments.lxc.placements[1]: placement "1x2" given twice'),
    ("attachment: veth-bridge", "placements: 1x2", "8:17  environments.lxc.placements: expected a list, such as [1x2, 2x1]"),
    ("attachment: veth-bridge", "placements: []", "8:17  environments.lxc.placements: a value is missing here"),
    ("attachment: veth-bridge", "workloads: [eq]", '8:17  environments.lxc.workloads[0]: unknown workload "eq"; known: triad, lammps, boot'),
    ("attachment: veth-bridge", "extra_work: 3 %", '8:17  environments.lxc.extra_work: only the backend handicap plants extra work, and this is "namespaces"'),
    ("cpu: 150 %", "cpu: 1.5", '9:19  environments.lxc.limits.cpu: "1.5" has no unit; write "1.5 %"'),
    ("cpu: 150 %", "cpus: 150 %", '9:14  environments.lxc.limits.cpus: unknown key; did you mean "cpu"?'),
    ("memory: 2 GiB", "memory: 2 G", '9:34  environments.lxc.limits.memory: "2 G": unknown unit; did you mean "2 GB"?'),
    ("memory: 2 GiB", "memory: 0.3 B", '"0.3 B" is not a whole number of bytes'),
    ("{cpu: 150 %, memory: 2 GiB}", "3", '9:13  environments.lxc.limits: expected keys with values, such as "cpu: 80 %"'),
    ("1x2: {instances: 1, tasks: 2}", "1x2: {instances: 0, tasks: 2}", "11:20  placements.1x2.instances: 0 is not between 1 and 100000"),
    ("1x2: {instances: 1, tasks: 2}", "1x2: {instances: two, tasks: 2}", '11:20  placements.1x2.instances: "two" is not a whole number'),
    ("cpus: [1, 0]", "cpus: [1, 0, 2]", "12:39  placements.2x1.cpus: 3 CPUs for 2 ranks (2 x 1)"),
    ("cpus: [1, 0]", "cpus: [1, 1]", "12:39  placements.2x1.cpus: a CPU given twice"),
    ("1x2: {instances: 1, tasks: 2}", "1 x 2: {instances: 1, tasks: 2}", '11:3  placements.1 x 2: "1 x 2" is not a name'),
    ("kernel: stream", "kernel: straem", '15:13  workloads.triad.kernel: unknown kernel "straem"; did you mean "stream"?'),
    ("elements: 2 M", "element: 2 M", '16:5  workloads.triad.element: unknown parameter of stream; did you mean "elements"?'),
    ("elements: 2 M", "elements: 2 MB", '16:15  workloads.triad.elements: "2 MB" is a plain number: write it without a unit'),
    ("elements: 2 M", "elements: atuo", '16:15  workloads.triad.elements: "atuo" is not a count; did you mean "auto"?'),
    ("elements: 2 M", "elements: 0", '16:15  workloads.triad.elements: "0" is not above zero'),
    ("elements: 2 M", "elements: [1]", "16:15  workloads.triad.elements: expected one value"),
    ("elements: 2 M", "elements:", "16:5  workloads.triad.elements: a value is missing here"),
    ("pages: 4k", "pages: 5k", '17:12  workloads.triad.pages: unknown value "5k"; known: huge, 4k'),
    ("metrics: [triad]", "metrics: [tirad]", '18:15  workloads.triad.metrics[0]: stream has no metric "tirad"; did you mean "triad"?'),
    ("metrics: [triad]", "metrics: [triad, triad]", '18:22  workloads.triad.metrics[1]: "triad" given twice'),
    ("    kernel: stream\n", "", "14:3  workloads.triad: a workload has one of kernel: stream, application: hpcc, command: [program], script: text, npb: {bin: …} or subject: start"),
    ("    kernel: stream\n", "    kernel: stream\n    command: [a]\n", "16:5  workloads.triad: kernel and command: a workload is one of them"),
    ("command: [lmp, -in, 0010]", "command: lmp -in", "20:14  workloads.lammps.command: expected a list, such as [lmp, -in, in.lj]"),
    ("command: [lmp, -in, 0010]", 'command: [""]', "20:15  workloads.lammps.command[0]: an empty text is not a program"),
    ("command: [lmp, -in, 0010]", "command: [lmp, [a]]", "20:20  workloads.lammps.command[1]: expected one value"),
    ("mpi: true", "mpi: yes", '21:10  workloads.lammps.mpi: "yes": write true or false'),
    ("{OMP_NUM_THREADS: 1}", "{OMP-NUM: 1}", '22:11  workloads.lammps.env.OMP-NUM: "OMP-NUM" is not the name of an environment variable'),
    ("time_limit: 10 min", "time_limit: 10", '23:17  workloads.lammps.time_limit: "10" has no unit; write "10 s"'),
    ("time_limit: 10 min", "time_limit: 0 s", '"0 s" is not between 0 s and 1000000000 s'),
    (r"([\d.]+)", r"([\d.]+", "25:21  workloads.lammps.metrics.loop.regex: not a regular expression: missing )"),
    (r"([\d.]+)", r"[\d.]+", "workloads.lammps.metrics.loop.regex: 0 groups; one group ( ) must hold the number"),
    (r"([\d.]+)", r"(\d+)(.)", "workloads.lammps.metrics.loop.regex: 2 groups; one group ( ) must hold the number"),
    ("json_path: a.0.b, ", "", "26:7  workloads.lammps.metrics.rate: one of regex and json_path finds the number; neither is given"),
    ("json_path: a.0.b, ", "json_path: a.0.b, regex: (a), ", "26:7  workloads.lammps.metrics.rate: one of regex and json_path finds the number; both are given"),
    ("json_path: a.0.b", "json_path: a..b", '26:25  workloads.lammps.metrics.rate.json_path: "a..b" is not a dotted path'),
    ("better: higher", "better: more", '26:51  workloads.lammps.metrics.rate.better: unknown value "more"; known: lower, higher'),
    ("better: higher", "better: higher, scale: many", '26:66  workloads.lammps.metrics.rate.scale: "many" is not a plain number, such as 0.5 or -1e-6'),
    ("better: higher", "better: higher, scale: -1", '26:66  workloads.lammps.metrics.rate.scale: "-1" is not between 1e-30 and 1e+30'),
    ("    mpi: true\n", "    mpi: true\n    verify: {regex: 'a('}\n", "22:21  workloads.lammps.verify.regex: not a regular expression: missing )"),
    ("    mpi: true\n", "    mpi: true\n    verify: {regex: a, expected: b}\n", "22:21  workloads.lammps.verify.regex: 0 groups; one group ( ) must hold what is expected"),
    ("    mpi: true\n", "    mpi: true\n    verify: {expected: b}\n", "22:13  workloads.lammps.verify: expected, min and max apply to the match of a regex; write regex: ^error (.*)$"),
    ("attachment: veth-bridge", "storage: {kind: lop}", '8:21  environments.lxc.storage.kind: unknown value "lop"; did you mean "loop"?'),
    ("attachment: veth-bridge", "storage: {kind: loop}", "8:5  environments.lxc.storage: storage loop needs its size"),
    ("attachment: veth-bridge", "storage: {kind: tmpfs, path: /x}", "8:28  environments.lxc.storage.path: storage tmpfs has no path"),
    ("attachment: veth-bridge", "storage: {kind: bind, path: x}", '8:33  environments.lxc.storage.path: "x" is not an absolute path without a comma'),
    ("attachment: veth-bridge", "storage: {kind: nfs, path: /x}", '8:32  environments.lxc.storage.path: "/x" is not server:/directory'),
    (
        "attachment: veth-bridge",
        "storage: {kind: nfs, path: '-o:/x'}",
        '8:32  environments.lxc.storage.path: "-o:/x" is not server:/directory',
    ),
    ("attachment: veth-bridge", "beside: {backend: namespaces, command: [top]}", "8:5  environments.lxc.beside: in mode slices all environments run at once, and it would disturb the others; write mode: plain"),
    ("memory: 2 GiB", "cpu_shares: 1", "9:38  environments.lxc.limits.cpu_shares: 1 is not between 2 and 262144"),
    ("cpus: [1, 0]", "cpus: [1, 0], pinning: none", "12:33  placements.2x1.cpus: pinning: none lets every rank use all CPUs"),
    ("cpus: [1, 0]", "pinning: core", '12:42  placements.2x1.pinning: unknown value "core"'),
    ("mpi: true", "mpi: true\n    per_task: true", "22:5  workloads.lammps.per_task: mpi starts a process for each task already; one of mpi and per_task"),
    ("subject: start", "subject: density\n    matrix: {counts: [1]}", '29:14  workloads.boot-1.counts: unknown key; did you mean "count"?'),
    ("subject: start", "subject: start\n    method: precopy", "29:5  workloads.boot.method: subject start has no such key; leave it out"),
    ("subject: start", "subject: start\n    methods: [criu]", "29:5  workloads.boot.methods: subject start has no such key; leave it out"),
    ("subject: start", "subject: checkpoint\n    bandwidth: 1 MiB/s", "29:5  workloads.boot.bandwidth: subject checkpoint has no such key; leave it out"),
    ("subject: start", "subject: migrate\n    methods: [criu]\n    method: criu", "29:5  workloads.boot.methods: method and methods: one of them is enough"),
    ("subject: start", "subject: migrate\n    methods: [criu, criu]", "29:5  workloads.boot.methods: a method given twice"),
    ("subject: start", "subject: migrate\n    methods: []", "29:14  workloads.boot.methods: a value is missing here"),
    ("subject: start", "subject: migrate\n    methods: [scp]", '29:15  workloads.boot.methods[0]: unknown value "scp"'),
    ("subject: start", "subject: migrate\n    matrix: {method: [criu, scp]}", '29:29  workloads.boot.methods[1]: unknown value "scp"'),
    ("subject: start", "subject: migrate\n    methods: [criu]\n    matrix: {method: [criu]}", "30:14  workloads.boot.matrix.method: given as methods too"),
    ("subject: start", "subject: migrate\n    memory: 1 MiB\n    working_set: 2 MiB", "30:5  workloads.boot.working_set: is larger than memory"),
    ("subject: start", "subject: migrate\n    load: idle\n    dirty_rate: 1 MiB/s", "30:5  workloads.boot.dirty_rate: belongs to load: dirty"),
    ("subject: start", "subject: migrate\n    method: rsync", '29:13  workloads.boot.method: unknown value "rsync"'),
    ("subject: start", "subject: boot", '28:14  workloads.boot.subject: unknown value "boot"'),
    ("baseline: native", "baseline: natve", '30:13  design.baseline: no environment is called "natve"; did you mean "native"?'),
    ("  baseline: native\n", "", "30:3  design: no baseline; write baseline: native"),
    ("baseline: native", "baseline: native\n  baselines: [native]", "31:3  design: baseline and baselines: one of them is enough"),
    ("baseline: native", "baselines: [native, native]", "30:14  design.baselines: an environment given twice"),
    ("margin: 3 %", "margin: 0.03", 'write "3 %" (or "0.03 %" if that is meant)'),
    ("margin: 3 %", "margin: 100 %", '31:11  design.margin: "100 %" is not between 0 % and 100 %'),
    ("margin: 3 %", "margin: 0 %", '"0 %" is not between 0 % and 100 %'),
    ("margin: 3 %", "confidence: 99.995 %", '31:15  design.confidence: "99.995 %" is not between 50 % and 99.99 %'),
    ("margin: 3 %", "max_blocks: 5", "31:15  design.max_blocks: 5 rounds give no interval; write 8 or more"),
    ("margin: 3 %", "min_blocks: 1001", "30:3  design.max_blocks: 1000 is less than min_blocks, 1001"),
    ("margin: 3 %", "mode: slice", '31:9  design.mode: unknown value "slice"; did you mean "slices"?'),
    ("margin: 3 %", "margn: 3 %", '31:3  design.margn: unknown key; did you mean "margin"?'),
    ("max_time: 1h30m", "max_time: 90", '32:13  design.max_time: "90" has no unit; write "90 s"'),
    ("seed: 0x7f3a", "seed: -1", "33:9  design.seed: -1 is not between 0 and 9223372036854775807"),
    ("seed: 0x7f3a", "seed: 9223372036854775808", "is not between 0 and 9223372036854775807"),
    ("seed: 0x7f3a", "seed: 2026-11-20", '"2026-11-20" is not a whole number'),
    ("triad.triad, lammps.loop", "triad.copy", '34:13  design.primary[0]: workload "triad" has no metric "copy"'),
    ("triad.triad, lammps.loop", "lammps.lop", '34:13  design.primary[0]: workload "lammps" has no metric "lop"; did you mean "loop"?'),
    ("triad.triad, lammps.loop", "triad.triad, lamps.loop", '34:26  design.primary[1]: no workload is called "lamps"; did you mean "lammps"?'),
    ("triad.triad, lammps.loop", "boot.sart", 'workload "boot" has no metric "sart"; did you mean "start"?'),
    ("triad.triad, lammps.loop", "triad", '"triad": write workload.metric, such as cg.rate'),
    ("triad.triad, lammps.loop", "triad.triad, triad.triad", '"triad.triad" given twice'),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "told"), MISTAKES, ids=[f"{o}->{n}"[:60] for o, n, _ in MISTAKES])
def test_mistake_is_reported_at_its_place(catalog: Catalog, old: str, new: str, told: str) -> None:
    found = problems(changed(old, new), catalog)
    assert len(found) == 1, found
    assert told in found[0]


def test_all_mistakes_are_reported_at_once_and_in_order(catalog: Catalog) -> None:
    text = GOOD
    for old, new in (
        ("backend: namespaces", "backend: lxd"),
        ("tasks: 2", "tasks: many"),
        ("kernel: stream", "kernel: streams"),
        ("mpi: true", "mpi: maybe"),
        ("margin: 3 %", "margin: 3"),
        ("triad.triad", "triat.triad"),
    ):
        text = text.replace(old, new)
    found = problems(text, catalog)
    lines = [int(f.split(":")[1]) for f in found]
    assert lines == [7, 11, 15, 21, 31, 34]


def test_a_broken_section_hides_no_mistake_elsewhere(catalog: Catalog) -> None:
    found = problems("environments: 3\nworkloads:\n  a: {kernel: epp}\ndesign: {margin: 3}\n", catalog)
    joined = "\n".join(found)
    for told in (
        "name: missing",
        "environments: expected keys with values",
        "unknown kernel",
        "has no unit",
        "no baseline",
    ):
        assert told in joined
    assert "placements: missing" in joined


def test_an_arm_without_a_baseline_of_as_many_ranks(catalog: Catalog) -> None:
    text = changed("2x1: {instances: 2, tasks: 1, cpus: [1, 0]}", "2x1: {instances: 2, tasks: 4}")
    assert problems(text, catalog) == [
        's.yaml:7:5  environments.lxc.placements: "2x1" has 8 ranks, and the baseline "native" has no placement '
        "with as many; there is nothing to compare it with"
    ]


def test_a_further_baseline_that_nothing_is_compared_with(catalog: Catalog) -> None:
    text = changed("  lxc:\n", "  tcp: {backend: native, attachment: loopback}\n  lxc:\n").replace(
        "baseline: native", "baselines: [native, tcp]"
    )
    assert [c.baseline for c in load_text(text, "s.yaml", catalog).comparisons()][-1] == "tcp/1x2"
    only_shared = text.replace("    attachment: veth-bridge\n", "")
    assert problems(only_shared, catalog) == [
        's.yaml:30:23  design.baselines[1]: nothing is compared with "tcp": no other environment has as many ranks and '
        "the same transport"
    ]


def test_an_attachment_that_serves_no_placement(catalog: Catalog) -> None:
    text = changed("  1x2: {instances: 1, tasks: 2}\n", "")
    assert problems(text, catalog) == [
        "s.yaml:4:3  environments.native: attachment host can serve no placement; write attachment: veth-bridge"
    ]


SWEEP = """\
  npb:
    kernel: cg
    matrix: {class: [S, W], pages: [huge, 4k]}
  pairs:
    kernel: pingpong
    zip: {bytes: [8 B, 4 MiB], trips: [1000, 10]}
design:
"""


def test_sweeps_are_written_out_and_named_after_their_values(catalog: Catalog) -> None:
    study = load_text(changed("design:\n", SWEEP), "s.yaml", catalog)
    assert [w.name for w in study.workloads][3:] == [
        "npb-S-huge",
        "npb-S-4k",
        "npb-W-huge",
        "npb-W-4k",
        "pairs-8B-1000",
        "pairs-4MiB-10",
    ]
    assert study.workloads[-1] == KernelWorkload(
        name="pairs-4MiB-10", kernel="pingpong", params={"bytes": 4 * 2**20, "trips": 10}
    )


def test_the_workloads_of_an_application_are_swept_too(catalog: Catalog) -> None:
    fio = KnownApplication(
        parameters={"size": ("size", "bytes of the file"), "depth": ("count", "requests at a time")},
        misfit=lambda _key, _value: None,
        metrics=lambda _workload: ("bandwidth",),
        misplaced=lambda _workload, _study: (),
        needs_storage=lambda _workload: False,
    )
    known = replace(catalog, applications={"fio": fio})
    sweep = "  disk:\n    application: fio\n    depth: 4\n    matrix: {size: [1 MiB, 1 GiB]}\ndesign:\n"
    study = load_text(changed("design:\n", sweep), "s.yaml", known)
    assert {w.name: w.params for w in study.applications} == {
        "disk-1MiB": {"depth": 4, "size": 2**20},
        "disk-1GiB": {"depth": 4, "size": 2**30},
    }


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("class: [S, W]", "class: [S, X]", '31:25  workloads.npb-X-huge.class: unknown value "X"'),
        ("kernel: cg", "kernel: cg\n    class: S", "32:14  workloads.npb.matrix.class: given outside of the sweep too"),
        ("class: [S, W]", "class: S", "31:21  workloads.npb.matrix.class: expected a list"),
        ("class: [S, W]", "class: [S, [W]]", "31:25  workloads.npb.matrix.class[1]: expected one value"),
        ("class: [S, W]", "kernel: [cg, ep]", "31:14  workloads.npb.matrix.kernel: cannot be swept"),
        ("{class: [S, W], pages: [huge, 4k]}", "3", "31:13  workloads.npb.matrix: expected keys with lists"),
        ("class: [S, W]", "class: [S, S]", '29:3  workloads.npb: the sweep makes a second workload "npb-S-huge"'),
        ("trips: [1000, 10]", "trips: [1]", "34:5  workloads.pairs.zip: the lists differ in length: bytes 2, trips 1"),
        ("trips: [1000, 10]", "trips: [1, 2], bites: [1, 2]", "34:47  workloads.pairs-8B-1-1.bites: unknown parameter of pingpong"),
        ("class: [S, W]", f"class: [{', '.join('S' * 600)}]", "1200 combinations; at most 1000 are allowed"),
    ],
)  # fmt: skip
def test_mistakes_of_sweeps(catalog: Catalog, old: str, new: str, told: str) -> None:
    found = problems(changed("design:\n", SWEEP).replace(old, new), catalog)
    assert told in found[0]


def test_sweeps_are_for_kernels(catalog: Catalog) -> None:
    found = problems(changed("    mpi: true\n", "    matrix: {a: [1]}\n"), catalog)
    (said,) = found
    assert said.startswith("s.yaml:21:5  workloads.lammps.matrix: unknown key; known: command, ")


def test_a_kernel_of_unknown_metrics_takes_any(catalog: Catalog) -> None:
    text = changed("    kernel: stream\n    elements: 2 M\n", "    kernel: pingpong\n    bytes: 8 B\n")
    assert isinstance(load_text(text, "s.yaml", catalog).workloads[0], KernelWorkload)


def test_without_a_catalogue_names_are_taken_as_they_stand() -> None:
    text = changed("backend: namespaces", "backend: elsewhere").replace("kernel: stream", "kernel: lu")
    study = load_text(text.replace("elements: 2 M", "bytes: 8 B\n    gap: 2 ms\n    size: 3"), "s.yaml", None)
    assert study.environments[1].backend == "elsewhere"
    work = study.workloads[0]
    assert isinstance(work, KernelWorkload)
    assert work.params == {"bytes": 8, "gap": 0.002, "size": 3}


def test_a_file_is_read_with_or_without_a_byte_order_mark(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    for prefix in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(prefix + GOOD.encode())
        assert load_study(path, catalog).name == "containers"


def test_a_file_that_is_not_there(catalog: Catalog, tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match=re.escape(str(path))) as caught:
            load_study(path, catalog)
        assert "nearmetal init" in str(caught.value)


def test_a_file_that_is_not_utf8(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes("name: a\nquestion: größer\n".encode("latin-1"))
    with pytest.raises(StudyError) as caught:
        load_study(path, catalog)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, 13)
    assert problem.what == "not UTF-8 (byte 0xf6); save the file as UTF-8"


def test_a_file_that_is_too_large(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    for filler in ("#\n", "#é\n"):
        path.write_text(filler * (1 << 20))
        with pytest.raises(StudyError) as caught:
            load_study(path, catalog)
        assert "larger than 1 MiB" in str(caught.value)


def test_value_that_its_kernel_refuses_is_reported_with_its_place(catalog: Catalog) -> None:
    strict = replace(catalog, misfit=lambda kernel, name, value: f"{kernel}.{name}: not {value}")
    with pytest.raises(
        StudyError, match=r"^s.yaml:16:15  workloads.triad.elements: stream.elements: not 2000000"
    ):
        load_text(GOOD, "s.yaml", strict, seed=1)


def test_shared_memory_between_instances_takes_both_namespaces(catalog: Catalog) -> None:
    asked = "attachment: veth-bridge\n    transport: shm"
    without = load_text(GOOD.replace("attachment: veth-bridge", asked), "s", catalog)
    assert without.environments[1].placements == ("1x2",)
    shared = GOOD.replace("attachment: veth-bridge", f"{asked}\n    share: [ipc, pid]")
    study = load_text(shared, "s", catalog)
    assert study.environments[1].placements == ("1x2", "2x1")
    assert {a.transport for a in study.arms()} == {Transport.SHM}
