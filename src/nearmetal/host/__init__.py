"""The only door to the machine: processes, files of /proc and /sys, programs found. Knows no benchmark."""

from .base import REPORT_FD, Completed, Host, Launched, Process, Unavailable
from .local import LocalHost

__all__ = ["REPORT_FD", "Completed", "Host", "Launched", "LocalHost", "Process", "Unavailable"]
