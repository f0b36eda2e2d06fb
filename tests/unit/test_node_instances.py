"""Arms enter their instances through their node, so that another process can take an instance over."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.environments.instance import BoxInstance
from nearmetal.model.plan import TrialSpec
from nearmetal.model.study import Arm, Environment, Placement
from nearmetal.node.arms.instances import Instances
from nearmetal.node.arms.running_arm import RunningArm
from nearmetal.node.arms.start_group import Group
from nearmetal.node.trial import Trial


def instance(label: str, pid: int) -> BoxInstance:
    return BoxInstance(
        label=label, hostname="nm0", pid=pid, phases={}, cgroups={}, agent_line="", enter=("enter", str(pid))
    )


def arm_of(node: Any, *instances: BoxInstance) -> RunningArm:
    environment = Environment(name="box", backend="namespaces", placements=("1x1",))
    return RunningArm(
        trial=Trial(
            spec=TrialSpec(id="1.0", block=1, position=0, arm="box/1x1", aa=False),
            arm=Arm(environment=environment, placement=Placement(name="1x1", instances=1, tasks=1)),
            node=node,
            nodes=(),
            directory=Path("/d"),
            log=Path("/l"),
        ),
        group=Group(instances=instances, seconds=(0.0,) * len(instances), steps={}),
        volumes=(),
        companion=None,
        lodges_with=None,
        shared_memory=None,
        ssh=(),
    )


def test_a_running_arm_enters_the_process_that_took_its_instance_over() -> None:
    node = SimpleNamespace(instances=Instances())
    first, second = instance("nearmetal-1-0", 10), instance("nearmetal-1-1", 11)
    arm = arm_of(node, first, second)
    with node.instances.started(nullcontext(first)), node.instances.started(nullcontext(second)):
        assert arm.instances == (first, second)
        node.instances.moved(second, instance("nearmetal-1-moved", 99))
        assert arm.instances[1].command(["true"]) == ["enter", "99", "--", "true"]
        assert arm.instances[0] is first
    with pytest.raises(KeyError):
        node.instances["nearmetal-1-1"]
