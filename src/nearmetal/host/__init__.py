"""The only door to the machine: processes, files of /proc and /sys, programs found. Knows no benchmark."""

from .base import Completed, Host, Process, Unavailable
from .local import LocalHost

__all__ = ["Completed", "Host", "LocalHost", "Process", "Unavailable"]
