"""Describes the machine of a run for the record, and rehearses the study on a node that joins the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ..errors import RunError
from ..host import cgroups
from ..host.facts.boot_records import boot_records
from ..host.facts.nodes import differences, node_facts
from ..host.facts.provenance import provenance
from ..launchers import withheld
from ..meters.inside import counted_everywhere, inside_record, offered_events
from ..model.record import JsonValue, section
from ..model.study import Study, Workload
from ..node.bases import base_record
from ..node.cpus import count_cpus
from ..node.machine import Machine
from ..node.node import Node
from ..node.progress import Progress
from ..records import ResultsDirectory
from ..report.node_differences import difference_lines
from ..workloads.build import contents_digest
from ..workloads.protocol import EVENTS
from .block import Recording
from .by_hand import run_by_hand
from .rehearsal import Rehearsed, rehearse


def describe(node: Node, rehearsed: Rehearsed, not_here: Mapping[str, str]) -> dict[str, Any]:
    """Return the description of an open node after its rehearsal: machine, tools, images, parity audit,
    storage, limits, network.

    not_here: arms that cannot run here, with the reason.
    """
    machine, study, limits = node.machine, node.study, cgroups.caller_limits()
    events = EVENTS if study.design.perf_events else ()
    offered = offered_events(machine.host, machine.tools)
    return {
        **provenance(machine.host),
        "tools": {
            **asdict(machine.built),
            "directory": str(machine.built.directory),
            "contents": contents_digest(machine.built.directory),
        },
        "images": {n: s.record() for n, s in node.software.items() if s.image is not None},
        "parity": rehearsed.parity,
        "not_here": {**not_here},
        "cpu_order": {"cpus": list(machine.cpus), "cores": machine.cores},
        "storage": rehearsed.storage,
        "working_directories": rehearsed.working_directories,
        "limits": rehearsed.limits,
        "view": node.working_directory.record(),
        "cpus": _cpus(node),
        "caller_limits": {**asdict(limits), "words": limits.words},
        "network": node.network_record(),
        "machines": node.real.record(),
        "boots": boot_records(machine.host) if node.bases else {},
        "guests": {name: base_record(b) for name, b in node.bases.items()},
        "inside": inside_record(study.design, counted_everywhere(events, rehearsed.records), offered),
        "mpi": _mpi(machine, study),
        "standard_input": node.caller.input.what,
        "run": node.label,
        "rehearsal_seconds": rehearsed.seconds,
    }


def machine_differences(description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the differences between the machines of a placement as lines of text; empty for fewer than two
    machines.

    description: result of describe().
    """
    facts = {name: node_facts(found) for name, found in description["machines"].items()}
    return tuple(difference_lines(differences(facts))) if len(facts) > 1 else ()


def _cpus(node: Node) -> dict[str, dict[str, JsonValue]]:
    """Return how many CPUs the ranks of each program have in each arm: arm -> workload -> number."""
    study = node.study
    programs: tuple[Workload, ...] = (*study.kernels, *study.applications, *study.commands)
    return {
        arm.name: {
            w.name: count_cpus(arm, node.nodes_of(arm.placement, 0), w)
            for w in programs
            if arm.environment.takes(w.name)
        }
        for arm in study.arms()
    }


def _mpi(machine: Machine, study: Study) -> dict[str, JsonValue]:
    """Return the study's MPI. The machine's mpirun may belong to another MPI."""
    design = study.design
    return {
        "used": machine.mpi.title,
        "mpirun": machine.mpi.mpirun,
        "reach": design.reach.value,
        "single_copy": design.single_copy.value,
        "withheld": list(withheld(os.environ)),
    }


def join_run(
    node: Node, directory: ResultsDirectory, recording: Recording, name: str, progress: Progress
) -> dict[str, Any]:
    """Rehearse a run with a fixed plan on one more node. Write the description of the node, and return it.

    The work of a slice is that of the plan. If the node has been rehearsed in this run since it booted, only
    the description is written again.

    name: name of the node.

    Raises RunError if an arm fails in the rehearsal, or if a program's files are in memory in one arm and on
    a disk in its baseline.
    """
    boot = provenance(node.machine.host)["boot"]
    for known in directory.nodes().values():
        if known["node"] == name and known.get("boot") == boot and "parity" in known:
            found = {**known, "run": node.label}
            directory.node_files.write(node.label, found, node=name)
            node.working_directory.reopen(section(found, "view"), directory.path.parent)
            return found
    progress.phase(f"rehearsal on {name}: round 0, discarded")
    logs = recording.logs / node.label
    logs.mkdir(parents=True, exist_ok=True)
    by_hand = run_by_hand(node, directory.path.parent, progress)
    work = directory.plan().work
    rehearsed = rehearse(node, replace(recording, logs=logs), progress, work, by_hand=by_hand)
    trouble = {**rehearsed.failed, **rehearsed.unlike}
    if trouble:
        reasons = "; ".join(f"{arm}: {why}" for arm, why in trouble.items())
        raise RunError(f"the rehearsal failed on this node: {reasons}", where=name)
    for text in rehearsed.notes:
        progress.note(text)
    found = describe(node, rehearsed, {})
    directory.node_files.write(node.label, found, node=name, rehearsal=rehearsed.records)
    return found
