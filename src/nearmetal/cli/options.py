"""Options of several commands. This module imports only what --help needs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer

from .. import RESULTS
from .common import FailOn

Time = typer.Option(None, "--time", metavar="TIME", help="Time budget, such as 90s or 10m.")
Seed = typer.Option(None, "--seed", metavar="N", help="Seed of every order drawn.", min=0)
Json = typer.Option(False, "--json", help="The result as JSON on standard output.")
Parent = typer.Option(Path(RESULTS), "--results", metavar="DIR", help="Where results directories go.")
Fail = typer.Option(FailOn.NOTHING, "--fail-on", help="What ends with exit code 1.")
Force = typer.Option(False, "--force", help="Run although another run holds this machine.")
Overrun = typer.Option(
    False, "--overrun", help="When the time is used up, go on until verdicts are given next."
)
Design = typer.Option(
    None, "--mode", help="slices: all are running and take turns; plain: one trial after the other."
)
Width = typer.Option(
    None, "--width", metavar="SHARE", help="Stop at this half-width (such as '0.7 %'), not at verdicts."
)
Margin = typer.Option(None, "--margin", metavar="SHARE", help="What counts as material, such as '3 %'.")
MaxBlocks = typer.Option(None, "--max-blocks", metavar="N", min=1, help="Stop after so many rounds in all.")
RequireOption = typer.Option(None, "--require", help="kvm: refuse where guests would be emulated.")
All = typer.Option(False, "--all", help="Show every figure, with causes, upper bounds and counters.")
DryRun = typer.Option(False, "--dry-run", help="Check what can run, print the plan, and measure nothing.")
Engine = typer.Option(
    None, "--engine", metavar="ENGINE", help="Who starts workers: local, ssh, slurm, htcondor and others."
)
Workers = typer.Option(
    None,
    "--workers",
    metavar="N",
    help="How many workers run rounds; usually one, or one on each node.",
    min=1,
)
EngineOption = typer.Option(
    [], "--engine-option", metavar="KEY=VALUE", help="An option of the engine; repeatable."
)
Nodes = typer.Option(
    None,
    "--nodes",
    metavar="SOURCE",
    help="The nodes: a YAML file, an Ansible inventory, slurm, slurm:PARTITION or ldap://HOST/BASE.",
)
Lease = typer.Option(
    None, "--lease", metavar="TIME", help="After this time a worker that is silent counts as lost."
)


class Require(StrEnum):
    """A requirement without which a run does not start."""

    KVM = "kvm"
