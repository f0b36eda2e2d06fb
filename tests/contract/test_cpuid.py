"""What the processor of this machine tells of hypervisors, and that it is no emulator where it says so."""

from __future__ import annotations

import json

import pytest

from nearmetal.environments import Tools
from nearmetal.environments.cpuid import TCG, emulator, hypervisors, plain_name
from nearmetal.host import LocalHost
from nearmetal.host.facts.provenance import cpu_flags

pytestmark = pytest.mark.beside


def test_hypervisors_are_named_where_the_kernel_knows_of_one(tools: Tools) -> None:
    host = LocalHost()
    done = host.run([tools / "nm-box", "cpuid"], timeout=600)
    assert done.ok and isinstance(json.loads(done.stdout)["hypervisors"], list), done
    found = hypervisors(host, tools / "nm-box")
    # Some hypervisors hide their name, and some processors tell no flags.
    told = cpu_flags(host)
    assert not found or not told or "hypervisor" in told
    assert all(name.isprintable() and plain_name(name) for name in found)
    assert bool(emulator(host, tools)) is (TCG in found)
