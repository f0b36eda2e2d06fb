"""Methods that are compared: each makes an environment, which is left out if its backend lacks the method."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from nearmetal import api
from nearmetal.api.adhoc.weigh_lifecycle import lifecycle_study
from nearmetal.api.catalog import catalog
from nearmetal.api.estimates import able
from nearmetal.api.measuring import WeighRequest, WeighSettings, weighed
from nearmetal.api.studies import study_text
from nearmetal.api.workload_names import lifecycles, named_lifecycle, named_methods
from nearmetal.cli.plan_text import show_plan
from nearmetal.environments import Criu, Unavailable
from nearmetal.environments.registry import get_backend
from nearmetal.errors import StudyError, UnavailableError, UsageError
from nearmetal.lifecycle import Method
from nearmetal.model.record import JsonValue
from nearmetal.model.study import Attachment, Environment, LifecycleSubject, Load, MoveSubject, Study
from nearmetal.report.tables.answer import absent_environments, absent_sentences
from nearmetal.study_file import load_study, load_text
from nearmetal.subjects.events import restores
from nearmetal.subjects.migrate import MIGRATE, Migrate
from nearmetal.subjects.registry import by_environment, subject_of, without_unable
from nearmetal.testing.fake_host import FakeHost

TEXT = """
name: moved
environments:
  bare: {backend: native, placements: [1x1]}
  vm: {backend: qemu, image: debian-kernel, attachment: veth-bridge, placements: [1x1]}
placements: {1x1: {instances: 1, tasks: 1}}
workloads:
  moved: {subject: migrate, matrix: {method: [precopy, criu, postcopy], memory: [128 MiB, 256 MiB]}}
  boot: {subject: start}
design: {baseline: bare, mode: plain, seed: 1}
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "migration.yaml"
BACKENDS = {name: get_backend(name) for name in ("native", "runc", "qemu", "nspawn")}


def study(text: str = TEXT) -> Study:
    return load_text(text, "s.yaml", None)


def test_an_environment_for_each_method_that_runs_the_other_sweeps_too() -> None:
    made = study()
    assert [(e.name, e.method) for e in made.environments] == [
        (f"{e}-{m}", m) for e in ("bare", "vm") for m in (Method.PRECOPY, Method.CRIU, Method.POSTCOPY)
    ]
    assert [w.name for w in made.workloads] == ["moved-128MiB", "moved-256MiB", "boot"]
    assert made.design.baselines == ("bare-precopy",)
    assert all(e.workloads == () for e in made.environments)
    first = made.workloads[0]
    assert isinstance(first, LifecycleSubject) and first.memory == 128 << 20 and first.method is None


def test_a_key_of_its_own_means_the_same_as_the_matrix() -> None:
    swept = "matrix: {method: [precopy, criu, postcopy], memory: [128 MiB, 256 MiB]}"
    listed = "methods: [precopy, criu, postcopy], matrix: {memory: [128 MiB, 256 MiB]}"
    assert study(TEXT.replace(swept, listed)) == study()


@pytest.mark.usefixtures("every_image")
def test_the_example_compares_three_kinds_of_instance() -> None:
    made = load_study(EXAMPLE, catalog(), seed=1)
    left, said = without_unable(made, BACKENDS)
    assert left.design.baselines == ("process-criu", "guest-offline")
    assert [e.name for e in left.environments] == [
        "process-criu",
        "container-criu",
        *(f"guest-{m}" for m in ("offline", "precopy", "postcopy")),
    ]
    assert len(said) == len(made.environments) - len(left.environments) == 7


@pytest.mark.usefixtures("every_image")
def test_a_plan_has_the_methods_that_each_environment_has(capsys: pytest.CaptureFixture[str]) -> None:
    made = load_study(EXAMPLE, catalog(), seed=1)
    show_plan(made, json=False, blocks=1)
    said = capsys.readouterr().out
    rounds = said.partition("round 1\n")[2]
    assert rounds.count("container-criu/1x1") == rounds.count("guest-postcopy/1x1") == 1
    assert "process-offline/1x1" not in said and "guest-criu/1x1" not in said
    assert "note: guest-criu is left out: qemu has only the methods precopy, offline" in said
    show_plan(made, json=True, blocks=1)
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["left_out"]) == 7 and len(plan["blocks"][0]["trials"]) == 6


SHIPPED = {"layers": 4, "movable": 4, "movable-applications": 6, "migration": 5, "moved-rank": 4}
"""Study files in examples/ that ask what the paper of 2014 measured, and how many environments each has where
everything works."""


