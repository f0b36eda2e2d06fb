"""What hypervisors did beside guests: told where it is enough to have to do with the cost, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from tests.golden import sample_analysis as sample
from tests.statistical.test_causes import box, study, told

from nearmetal.model.change import replace
from nearmetal.model.environments.guest import Accelerator, GuestSettings, Nic
from nearmetal.model.result import Attribution, Cell, Verdict
from nearmetal.report.tables.emulation import emulation_warnings
from nearmetal.testing.simulate import Spread

QUIET = Spread(instance=0.002, run=0.001)


def guest_cell(
    timed: Mapping[str, float | None], *, nic: Nic = Nic.VIRTIO, overhead: float = 0.3, per_extra: bool = True
) -> Cell:
    """Of a guest whose timed part counted these: for each second of extra time, or as they stand."""

    def counted(extra: float, rng: Random) -> tuple[dict[str, float | None], dict[str, float | None]]:
        factor = extra * rng.uniform(0.95, 1.05) if per_extra else 1.0
        return {k: None if v is None else v * factor for k, v in timed.items()}, {}

    asked = study(box(backend="qemu", guest=GuestSettings(nic=nic)))
    return told(asked, counted, overhead=overhead, spread=QUIET, comm=0.0)


def attribution(cell: Cell) -> Attribution:
    assert cell.attribution is not None
    return cell.attribution


def test_seconds_of_device_threads_are_reported() -> None:
    cell = guest_cell({"cpu": 3.0, "vcpu": 2.5})
    assert cell.verdict is Verdict.SLOWER
    assert "CPU time of its devices' threads: 0." in attribution(cell).sentence
    for little in ({"cpu": 3.0, "vcpu": 2.99}, {"cpu": 3.0, "vcpu": None}, {"vcpu": 1.0}):
        assert "devices" not in attribution(guest_cell(little)).sentence, little


@pytest.mark.parametrize(("nic", "suggested"), [(Nic.E1000, True), (Nic.VIRTIO, False)])
def test_main_reason_of_vm_exits_is_named(nic: Nic, suggested: bool) -> None:
    many = {"exits": 1e6, "io_exits": 1e5, "mmio_exits": 6e5, "halt_exits": 1e4}
    found = attribution(guest_cell(many, nic=nic))
    assert "exits from the guest: " in found.sentence and "most for emulated devices" in found.sentence
    words = found.suggestion.words if found.suggestion is not None else ""
    assert ("nic: virtio" in words) == suggested
    mixed = {"exits": 1e6, "mmio_exits": 4e5, "halt_exits": 4e5}
    assert "exits from the guest: " in (said := attribution(guest_cell(mixed)).sentence)
    assert "most for" not in said


def test_few_exits_and_guests_that_are_not_slower_are_none_of_it() -> None:
    assert "exits" not in attribution(guest_cell({"exits": 1e4, "mmio_exits": 1e4})).sentence
    cell = guest_cell({"exits": 1e9, "cpu": 3.0, "vcpu": 1.0}, overhead=0.0, per_extra=False)
    assert cell.verdict is not Verdict.SLOWER
    assert cell.attribution is None or "exits" not in cell.attribution.sentence


def test_a_real_machine_beside_an_emulated_one_is_not_called_emulation() -> None:
    settings = GuestSettings(accelerator=Accelerator.TCG, accelerated_not="it hangs")
    asked = study(box(backend="qemu", guest=settings))
    turned = replace(asked, design=replace(asked.design, baselines=("box",)))
    cells = [told(s, lambda *_: ({}, {}), overhead=0.3, spread=QUIET, comm=0.0) for s in (asked, turned)]
    assert [(c.environment, c.guest_of) for c in cells] == [("box", ("box",)), ("native", ("box",))]
    assert {c.guest for c in cells} == {"TCG, no KVM: it hangs"}
    plain = sample.analysis()
    floor = replace(plain.noise_floor, cells=())
    (warning,) = emulation_warnings(replace(plain, cells=tuple(cells), noise_floor=floor))
    assert warning.startswith("Warning: box (TCG, no KVM: it hangs) is emulated")
