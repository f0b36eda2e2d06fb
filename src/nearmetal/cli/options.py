"""Options that several commands share, and RunOptions, which holds those of a command that measures. This
module imports only what --help needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from .. import RESULTS
from ..model.design import Mode
from .common import FailOn

Directory = typer.Argument(
    None, metavar="DIR", help="A results directory; by default the newest below results/."
)
OwnDirectory = typer.Argument(
    None, metavar="DIR", help="A results directory; by default your newest below results/."
)
Trust = typer.Option(
    False, "--trust", help="Execute what DIR says, even if it was not measured with this home directory."
)
Time = typer.Option(None, "--time", metavar="TIME", help="Time budget, such as 90s or 10m.")
Seed = typer.Option(None, "--seed", metavar="N", help="Seed of the random order.", min=0)
Results = typer.Option(Path(RESULTS), "--results", metavar="DIR", help="Where results directories are.")
InParts = "Of a study in parts: "
ScaleOption = typer.Option(None, "--scale", help=f"{InParts}small sizes, or those of the paper.")
Only = typer.Option([], "--only", metavar="PARTS", help=f"{InParts}which parts, such as q1,q2; repeatable.")
BackendOption = typer.Option(
    None, "--backend", metavar="BACKEND", help=f"{InParts}the backend to use, such as qemu or lxc."
)
Json = typer.Option(False, "--json", help="The result as JSON on standard output.")
Parent = typer.Option(Path(RESULTS), "--results", metavar="DIR", help="Where to write results directories.")
Fail = typer.Option(FailOn.NOTHING, "--fail-on", help="When to end with exit code 1.")
Force = typer.Option(False, "--force", help="Run even while another run uses this machine.")
Overrun = typer.Option(
    False, "--overrun", help="When the time is used up, go on until the next planned analysis."
)
Design = typer.Option(
    None, "--mode", help="slices: all environments run at once and take turns; plain: one after the other."
)
Width = typer.Option(
    None, "--width", metavar="SHARE", help="Stop when every interval is at most ± this wide, such as 0.7%."
)
Margin = typer.Option(None, "--margin", metavar="SHARE", help="Smallest overhead that matters, such as 3%.")
MaxBlocks = typer.Option(None, "--max-blocks", metavar="N", min=1, help="Stop after this many rounds in all.")
RequireOption = typer.Option(None, "--require", help="kvm: stop if guests would be emulated.")
All = typer.Option(False, "--all", help="Print every figure, with causes, upper bounds and counters.")
DryRun = typer.Option(False, "--dry-run", help="Check what can run, print the plan, and measure nothing.")
Engine = typer.Option(
    None,
    "--engine",
    metavar="ENGINE",
    help="What starts the workers: local, ssh, slurm, htcondor and others.",
)
Workers = typer.Option(
    None,
    "--workers",
    metavar="N",
    help="Number of workers; by default one, or one on each node.",
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
    None,
    "--lease",
    metavar="TIME",
    help="A worker that does not report for this long counts as lost; by default 1m.",
)


class Require(StrEnum):
    """A requirement without which a run does not start."""

    KVM = "kvm"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a command that measures: how it measures, and what it prints.

    with_run_options() gives a command one option for each field, in this order, except for fields that make
    no sense for the command.
    time, margin, width: as typed, such as '90s' and '3%'; None for the values of the study.
    mode: None for the mode of the study.
    max_blocks: number of rounds of the run after which it stops. It is not stored with the run.
    seed: None to draw one.
    """

    time: Annotated[str | None, Time] = Time.default
    max_blocks: Annotated[int | None, MaxBlocks] = MaxBlocks.default
    seed: Annotated[int | None, Seed] = Seed.default
    mode: Annotated[Mode | None, Design] = Design.default
    width: Annotated[str | None, Width] = Width.default
    margin: Annotated[str | None, Margin] = Margin.default
    results: Annotated[Path, Parent] = Parent.default
    json: Annotated[bool, Json] = Json.default
    everything: Annotated[bool, All] = All.default
    fail_on: Annotated[FailOn, Fail] = Fail.default
    force: Annotated[bool, Force] = Force.default
    overrun: Annotated[bool, Overrun] = Overrun.default
    require: Annotated[Require | None, RequireOption] = RequireOption.default
    engine: Annotated[str | None, Engine] = Engine.default
    workers: Annotated[int | None, Workers] = Workers.default
    nodes: Annotated[str | None, Nodes] = Nodes.default
    engine_option: Annotated[list[str], EngineOption] = field(default_factory=list)
    lease: Annotated[str | None, Lease] = Lease.default
    dry_run: Annotated[bool, DryRun] = DryRun.default

    @property
    def require_kvm(self) -> bool:
        return self.require is Require.KVM


OF_ENGINES = ("engine", "workers", "nodes", "engine_option", "lease")
"""The fields of RunOptions for rounds that are run by workers of an engine."""


def with_run_options(*left_out: str, **defaults: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that gives a command the options of RunOptions in place of its parameter `options`.

    left_out: fields for which the command has no option. They keep their defaults.
    defaults: values of options that are not given, where they differ from those of RunOptions.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        shared = {}
        for name, annotation in get_type_hints(RunOptions, include_extras=True).items():
            if name not in left_out:
                kind, option = get_args(annotation)
                option = copy(option)
                option.default = defaults.get(name, option.default)
                shared[name] = inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind
                )

        def run(**given: Any) -> int:
            options = RunOptions(**{name: given.pop(name) for name in shared})
            return command(**given, options=options)

        own = [
            p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "options"
        ]
        for_typer: Any = run
        for_typer.__name__ = command.__name__
        for_typer.__annotations__ = {}
        for_typer.__signature__ = inspect.Signature([*own, *shared.values()])
        return run

    return decorate
