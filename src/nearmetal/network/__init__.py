"""Networks that instances are joined by, in network namespaces of their own. Knows no environment."""

from .bridge import BridgedNetwork, Holder, bridge

__all__ = ["BridgedNetwork", "Holder", "bridge"]
