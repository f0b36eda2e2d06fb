"""What applications tell of how they ran: compared between the arms, and shown beside the figures."""

from __future__ import annotations

from collections.abc import Mapping

from nearmetal.model.record import Fold, JsonValue, Status, TrialRecord
from nearmetal.report.record_index import facts_texts
from nearmetal.run.audit import application_facts, served_differently


def trial(arm: str, **facts: Mapping[str, JsonValue]) -> TrialRecord:
    return TrialRecord(
        run="r",
        trial=f"0.{arm}",
        block=0,
        attempt=1,
        arm=arm,
        aa=False,
        position=0,
        begin=0.0,
        end=1.0,
        fold=Fold.MEDIAN,
        status=Status.OK,
        reason="",
        rows=(),
        facts=facts,
    )


CACHE, DISK = "the page cache", "the device"


def test_words_are_compared_and_figures_are_not() -> None:
    records = [
        trial("native", fio={"meets": DISK, "size": 7, "version": "fio-3.33"}),
        trial("lxc", fio={"meets": CACHE, "size": 8, "version": "fio-3.33"}),
    ]
    said = application_facts(records)
    assert said["native"] == {"fio: meets": DISK, "fio: version": "fio-3.33"}
    (sentence,) = served_differently(said)
    assert sentence == ("fio differs between the environments: native: the device; lxc: the page cache")


def test_equal_storage_of_both_sides_is_not_reported() -> None:
    same = [trial("native", fio={"meets": DISK}, bonnie={"meets": CACHE}), trial("lxc", fio={"meets": DISK})]
    same.append(trial("lxc", bonnie={"meets": CACHE}))
    assert served_differently(application_facts(same)) == ()
    assert served_differently(application_facts([trial("native"), trial("lxc")])) == ()


def test_facts_of_several_trials_in_words() -> None:
    trials = [
        trial("lxc", blast={"hits": 3, "by_rank": {"0": 1}, "version": "2.12"}),
        trial("lxc", blast={"hits": 3, "by_rank": {"0": 2}, "version": "2.12"}),
        trial("lxc", other={"hits": 4}),
    ]
    assert facts_texts(trials, "blast") == (
        "hits 3",
        'by rank {"0": 1} (and 1 other values)',
        "version 2.12",
    )
    assert facts_texts(trials, "hpl") == ()
