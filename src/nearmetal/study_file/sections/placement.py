"""The section of one placement."""

from __future__ import annotations

from pydantic import Field

from ...model.study import NodeLink, Placement
from ..fields import Bytes, Cpu, Delay, Number, PinningWord, Truth, WireRate
from .base import Section


class LinkSection(Section):
    rate: WireRate = Field(
        NodeLink.rate,
        description="of each direction of each node's link",
        examples=["1 Gbit/s"],
        json_schema_extra={"default": "1 Gbit/s"},
    )
    delay: Delay = Field(
        NodeLink.delay,
        description="one way, from node to node, beside what forwarding takes",
        examples=["50 us"],
        json_schema_extra={"default": "50 us"},
    )
    queue: Bytes = Field(
        NodeLink.queue,
        description="what may wait at an end of a link before more is dropped",
        examples=["8 kB"],
        json_schema_extra={"default": "1 MiB"},
    )


class PlacementSection(Section):
    nodes: Number = Field(
        Placement.nodes,
        description="nodes; more than one are emulated: network namespaces with CPUs of their own, joined"
        " by links, and labelled so in every table and figure",
        examples=[2],
    )
    link: LinkSection = Field(
        default_factory=lambda: LinkSection.model_construct(),
        description="links of emulated nodes",
        examples=[{"rate": "1 Gbit/s", "delay": "50 us"}],
    )
    instances: Number = Field(description="instances on each node", examples=[1, 2])
    tasks: Number = Field(description="MPI ranks in each instance", examples=[2, 1])
    cpus: list[Cpu] = Field(
        default_factory=list,
        description="the CPU of each rank, by rank; chosen alike for all environments if omitted, one for"
        " each core first, socket by socket",
        examples=[[0, 1]],
    )
    pinning: PinningWord = Field(
        Placement.pinning,
        description="a rank may use its own CPU (rank), those of its instance, or all of them (none)",
        examples=["instance"],
    )
    oversubscribe: Truth = Field(
        Placement.oversubscribe,
        description="more ranks than CPUs: they take turns, and MPI yields while it waits",
        examples=[True],
    )