@pytest.mark.usefixtures("every_image")
@pytest.mark.parametrize("name", SHIPPED)
def test_what_the_paper_of_2014_measured_can_be_asked(name: str) -> None:
    made, _ = able(load_study(EXAMPLE.parent / f"{name}.yaml", catalog(), seed=1))
    assert len(made.environments) == SHIPPED[name]
    assert all(c.arm != c.baseline for c in made.comparisons())


def test_the_risk_of_a_method_is_said_in_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    risk = "postcopy loses the instance if the connection breaks, or either side fails, while memory is still"
    assert [said[: len(risk)] for said in study().risks] == [risk]
    show_plan(study(), json=False, blocks=1)
    assert f"\nnote: {risk}" in capsys.readouterr().out
    show_plan(study(), json=True, blocks=1)
    assert json.loads(capsys.readouterr().out)["risks"] == list(study().risks)
    assert study(TEXT.replace("[precopy, criu, postcopy]", "[precopy, criu]")).risks == ()


def test_environments_that_do_not_run_the_workload_stay_as_they_are() -> None:
    made = study(TEXT.replace("[1x1]}\n  vm", "[1x1], workloads: [boot]}\n  vm"))
    assert [e.name for e in made.environments] == ["bare", "vm-precopy", "vm-criu", "vm-postcopy"]
    assert made.design.baselines == ("bare",)


def test_each_method_runs_the_workloads_that_have_it() -> None:
    saved = "  saved: {subject: checkpoint, methods: [criu]}\n  boot:"
    made = study(TEXT.replace("  boot:", saved).replace("[precopy, criu, postcopy]", "[precopy]"))
    taken = {e.name: e.workloads for e in made.environments}
    assert taken["bare-criu"] == ("saved", "boot")
    assert taken["bare-precopy"] == ("moved-128MiB", "moved-256MiB", "boot")


def test_methods_that_a_backend_lacks_are_left_out_by_name_and_the_baseline_follows() -> None:
    left, said = without_unable(study(), BACKENDS)
    assert [e.name for e in left.environments] == ["bare-criu", "vm-precopy", "vm-postcopy"]
    assert left.design.baselines == ("bare-criu",)
    assert said["bare-precopy"].startswith("native has only the methods criu, criu-lazy")
    assert said["vm-criu"] == "qemu has only the methods precopy, offline, postcopy, multifd"
    assert [(c.arm, c.baseline) for c in left.comparisons()] == [
        ("vm-precopy/1x1", "bare-criu/1x1"),
        ("vm-postcopy/1x1", "bare-criu/1x1"),
    ]
    again = study().with_arms([a.name for a in left.arms()])
    assert again.design == left.design, "a results directory that is read again has the same baseline"


@pytest.mark.usefixtures("every_image")
def test_each_baseline_is_replaced_by_the_one_with_its_first_method() -> None:
    both = study(TEXT.replace("baseline: bare", "baselines: [bare, vm]"))
    left, _ = without_unable(both, BACKENDS)
    assert left.design.baselines == ("bare-criu", "vm-precopy")
    assert [(c.arm, c.baseline) for c in left.comparisons()] == [
        ("vm-precopy/1x1", "bare-criu/1x1"),
        ("vm-postcopy/1x1", "bare-criu/1x1"),
        ("vm-postcopy/1x1", "vm-precopy/1x1"),
    ]
    assert load_text(study_text(both), "s.yaml", catalog()) == both
    alone = TEXT.replace("baseline: bare", "baselines: [vm, bare]").replace(
        "[precopy, criu, postcopy]", "[criu]"
    )
    with pytest.raises(StudyError, match='nothing is compared with "bare"'):
        load_text(alone, "s.yaml", catalog())


def test_a_baseline_without_any_of_the_methods_is_said() -> None:
    text = TEXT.replace("[precopy, criu, postcopy]", "[precopy, postcopy]")
    with pytest.raises(UnavailableError, match="the baseline bare-precopy has nothing to run: native has"):
        without_unable(study(text), BACKENDS)


