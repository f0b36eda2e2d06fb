"""The only access to the machine: processes, programs, and the files of /proc and /sys. This package must not
depend on what is measured."""

from .base import REPORT_FD, Completed, Host, Launched, MissingValue, Process, text_of
from .local import LocalHost

__all__ = ["REPORT_FD", "Completed", "Host", "Launched", "LocalHost", "MissingValue", "Process", "text_of"]
