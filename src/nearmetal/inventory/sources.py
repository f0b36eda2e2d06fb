"""Determines which kind of inventory an argument of the command line names, and reads it."""

from __future__ import annotations

from pathlib import Path

from ..errors import InventoryError, UsageError
from ..host import Host
from ..model.inventory import LDAP, Inventory, is_service
from ..study_file.problems import Problems, read_text
from .ansible import from_ini
from .ldap import from_ldap
from .slurm import from_slurm
from .yaml_file import from_yaml

TAKES = (
    "--nodes takes a YAML file such as examples/hosts.yaml, an Ansible inventory (YAML or INI), slurm, "
    "slurm:PARTITION, or ldap://HOST/BASE"
)


def load_inventory(source: str, host: Host) -> Inventory:
    """Return the nodes that a source lists.

    source: the path of a YAML file of nearmetal or Ansible (.yaml, .yml, .json), of an INI file of Ansible
        (any other name), 'slurm' or 'slurm:PARTITION', or a URL of an LDAP server.
    host: the machine where the commands of Slurm are run.

    Raises InventoryError with file, line and column for mistakes in a file, UsageError if there is no such
    source or no node in it, and UnavailableError if Slurm or ldap3 is missing.
    """
    if source.startswith(LDAP):
        found = from_ldap(source)
    elif is_service(source) and not Path(source).exists():
        found = from_slurm(host, source.partition(":")[2])
    else:
        path = Path(source)
        text = read_text(path, Problems(source, InventoryError), what="the nodes", remedy=TAKES)
        found = (from_yaml if path.suffix in (".yaml", ".yml", ".json") else from_ini)(text, source)
    if not found.nodes:
        why = "; ".join(f"{name}: {reason}" for name, reason in found.left_out.items())
        raise UsageError(f"no node can be used{': ' if why else ''}{why[:300]}", where=source, remedy=TAKES)
    return found
