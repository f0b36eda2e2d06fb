"""Builds the command line of QEMU for a guest. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ...model.environments.guest import MIB, Accelerator, DiskFormat, GuestSettings, MachineType, Nic
from ..guests.guest import CONSOLE, GuestInterface

TAP_FD, VHOST_FD = 30, 31
"""Numbers of the file descriptors by which QEMU gets the tap and vhost-net from `nm-box tap`."""
AGENT = "nm.agent"
"""Name of the virtio-serial port through which nearmetal talks to the guest's agent."""
TB_CACHE = 128 * MIB
"""Size of TCG's cache of translated code for all vCPUs, in bytes. It is limited so that it cannot use up the
memory of the machine."""


class Wire(StrEnum):
    """What a guest's network card is connected to: a tap, QEMU's user-mode network, or nothing."""

    TAP = "tap"
    USER = "user"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class QemuDisk:
    """A file that the guest sees as a disk.

    name: serial number of the disk, by which the guest finds it.
    snapshot: whether QEMU discards all writes when it ends.
    """

    name: str
    file: Path
    format: DiskFormat
    read_only: bool
    snapshot: bool = False


@dataclass(frozen=True, kw_only=True)
class Sockets:
    """Paths of the sockets and of the console file of one QEMU, all in one directory of the instance."""

    directory: Path

    @property
    def agent(self) -> Path:
        """Socket of the multiplexer (nm-box multiplex) for programs on the machine that talk to the guest's
        agent."""
        return self.directory / "agent"

    @property
    def port(self) -> Path:
        """Socket of the multiplexer to which QEMU connects the guest's virtio-serial port."""
        return self.directory / "port"

    @property
    def qmp(self) -> Path:
        return self.directory / "qmp"

    @property
    def files(self) -> Path:
        """Socket of virtiofsd."""
        return self.directory / "files"

    @property
    def console(self) -> Path:
        return self.directory / CONSOLE


