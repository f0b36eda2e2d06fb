"""The sections of a study file as pydantic models: their keys, with types, documentation and examples.

Validation, JSON Schema and `explain` are all made from these models. The package imports pydantic, so it is
imported only when a file is read. Values arrive as text (see tree.py), lists and mappings; fields.py
converts them to the types of the keys.

The package does not read files, and does not know whether an environment works on this machine.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ...model.environments.image import HOST
from ..fields import Name, Text
from .keyed import Section, made, section_of
from .workload import ApplicationSection, CommandSection, KernelSection, NpbWorkloadSection, event_section


class TopSection(Section):
    """The whole file. The entries of its sections are validated one by one, to find every mistake."""

    name: Name = Field(
        description="name of the study; results are written to results/<name>-<time>", examples=["first"]
    )
    question: Text = Field(
        "", description="the question, in words; the headline of the report", examples=["What does it cost?"]
    )
    environments: dict[Name, Any] = Field(
        min_length=1, description="what is compared", examples=[{"native": {"backend": "native"}}]
    )
    images: dict[Name, Any] = Field(
        default_factory=dict,
        description="images of your own, beside those that come with nearmetal",
        examples=[{"own": {"suite": HOST}}],
    )
    placements: dict[Name, Any] = Field(
        min_length=1,
        description="instances and tasks in them",
        examples=[{"1x2": {"instances": 1, "tasks": 2}}],
    )
    workloads: dict[Name, Any] = Field(
        min_length=1,
        description="what is run: a kernel, a command of your own, or an event of the instances",
        examples=[{"ep": {"kernel": "ep", "class": "S"}}],
    )
    design: dict[str, Any] = Field(
        description="how often, in which order, when to stop", examples=[{"baseline": "native"}]
    )
