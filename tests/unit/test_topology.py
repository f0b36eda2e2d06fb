"""Which CPUs ranks take first, by what the kernel says of cores, sockets and memory nodes."""

from __future__ import annotations

from nearmetal.host.facts.topology import CpuTopology, ranges, topology
from nearmetal.testing.fake_host import FakeHost

ABSENT = ("/sys/devices/system/*",)


def machine(cores: dict[tuple[int, ...], int], nodes: dict[int, str]) -> FakeHost:
    """cores: socket by the CPUs of each core; nodes: CPUs of each memory node."""
    files = {"/sys/devices/system/node/online": ",".join(map(str, nodes))} if nodes else {}
    for node, cpus in nodes.items():
        files[f"/sys/devices/system/node/node{node}/cpulist"] = f"{cpus}\n"
    for cpus_of_core, socket in cores.items():
        for cpu in cpus_of_core:
            place = f"/sys/devices/system/cpu/cpu{cpu}/topology"
            files[f"{place}/thread_siblings_list"] = ",".join(map(str, cpus_of_core)) + "\n"
            files[f"{place}/physical_package_id"] = f"{socket}\n"
    return FakeHost(files=files, absent=ABSENT)


def test_cores_before_their_second_threads_and_socket_by_socket() -> None:
    """Sockets numbered in turn, as some firmware does: CPUs 0 and 2 on one, 1 and 3 on the other."""
    host = machine({(0, 4): 0, (1, 5): 1, (2, 6): 0, (3, 7): 1}, {0: "0,2,4,6", 1: "1,3,5,7"})
    found = topology(host, range(8))
    assert (found.order, found.cores) == ((0, 2, 1, 3, 4, 6, 5, 7), 4)
    assert found.adjacent == (0, 4, 2, 6, 1, 5, 3, 7), "the threads of a core beside each other"


def test_threads_numbered_side_by_side() -> None:
    host = machine({(0, 1): 0, (2, 3): 0}, {0: "0-3"})
    assert topology(host, range(4)) == CpuTopology(order=(0, 2, 1, 3), adjacent=(0, 1, 2, 3), cores=2)


def test_second_thread_counts_as_first_if_the_first_is_not_allowed() -> None:
    host = machine({(0, 1): 0, (2, 3): 0}, {})
    assert topology(host, (1, 2, 3)) == CpuTopology(order=(1, 2, 3), adjacent=(1, 2, 3), cores=2)


def test_memory_nodes_of_one_socket_are_filled_one_after_the_other() -> None:
    host = machine({(0,): 0, (1,): 0, (2,): 0, (3,): 0}, {0: "0,3", 1: "1-2"})
    assert topology(host, range(4)).order == (0, 3, 1, 2)


def test_without_any_word_of_the_kernel_every_cpu_is_a_core() -> None:
    cpus = (0, 1, 5)
    assert topology(FakeHost(absent=ABSENT), cpus) == CpuTopology(order=cpus, adjacent=cpus, cores=3)


def test_lists_of_the_kernel() -> None:
    assert ranges("0-2,8\n") == (0, 1, 2, 8)
    assert ranges("") == ranges("x") == ranges("1-") == ()
