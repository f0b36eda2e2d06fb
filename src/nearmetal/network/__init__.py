"""Networks that instances are joined by, in network namespaces of their own. Knows no environment."""

from .build import Emulation, Holder, Network, attempted_networks, build_networks
from .plan import Want

__all__ = ["Emulation", "Holder", "Network", "Want", "attempted_networks", "build_networks"]
