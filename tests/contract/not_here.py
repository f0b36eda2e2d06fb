"""Which of our backends the contract suite cannot ask here, by name, and why: the only ones that may be
missing where every other must work (CI)."""

from __future__ import annotations

import os
import shutil

NO_PACKAGE = {
    "apptainer": "apptainer is not installed, and no tree with it stands: make setup-test as root builds one"
}
NO_HYPERVISOR = "this machine is not a dom0 of Xen; tests/nested asks one that is emulated"
NEED_ROOT = ("apptainer", "crun", "docker", "lxc", "nspawn", "runc")


def not_here() -> dict[str, str]:
    """Reason by backend. One that is installed all the same is tested."""
    without = {name: why for name, why in NO_PACKAGE.items() if shutil.which(name) is None}
    if shutil.which("xl") is None:
        without["xen"] = NO_HYPERVISOR
    if os.geteuid() != 0:
        without |= dict.fromkeys(NEED_ROOT, "needs root (for image host)")
    return without