def test_a_method_of_the_workload_comes_before_that_of_an_environment() -> None:
    own = MoveSubject(name="m", facts=MIGRATE, method=Method.MULTIFD)
    environment = Environment(name="vm-precopy", backend="qemu", method=Method.PRECOPY)
    assert by_environment(own, environment) == own
    assert environment.family == "vm"


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (
            "  vm:",
            "  bare-criu:",
            '"bare-criu" is the environment that methods of a workload make; rename one',
        ),
        ("backend: native", "backend: namespaces, inside: vm", '"bare" runs inside it'),
    ],
)
def test_environments_that_cannot_become_several(was: str, now: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        study(TEXT.replace(was, now, 1))
    assert any(said in p.what for p in caught.value.problems)


def weigh(*names: str, methods: str = "", lifecycle: str = "migrate") -> Study:
    event = named_lifecycle(lifecycle, 256 << 20)
    chosen = named_methods([methods] if methods else [])
    return lifecycle_study(
        {name: BACKENDS[name] for name in names}, event, chosen, margin=0.03, seed=1, max_time=60.0
    )


@pytest.mark.usefixtures("every_image")
def test_weigh_compares_methods_with_the_first_that_there_is() -> None:
    made = weigh("native", "runc", "qemu", methods="precopy,offline,criu")
    assert len(made.environments) == 9 and made.design.baselines == ("native-criu", "qemu-precopy")
    assert load_text(study_text(made), "s.yaml", catalog()) == made, "the results directory holds it"
    left, said = without_unable(made, BACKENDS)
    assert [e.name for e in left.environments] == ["native-criu", "runc-criu", "qemu-precopy", "qemu-offline"]
    assert len(said) == 5 and left.design.baselines == made.design.baselines
    assert [(c.arm, c.baseline) for c in left.comparisons()] == [
        *((f"{name}/1x1", "native-criu/1x1") for name in ("runc-criu", "qemu-precopy", "qemu-offline")),
        ("qemu-offline/1x1", "qemu-precopy/1x1"),
    ]
    guest = left.environments[2]
    assert guest.guest is not None and guest.guest.memory == 256 << 20
    assert guest.attachment is Attachment.VETH_BRIDGE and guest.image == "debian-kernel"
    assert left.environments[0].image == left.environments[1].image == "host"
    process, container = left.environments[:2]
    assert (process.attachment, container.attachment) == (Attachment.HOST, Attachment.NONE)


def test_weigh_attaches_containers_whose_rank_or_job_moves_to_a_bridge() -> None:
    for words, attachment in (("", Attachment.NONE), (":of=rank", Attachment.VETH_BRIDGE)):
        made = weigh("native", "runc", methods="criu", lifecycle=f"migrate{words}")
        assert [e.attachment for e in made.environments] == [Attachment.HOST, attachment]
        assert not without_unable(made, BACKENDS)[1]
    written = weigh("native", "runc", methods="criu", lifecycle="checkpoint:of=job")
    assert [e.attachment for e in written.environments] == [Attachment.HOST, Attachment.NONE]


def test_weigh_without_methods_takes_all_that_each_backend_offers() -> None:
    made = weigh("native", "nspawn", "qemu")
    offered = {name: Migrate.methods(BACKENDS[name]) for name in ("native", "qemu")}
    assert [e.name for e in made.environments] == [
        *(f"native-{m}" for m in offered["native"]),
        "nspawn",
        *(f"qemu-{m}" for m in offered["qemu"]),
    ]
    _, said = without_unable(made, BACKENDS)
    assert set(said) == {"nspawn"}
    assert said["nspawn"].startswith(
        "its instances (nspawn) cannot be moved while they run: systemd-nspawn has "
    )


def test_auto_is_compared_where_a_method_can_be_chosen_and_only_if_it_is_named() -> None:
    left, said = without_unable(weigh("native", "qemu", methods="auto,criu"), BACKENDS)
    assert [e.name for e in left.environments] == ["native-auto", "native-criu", "qemu-auto"]
    assert set(said) == {"qemu-criu"}
    written, refused = without_unable(weigh("native", methods="criu,auto", lifecycle="checkpoint"), BACKENDS)
    assert [e.name for e in written.environments] == ["native-criu"]
    assert "downtime_limit, which belongs to subject migrate" in refused["native-auto"]
    assert all(Method.AUTO not in Migrate.methods(b) for b in BACKENDS.values())


def test_what_this_machine_or_the_environment_refuses_is_left_out_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking = Unavailable(reason="no soft-dirty bits", remedy="another kernel")
    known = Criu(argv=("criu",), version="4.2", unable={Method.CRIU: lacking})
    monkeypatch.setattr(restores, "find_criu", lambda host: known)
    shared = TEXT.replace("image: debian-kernel", "image: host").replace("baseline: bare", "baseline: vm")
    with pytest.raises(UnavailableError, match=r"vm-precopy has nothing to run: .*virtiofs.*; image:"):
        without_unable(study(shared), BACKENDS, FakeHost())
    with pytest.raises(UnavailableError, match="bare-precopy has nothing to run: native has"):
        without_unable(study(), BACKENDS, FakeHost())
    left, said = without_unable(study(TEXT.replace("baseline: bare", "baseline: vm")), BACKENDS, FakeHost())
    assert [e.name for e in left.environments] == ["vm-precopy", "vm-postcopy"]
    assert said["bare-criu"] == "no soft-dirty bits; another kernel"


def test_weigh_of_one_backend_compares_its_methods() -> None:
    assert weigh("qemu", methods="postcopy,precopy").design.baselines == ("qemu-postcopy",)
    with pytest.raises(UsageError, match="two environments or methods"):
        weigh("native", methods="criu")


def test_keys_of_a_lifecycle_on_the_command_line() -> None:
    event = named_lifecycle("migrate:count=4,load=dirty,dirty_rate=64MiB/s,downtime_limit=100ms", 1 << 20)
    assert (event.count, event.load, event.dirty_rate) == (4, Load.DIRTY, 64 << 20)
    assert isinstance(event, MoveSubject)
    assert (event.downtime_limit, event.memory, event.name) == (0.1, 1 << 20, "migrate")
    assert set(lifecycles()) >= {"checkpoint", "migrate"} and "start" not in lifecycles()
    for name in lifecycles():
        made = named_lifecycle(name, None)
        assert made == made.facts.workload(name=name, facts=made.facts)
        assert subject_of(made).methods(get_backend("native"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lifecycle": "migrat"}, '--lifecycle: unknown "migrat"; did you mean "migrate"?'),
        ({"lifecycle": "start"}, '--lifecycle: unknown "start"'),
        ({"lifecycle": "migrate:foo=1"}, "--lifecycle migrate: no key 'foo'; known: count, of, ranks"),
        ({"lifecycle": "migrate:load=busy"}, '--lifecycle migrate: load: unknown value "busy"'),
        ({"lifecycle": "migrate:load"}, "--lifecycle migrate:load: 'load' is not key=value"),
        ({"lifecycle": "migrate:method=criu"}, "--lifecycle migrate: no key 'method'"),
        ({"lifecycle": "migrate:memory=1MiB", "memory": 1}, "memory is given by its option too"),
        ({"lifecycle": "migrate:working_set=2MiB", "memory": 1}, "working_set is larger than memory"),
        ({"lifecycle": "checkpoint:bandwidth=1MiB/s"}, "--lifecycle checkpoint: no key 'bandwidth'"),
        ({"lifecycle": "migrate", "methods": ["precpy"]}, '"precpy"; did you mean "precopy"?'),
        ({"lifecycle": "migrate", "methods": ["criu", "criu"]}, "--methods: criu is named twice"),
        ({"lifecycle": "migrate", "workloads": ["cg"]}, "--lifecycle measures the instances themselves"),
        ({"lifecycle": "migrate", "ranks": 2}, "does not accept ranks"),
        ({"methods": ["criu"], "workloads": ["cg"]}, "--methods is only for --lifecycle"),
        ({"memory": 1, "workloads": ["cg"]}, "--memory is only for --lifecycle"),
        ({"attachments": ["veth,vath"], "workloads": ["cg"]}, '--attachment: unknown "vath"'),
    ],
)
def test_mistakes_on_the_command_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        weighed(WeighRequest(environments=("native", "runc"), **given))
    assert said in caught.value.what


def test_the_settings_of_weigh_have_the_types_of_a_request() -> None:
    settings, request = get_type_hints(WeighSettings), get_type_hints(WeighRequest)
    assert {"environments": Sequence[str], **settings} == request
    weigh: Any = api.weigh
    with pytest.raises(TypeError, match="workload"):
        weigh("native", "runc", workload=["cg"])


def test_what_was_not_measured_is_listed_in_the_order_of_the_study_with_its_first_reason() -> None:
    arms: dict[str, JsonValue] = {"b/1x1": "no method", "a/1x1": "no root", "b/2x1": "no CPUs"}
    assert list(absent_environments({"not_here": arms}).items()) == [("b", "no method"), ("a", "no root")]


def test_what_was_not_measured_for_one_reason_is_one_sentence() -> None:
    absent = {"a": "no root", "b": "no method", "c": "no root", "d": "no root"}
    assert absent_sentences(absent) == [
        "a, c and d were not measured: no root",
        "b was not measured: no method",
    ]
