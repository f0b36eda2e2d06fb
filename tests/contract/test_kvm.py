"""The KVM probe: its answer does not depend on what else the machine does."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from nearmetal.environments import Tools
from nearmetal.environments.guests.kvm import PROBE_SECONDS
from nearmetal.host import LocalHost

HOST = LocalHost()


@contextmanager
def busy() -> Iterator[None]:
    """Two busy loops for each CPU."""
    with ExitStack() as stack:
        for _ in range(2 * len(os.sched_getaffinity(0))):
            loop = stack.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            stack.callback(loop.kill)
        yield


def probe(tools: Tools, *words: str) -> dict[str, Any]:
    done = HOST.run([tools / "nm-box", "kvm", *words], timeout=PROBE_SECONDS)
    assert done.ok, done.failure()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def kinds(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """The answers without their times."""
    return [(s["step"], re.sub(r"\d+(\.\d+)?", "N", s["answer"])) for s in answer["steps"]]


def test_the_answer_is_the_same_on_a_busy_machine(tools: Tools) -> None:
    quiet = probe(tools)
    with busy():
        for _ in range(3):
            loaded = probe(tools)
            assert loaded["works"] == quiet["works"] and kinds(loaded) == kinds(quiet)
            assert not any("hangs" in answer for _, answer in kinds(loaded))


@pytest.mark.more
def test_a_guest_that_never_ends_is_stopped_by_its_cpu_time(tools: Tools) -> None:
    if not kinds(probe(tools))[0][1].startswith("ok"):
        pytest.skip("KVM runs not even a guest in real mode here")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = probe(tools, "endless")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answer["works"] is False
    assert answer["reason"] == "it hangs: no end after 5 s of CPU time (an endless loop)"
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used > 4.9, "it had its CPU time before it was stopped"
