"""The types of the keys of a guest of Xen. Imports pydantic: imported by the sections alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from ...model.xen import XenDiskKind, XenScheduler, XenType
from ..fields import matching, one_of, whole, words

DESTINATION = r"^(?!-)(ssh://)?[A-Za-z0-9_.@:\[\]-]{1,255}$"
LEAST_WEIGHT, MOST_WEIGHT, MOST_CAP = 1, 65535, 65535

TypeWord = Annotated[XenType, BeforeValidator(one_of(XenType)), words(XenType)]
SchedulerWord = Annotated[XenScheduler, BeforeValidator(one_of(XenScheduler)), words(XenScheduler)]
DiskKindWord = Annotated[XenDiskKind, BeforeValidator(one_of(XenDiskKind)), words(XenDiskKind)]
Weight = Annotated[
    int,
    BeforeValidator(whole(LEAST_WEIGHT, MOST_WEIGHT)),
    WithJsonSchema({"type": "integer", "minimum": LEAST_WEIGHT, "maximum": MOST_WEIGHT}),
]
Cap = Annotated[
    int,
    BeforeValidator(whole(0, MOST_CAP)),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_CAP}),
]
Destination = Annotated[str, matching(DESTINATION, "a destination of ssh, such as root@node7")]