@dataclass(frozen=True, kw_only=True)
class GuestPlan:
    """The input from which QEMU's command line is built.

    vcpus: number of vCPUs. It is used instead of settings.vcpus, which may be None.
    cpu: CPU model. It is used instead of settings.cpu, which may be None.
    command_line: command line of the guest's kernel.
    shared_root: whether the guest mounts the machine's root directory through virtiofs.
    place: the guest's network interface; None if it has no network card.
    wire: what the network card is connected to.
    incoming: whether QEMU waits for the state of a guest, from a checkpoint or a move, instead of booting.
    machine: machine type with its version, such as 'pc-q35-7.2', which must be the same on both sides of a
        move; empty for the newest version of settings.machine.
    """

    settings: GuestSettings
    accelerator: Accelerator
    vcpus: int
    cpu: str
    kernel: Path
    initramfs: Path
    command_line: str
    disks: Sequence[QemuDisk]
    sockets: Sockets
    shared_root: bool
    place: GuestInterface | None
    wire: Wire = Wire.TAP
    incoming: bool = False
    machine: str = ""

    def vcpus_of(self, node: int) -> list[int]:
        return [c for c in range(self.vcpus) if c * self.settings.numa // self.vcpus == node]


def qemu_argv(program: str, plan: GuestPlan) -> list[str]:
    """Return the complete command line of QEMU.

    program: path of QEMU.
    """
    s = plan.settings
    micro = s.machine is MachineType.MICROVM
    argv = [program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    options = ",isa-serial=on,rtc=on,pit=on,pic=on,x-option-roms=off" if micro else ""
    memory, backend = _memory(plan)
    argv += ["-machine", f"{plan.machine or s.machine.value}{options}{backend}", "-accel", _accel(plan)]
    argv += ["-cpu", plan.cpu, "-smp", str(plan.vcpus), "-m", f"{s.memory // MIB}M", *memory]
    argv += ["-kernel", str(plan.kernel), "-initrd", str(plan.initramfs), "-append", plan.command_line]
    argv += [
        "-chardev",
        f"file,id=console,path={_escaped(plan.sockets.console)}",
        "-serial",
        "chardev:console",
    ]
    argv += ["-qmp", f"unix:{_escaped(plan.sockets.qmp)},server=on,wait=off"]
    argv += ["-device", _device("virtio-serial", micro)]
    argv += ["-chardev", f"socket,id=agent,path={_escaped(plan.sockets.port)}"]
    argv += ["-device", f"virtserialport,chardev=agent,name={AGENT}"]
    for disk in plan.disks:
        argv += _disk(disk, s, micro=micro)
    if plan.shared_root:
        argv += ["-chardev", f"socket,id=files,path={_escaped(plan.sockets.files)}"]
        argv += ["-device", f"{_device('vhost-user-fs', micro)},chardev=files,tag=root"]
    argv += _network(plan, micro=micro)
    if s.vfio is not None:
        argv += ["-device", f"vfio-pci,host={s.vfio}"]
    return [*argv, "-incoming", "defer"] if plan.incoming else argv


def _escaped(path: Path) -> str:
    """Return a path for use in an option of QEMU. Commas are doubled, because a single comma ends a value."""
    return str(path).replace(",", ",,")


def _accel(plan: GuestPlan) -> str:
    if plan.accelerator is Accelerator.KVM:
        return "kvm"
    # One translator thread for each vCPU.
    return f"tcg,thread=multi,tb-size={TB_CACHE // MIB}"


def _device(name: str, micro: bool) -> str:
    return f"{name}-device" if micro else f"{name}-pci"


def _memory(plan: GuestPlan) -> tuple[list[str], str]:
    """Return the options that define the guest's memory, and the option of -machine that refers to it.

    The memory is shared if virtiofsd accesses it, in huge pages if requested, and divided among NUMA nodes if
    there are several.
    """
    s = plan.settings
    if not plan.shared_root and not s.huge_pages and s.numa == 1:
        return [], ""
    size = s.memory // s.numa // MIB
    huge = ",hugetlb=on" if s.huge_pages else ""
    out: list[str] = []
    for node in range(s.numa):
        out += ["-object", f"memory-backend-memfd,id=mem{node},size={size}M,share=on{huge}"]
        cpus = ",".join(f"cpus={c}" for c in plan.vcpus_of(node))
        if s.numa == 1:
            return out, ",memory-backend=mem0"
        out += ["-numa", f"node,nodeid={node},memdev=mem{node}{',' + cpus if cpus else ''}"]
    return out, ""


def _disk(disk: QemuDisk, s: GuestSettings, *, micro: bool) -> list[str]:
    options = [f"file={_escaped(disk.file)}", f"format={disk.format.value}", f"id={disk.name}", "if=none"]
    options += [f"cache={s.cache.value}", f"aio={s.aio.value}"]
    options += ["readonly=on"] if disk.read_only else []
    options += ["snapshot=on"] if disk.snapshot else []
    return [
        "-drive",
        ",".join(options),
        "-device",
        f"{_device('virtio-blk', micro)},drive={disk.name},serial={disk.name}",
    ]


def _network(plan: GuestPlan, *, micro: bool) -> list[str]:
    if plan.place is None:
        return []
    vhost = f",vhost=on,vhostfd={VHOST_FD}" if plan.settings.nic is Nic.VHOST else ""
    netdevs: Mapping[Wire, str] = {
        Wire.TAP: f"tap,id=net,fd={TAP_FD}{vhost}",
        Wire.USER: "user,id=net,ipv6=off",
        Wire.NOTHING: "hubport,id=net,hubid=0",
    }
    card = f"{_card(plan.settings.nic, micro)},mac={plan.place.mac}"
    return ["-netdev", netdevs[plan.wire], "-device", card]


def _card(nic: Nic, micro: bool) -> str:
    names: Mapping[Nic, str] = {Nic.E1000: "e1000", Nic.RTL8139: "rtl8139"}
    # No guest boots over the network, so the firmware must not load the card's boot ROM.
    rom = "" if micro else ",romfile="
    return f"{names.get(nic) or _device('virtio-net', micro)},netdev=net{rom}"
