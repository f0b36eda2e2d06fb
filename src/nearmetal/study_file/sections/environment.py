"""The section of one environment: what wraps the work, its network, limits and storage."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, create_model

from ...model.environment import BackendSettings
from ...model.study import STORAGE, STORAGE_VARIABLE, Environment, Storage
from ...units import Dimension, exact
from ..fields import (
    AttachmentWord,
    Bytes,
    CongestionControl,
    Cpu,
    Extra,
    Interface,
    Mtu,
    Name,
    NumberOrNone,
    Quota,
    RtoMin,
    SharedWord,
    Shares,
    SomeText,
    StorageWord,
    Subnet,
    Switch,
    Text,
    TransportWord,
    Truth,
    WireRate,
)
from .base import Section
from .guest import GuestSection
from .keyed import made, section_of


class LimitsSection(Section):
    cpu: Quota | None = Field(
        None, description="CPU time, as a share of one CPU: 150 % is one CPU and a half", examples=["80 %"]
    )
    cpu_shares: Shares | None = Field(
        None,
        description="weight against others on the same CPU; every group has 1024 unless given another",
        examples=[256],
    )
    memory: Bytes | None = Field(None, description="memory", examples=["2 GiB"])


class StorageSection(Section):
    kind: StorageWord = Field(
        Storage.kind,
        description="overlay: a directory in its own root file system; bind: a directory of the machine;"
        " tmpfs: memory; loop: an ext4 in a file; block: an ext4 on a device; nfs: an export",
        examples=["loop"],
    )
    path: SomeText | None = Field(
        Storage.path,
        description="bind: a directory to make one in for each instance; loop: where its file is made,"
        " /var/tmp if omitted; block: the device; nfs: server:/directory",
        examples=["/dev/vdb"],
    )
    size: Bytes | None = Field(
        Storage.size, description="of a loop file; of a tmpfs its most", examples=["256 MiB"]
    )
    overwrite: Truth = Field(
        Storage.overwrite,
        description="block: yes, destroy what the device holds; it is not touched otherwise",
        examples=[True],
    )


class OffloadsSection(Section):
    tso: Switch | None = Field(None, description="segmentation of TCP by the device", examples=["off"])
    gso: Switch | None = Field(None, description="segmentation just before the device", examples=["off"])
    gro: Switch | None = Field(None, description="merging of segments on receipt", examples=["off"])


class NetworkSection(Section):
    mode: SomeText | None = Field(
        None,
        description="of macvlan and macvtap: bridge (the default), private, vepa or passthru; of ipvlan:"
        " l2 (the default) or l3",
        examples=["vepa"],
    )
    devices: list[Interface] = Field(
        default_factory=list,
        description="devices of the machine: for phys one for each instance, for sriov the physical"
        " functions",
        examples=[["eth1", "eth2"]],
    )
    subnet: Subnet | None = Field(
        None,
        description="IPv4 network of the addresses; a /24 below 10.99.0.0/16 if omitted",
        examples=["192.168.7.0/24"],
    )
    mtu: Mtu | None = Field(None, description="largest packet, in bytes", examples=[9000])
    rto_min: RtoMin | None = Field(
        None, description="least retransmission time-out of TCP, on the route; whole ms", examples=["2 ms"]
    )
    congestion_control: CongestionControl | None = Field(
        None, description="of TCP, on the route: one that the kernel has", examples=["cubic"]
    )
    rate: WireRate | None = Field(
        None, description="what each instance may send, by a token bucket (tbf)", examples=["1 Gbit/s"]
    )
    queue_length: NumberOrNone | None = Field(
        None, description="transmit queue in packets (txqueuelen)", examples=[100]
    )
    offloads: OffloadsSection = Field(
        default_factory=lambda: OffloadsSection(tso=None, gso=None, gro=None),
        description="switched as by ethtool -K; as the kernel has them if omitted",
        examples=[{"tso": "off", "gso": "off"}],
    )


class BesideSection(Section):
    backend: Name = Field(description="what wraps the companion", examples=["namespaces"])
    command: list[Text] = Field(
        min_length=1,
        description="what runs in it for as long as the trial does, one item each; no shell reads them",
        examples=[["vmstat", "1"]],
    )
    limits: LimitsSection = Field(
        default_factory=lambda: LimitsSection(cpu=None, cpu_shares=None, memory=None),
        description="its limits; none if omitted",
        examples=[{"cpu": "10 %"}],
    )
    cpus: list[Cpu] = Field(
        default_factory=list,
        description="CPUs that it may use; all of the ranks' if omitted",
        examples=[[1]],
    )


class EnvironmentSection(Section):
    backend_settings: ClassVar[tuple[type[BackendSettings], ...]] = ()

    backend: Name = Field(description="what wraps the work", examples=["native", "namespaces"])
    image: Name = Field(
        Environment.image,
        description="root filesystem inside: host (this machine's own), or an image by name",
        examples=["host", "debian-mpi"],
    )
    attachment: AttachmentWord = Field(
        Environment.attachment,
        description="how an instance meets the network; several instances need one that is built for them,"
        " such as veth-bridge",
        examples=["veth-bridge"],
    )
    network: NetworkSection = Field(
        default_factory=lambda: NetworkSection.model_validate({}),
        description="of a network that is built for the attachment; read back from the kernel and recorded",
        examples=[{"rto_min": "2 ms", "mtu": 9000}],
    )
    limits: LimitsSection = Field(
        default_factory=lambda: LimitsSection(cpu=None, cpu_shares=None, memory=None),
        description="limits of each instance; none if omitted",
        examples=[{"cpu": "80 %", "memory": "2 GiB"}],
    )
    guest: GuestSection | None = Field(
        None,
        description="of a virtual machine (backends qemu, libvirt and xen): what it is made of",
        examples=[{"memory": "2 GiB", "nic": "e1000"}],
    )
    inside: Name | None = Field(
        Environment.inside,
        description="an environment of virtual machines, in whose guest its one instance stands: a container"
        " on that kernel, in that image; backend namespaces",
        examples=["vm"],
    )
    storage: StorageSection | None = Field(
        None,
        description="a directory for files of its own, told to workloads as"
        f" {STORAGE} and {STORAGE_VARIABLE}",
        examples=[{"kind": "tmpfs", "size": "256 MiB"}],
    )
    beside: BesideSection | None = Field(
        None,
        description="an instance of another kind beside its own in every trial; mode plain only",
        examples=[{"backend": "namespaces", "command": ["vmstat", "1"]}],
    )
    placements: list[Name] | None = Field(
        None,
        min_length=1,
        description="placements it takes part in; every one that its attachment can serve if omitted",
        examples=[["1x2", "2x1"]],
    )
    workloads: list[Name] = Field(
        default_factory=list,
        description="workloads it runs, where not all; the first baseline runs all",
        examples=[["cg", "latency"]],
    )
    transport: TransportWord = Field(
        Environment.transport,
        description="what carries messages between its ranks; auto: tcp between instances and over loopback,"
        " else shm (shared memory)",
        examples=["tcp"],
    )
    share: list[SharedWord] = Field(
        default_factory=list,
        description="namespaces that its instances keep of the machine: both are needed for transport shm"
        " between instances",
        examples=[["ipc", "pid"]],
    )
    extra_work: Extra = Field(
        Environment.extra_work,
        description="work planted in every slice, as a share; backend handicap only",
        examples=["3 %"],
        json_schema_extra={"default": exact(Environment.extra_work, Dimension.SHARE)},
    )
    emulated: Text = Field(
        Environment.emulated,
        description="by what its machine is, or in what its hypervisor stands; written by nearmetal, into the"
        " study of a results directory",
        examples=["Xen in TCG: QEMU Standard PC"],
    )

    def own_settings(self) -> dict[type[BackendSettings], BackendSettings]:
        """What backends have of their own, by whose it is."""
        given = {s: getattr(self, s.section) for s in self.backend_settings}
        return {s: made(s, section) for s, section in given.items() if section is not None}


_MADE: dict[tuple[type[BackendSettings], ...], type[EnvironmentSection]] = {}


def environment_section(settings: tuple[type[BackendSettings], ...]) -> type[EnvironmentSection]:
    """The section of an environment, with the own keys of backends."""
    if settings not in _MADE:
        _MADE[settings] = _with(settings)
    return _MADE[settings]


def _with(settings: tuple[type[BackendSettings], ...]) -> type[EnvironmentSection]:
    own: dict[str, Any] = {
        s.section: (section_of(s) | None, Field(None, description=s.doc, examples=[s.example]))
        for s in settings
    }
    section = create_model("EnvironmentSection", __base__=EnvironmentSection, **own)
    section.backend_settings = settings
    return section
