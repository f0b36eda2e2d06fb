"""The section of the design."""

from __future__ import annotations

from pydantic import Field

from ...model.study import Design
from ...units import Dimension, exact
from ..fields import (
    Confidence,
    Margin,
    ModeWord,
    MpiWord,
    Name,
    Number,
    NumberOrNone,
    ReachWord,
    SampleStep,
    Seconds,
    Seed,
    SingleCopyWord,
    SomeText,
    StartsWord,
    Truth,
)
from .base import Section

#: What file and command line take when nothing is said (METHOD: "One comparison").
MARGIN, CONFIDENCE = 0.03, 0.95


class DesignSection(Section):
    baseline: Name | None = Field(
        None, description="the environment that the others are compared with", examples=["native"]
    )
    baselines: list[Name] | None = Field(
        None,
        min_length=1,
        description="several of them instead; the further ones meet arms of their own transport",
        examples=[["native", "native-tcp"]],
    )
    margin: Margin = Field(
        MARGIN,
        description="time-equivalent overhead that matters; fixed before data",
        examples=["3 %"],
        json_schema_extra={"default": exact(MARGIN, Dimension.SHARE)},
    )
    confidence: Confidence = Field(
        CONFIDENCE,
        description="of every interval",
        examples=["95 %"],
        json_schema_extra={"default": exact(CONFIDENCE, Dimension.SHARE)},
    )
    mode: ModeWord = Field(
        Design.mode,
        description="slices: short slices between standing instances; plain: one trial after the other",
        examples=["slices"],
    )
    expected_blocks: Number | None = Field(
        Design.expected_blocks,
        description="not used any more: no number of blocks has to be known beforehand",
        examples=[40],
    )
    min_blocks: NumberOrNone = Field(
        Design.min_blocks,
        description="no verdict before so many blocks; the first is possible after 8 anyway",
        examples=[12],
    )
    max_blocks: Number = Field(Design.max_blocks, description="stop after so many blocks", examples=[200])
    max_time: Seconds | None = Field(
        Design.max_time,
        description="stop after so much time; without end if omitted",
        examples=["90 s", "1h30m"],
    )
    target_width: Margin | None = Field(
        Design.target_width,
        description="go on until every half-width is below this; until every cell has a verdict if omitted",
        examples=["0.5 %"],
    )
    seed: Seed | None = Field(
        None, description="fixes the order of everything; drawn and recorded if omitted", examples=[32570]
    )
    warm_up: NumberOrNone = Field(
        Design.warm_up, description="runs thrown away at the start of each instance", examples=[1]
    )
    runs: Number = Field(Design.runs, description="runs per instance, in mode plain", examples=[1])
    slices: Number | None = Field(
        Design.slices,
        description="slices per kernel and instance, in mode slices; if omitted, as many as fill the block,"
        " more of noisy kernels",
        examples=[8],
    )
    starts: StartsWord = Field(
        Design.starts,
        description="how the instances of one arm are started and stopped: together, side by side at one"
        " moment; in-turn, one after the other",
        examples=["in-turn"],
    )
    profile: Truth = Field(
        Design.profile,
        description="have every MPI rank say where its time went and what it sent to whom",
        examples=[True],
    )
    perf_events: Truth = Field(
        Design.perf_events,
        description="have every rank count cycles, instructions, cache and TLB misses, where the kernel lets"
        " those of every arm",
        examples=[False],
    )
    sample_every: SampleStep = Field(
        Design.sample_every,
        description="time between two samples of the counters of node and instances: 100 ms to 10 s",
        examples=["100 ms"],
        json_schema_extra={"default": exact(Design.sample_every, Dimension.TIME)},
    )
    instance_counters: Truth = Field(
        Design.instance_counters,
        description="keep what every instance counts over the timed runs of programs, a guest by its own"
        " kernel: CPU time by kind, memory, blocks, interrupts, context switches",
        examples=[True],
    )
    mpi: MpiWord | None = Field(
        Design.mpi,
        description="which MPI starts the ranks, the kernels compiled for it; the one that mpirun is if"
        " omitted",
        examples=["openmpi", "mpich"],
    )
    reach: ReachWord = Field(
        Design.reach,
        description="how mpirun reaches instances: agent: enters them; ssh: an sshd in each, with keys of the"
        " run alone",
        examples=["ssh"],
    )
    single_copy: SingleCopyWord = Field(
        Design.single_copy,
        description="long messages in shared memory: none: through a segment; cma: one copy by"
        " process_vm_readv, which every instance must allow",
        examples=["cma"],
    )
    primary: list[SomeText] = Field(
        default_factory=list,
        description="workload.metric names of a confirmatory study; exploratory if omitted",
        examples=[["cg.rate"]],
    )
