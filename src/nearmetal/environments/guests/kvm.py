"""Checks whether KVM can run a guest on this machine. It runs small guests (kernels/box/kvm.c), because it
does not suffice that /dev/kvm can be opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...host import Host
from ..contract import Tools

PROBE_SECONDS = 240.0
"""Time limit in seconds for six guests, each of which takes at most 30 s (kernels/box/kvm.c)."""


@dataclass(frozen=True, kw_only=True)
class KvmAnswer:
    """Whether KVM can run guests on this machine.

    reason, remedy: why it cannot, and what helps; empty if it can.
    nanoseconds: duration of one instruction in a virtual machine; None if unknown.
    tsc_khz: frequency of the machine's time stamp counter in kHz; 0 if it has none.
    steps: name and result of each step of the check.
    """

    works: bool
    reason: str = ""
    remedy: str = ""
    nanoseconds: float | None = None
    tsc_khz: int = 0
    steps: tuple[tuple[str, str], ...] = ()


def kvm_answer(host: Host, tools: Tools) -> KvmAnswer:
    """Return whether KVM runs small guests to their end on this machine.

    The time limit of each guest is in CPU time, so a busy machine gives the same answer. The answer is
    cached, since it does not change while nearmetal runs.
    """
    hashable_host: Any = host  # the protocol Host does not declare that it can be hashed
    return _probed(hashable_host, tools)


@lru_cache(maxsize=8)
def _probed(host: Any, tools: Tools) -> KvmAnswer:
    done = host.run([tools / "nm-box", "kvm"], timeout=PROBE_SECONDS)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return KvmAnswer(works=False, reason=done.failure(), remedy="read the kernel's log")
    return KvmAnswer(
        works=answer["works"],
        reason=answer["reason"],
        remedy=answer["remedy"],
        nanoseconds=answer.get("nanoseconds"),
        tsc_khz=answer["tsc_khz"],
        steps=tuple((s["step"], s["answer"]) for s in answer["steps"]),
    )
