"""weigh with attachments: every environment with each that it can have, on placements that it can serve."""

from __future__ import annotations

import pytest

from nearmetal.api.adhoc.weigh import weigh_study, with_time_limit
from nearmetal.api.workload_names import named_attachments
from nearmetal.environments.registry import get_backend
from nearmetal.errors import UsageError
from nearmetal.model.study import Attachment, CommandWorkload, KernelWorkload, StorageKind, Study, Transport

PINGPONG = KernelWorkload(name="pingpong", kernel="pingpong", params={})


def weigh(
    *names: str,
    attachments: str = "",
    instances: int | None = None,
    ranks: int = 2,
    command: tuple[str, ...] = (),
) -> Study:
    return weigh_study(
        {name: get_backend(name) for name in names},
        workloads=() if command else (PINGPONG,),
        command=command,
        ranks=ranks,
        instances=instances,
        mpi=False,
        margin=0.03,
        seed=1,
        max_time=60.0,
        attachments=named_attachments([attachments] if attachments else []),
    )


def test_every_environment_with_each_that_it_can_have() -> None:
    study = weigh("native", "namespaces", attachments="veth-bridge,macvlan,host")
    assert [(e.name, e.backend, e.attachment, e.placements) for e in study.environments] == [
        ("native", "native", Attachment.HOST, ("1x2",)),
        ("namespaces-veth-bridge", "namespaces", Attachment.VETH_BRIDGE, ("2x1",)),
        ("namespaces-macvlan", "namespaces", Attachment.MACVLAN, ("2x1",)),
        ("namespaces-host", "namespaces", Attachment.HOST, ("1x2",)),
    ]
    assert study.design.baselines == ("native",)
    assert [a.transport for a in study.arms()] == [
        Transport.SHM,
        Transport.TCP,
        Transport.TCP,
        Transport.SHM,
    ]
    assert [c.baseline for c in study.comparisons()] == ["native/1x2"] * 3


def test_one_attachment_keeps_the_plain_name() -> None:
    study = weigh("native", "namespaces", attachments="veth")
    assert [(e.name, e.attachment) for e in study.environments] == [
        ("native", Attachment.HOST),
        ("namespaces", Attachment.VETH),
    ]


def test_without_attachments_all_is_as_before() -> None:
    study = weigh("native", "namespaces")
    assert [(e.attachment, e.placements) for e in study.environments] == [
        (Attachment.HOST, ("1x2",)),
        (Attachment.VETH_BRIDGE, ("1x2",)),
    ]


def test_the_same_environment_by_two_attachments_is_two() -> None:
    study = weigh("namespaces", attachments="veth-bridge,veth-routed", instances=2)
    assert study.design.baselines == ("namespaces-veth-bridge",)
    with pytest.raises(UsageError, match="two environments or more"):
        weigh("namespaces", attachments="veth-bridge")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("veth-bridg", '--attachment: unknown "veth-bridg"; did you mean "veth-bridge"?'),
        ("veth,veth", "--attachment: veth is named twice"),
        ("phys", '--attachment: unknown "phys"'),
        ("veth,", '--attachment: unknown ""'),
    ],
)
def test_mistakes_on_the_command_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        named_attachments([text])
    assert said in caught.value.what


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        (("dd", "of={storage}/x"), [StorageKind.BIND] * 2),
        (("sh", "-c", 'cd "$NEARMETAL_STORAGE"'), [StorageKind.BIND] * 2),
        (("true",), [None, None]),
    ],
)
def test_a_command_that_names_the_storage_has_some(
    command: tuple[str, ...], kinds: list[StorageKind | None]
) -> None:
    study = with_time_limit(weigh("native", "namespaces", command=command), 7.0)
    (program,) = study.workloads
    assert isinstance(program, CommandWorkload) and program.time_limit == 7.0
    assert [e.storage and e.storage.kind for e in study.environments] == kinds
    _, guest = weigh("native", "qemu", command=command).environments
    assert (guest.guest is not None and guest.guest.writable is not None) == bool(guest.storage)
    assert guest.storage is None or guest.storage.kind is StorageKind.OVERLAY


def test_attachments_of_virtual_machines_are_refused_to_containers() -> None:
    with pytest.raises(UsageError, match="namespaces cannot have attachment macvtap"):
        weigh("native", "namespaces", attachments="macvtap")
    both = weigh("native", "namespaces", "qemu", attachments="macvtap,veth-bridge")
    assert [(e.name, e.attachment) for e in both.environments[1:]] == [
        ("namespaces", Attachment.VETH_BRIDGE),
        ("qemu-macvtap", Attachment.MACVTAP),
        ("qemu-veth-bridge", Attachment.VETH_BRIDGE),
    ]
