"""Ocean models: what is launched, and what their output gives, whole or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.workloads.applications import veros
from nearmetal.workloads.applications.contract import Application, Output, Parsed, Place
from nearmetal.workloads.applications.mitgcm import SECTIONS, Mitgcm
from nearmetal.workloads.applications.veros import Veros
from nearmetal.workloads.parameter import Choices, Value

HERE = Path("/var/tmp/x")
#: The end of a run as MITgcm prints it.
PRINTED = """\
(PID.TID 0000.0001) %MON time_tsnumber                =                    19
(PID.TID 0000.0001) %MON dynstat_theta_mean           =   3.5000000000000E+00
(PID.TID 0000.0001) %MON time_tsnumber                =                    20
(PID.TID 0000.0001) %MON dynstat_theta_mean           =   3.6196000000000E+00
(PID.TID 0000.0001) %MON dynstat_salt_mean            =   3.4717977281685E+01
(PID.TID 0000.0001) %CHECKPOINT        20 0000000020
(PID.TID 0000.0001)   Seconds in section "ALL                    [THE_MODEL_MAIN]":
(PID.TID 0000.0001)           User time:  41.6036746
(PID.TID 0000.0001)         System time:  0.310952995
(PID.TID 0000.0001)     Wall clock time:  42.91028
(PID.TID 0000.0001)          No. starts: 1
(PID.TID 0000.0001)           No. stops: 1
"""
for _name, _wall in (
    ("INITIALISE_FIXED       [THE_MODEL_MAIN]", "0.313156128"),
    ("THE_MAIN_LOOP          [THE_MODEL_MAIN]", "42.596956"),
    ("INITIALISE_VARIA    [THE_MAIN_LOOP]", "1.52493286"),
    ("MAIN LOOP           [THE_MAIN_LOOP]", "41.071898"),
    ("FORWARD_STEP        [THE_MAIN_LOOP]", "41.0"),
    ("THERMODYNAMICS      [FORWARD_STEP]", "13.4484136"),
    ("DYNAMICS            [FORWARD_STEP]", "9.31840849"),
    ("SOLVE_FOR_PRESSURE  [FORWARD_STEP]", "5.40147662"),
    ("BLOCKING_EXCHANGES  [FORWARD_STEP]", "0.157734156"),
    ("DO_THE_MODEL_IO     [FORWARD_STEP]", "1.5"),
    ("DO_WRITE_PICKUP     [FORWARD_STEP]", "0.25"),
):
    PRINTED += f"""\
(PID.TID 0000.0001)   Seconds in section "{_name}":
(PID.TID 0000.0001)           User time:  1.
(PID.TID 0000.0001)         System time:  0.
(PID.TID 0000.0001)     Wall clock time:  {_wall}
(PID.TID 0000.0001)          No. starts: 20
(PID.TID 0000.0001)           No. stops: 20
"""
TOLD = {
    "veros": "1.7.0",
    "steps": 30,
    "run": 42.0,
    "seconds": {"main": 29.0, **dict.fromkeys(veros.SECTIONS, 2.0)},
    "written": 68914000,
    "means": {"temp": 3.07944, "salt": 34.738},
    "current": 0.02385,
    "astray": {"temp": 2e-15, "salt": -4e-15},
}


def place(*, instances: int = 1, tasks: int = 1, memory: int = 1 << 33, storage: Path | None = None) -> Place:
    return Place(nodes=1, instances=instances, tasks=tasks, directory=HERE, storage=storage, memory=memory)


def choices(known: Application, **values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in known.parameters} | values)


def mitgcm(text: str, *, file: bool = True, **values: Value) -> Parsed:
    given = choices(Mitgcm(), executable="/opt/mitgcmuv", run="/data/run", **values)
    output = Output(stdout="" if file else text, files={"STDOUT.0000": text} if file else {})
    return Mitgcm().parse(given, place(), output)


def ocean(told: object, **values: Value) -> Parsed:
    text = told if isinstance(told, str) else json.dumps(told)
    return Veros().parse(choices(Veros(), **values), place(), Output(stdout="", files={"ocean.json": text}))


def values_of(found: Parsed) -> dict[str, float | None]:
    return {m.name: m.value for m in found.metrics}


@pytest.mark.parametrize("file", [True, False])
def test_the_timers_of_mitgcm(file: bool) -> None:
    found = mitgcm(PRINTED, file=file)
    assert values_of(found) == {
        "all": 42.91028,
        "initialise": pytest.approx(1.838088988),
        "forward_step": 41.0,
        "thermodynamics": 13.4484136,
        "dynamics": 9.31840849,
        "pressure": 5.40147662,
        "exchanges": 0.157734156,
        "output": 1.75,
        "steps": pytest.approx(20 / 41),
    }
    assert found.ok and found.facts == {"theta_mean": 3.6196, "salt_mean": 34.717977281685, "time_steps": 20}
    assert found.parts["io"] == 1.75 and found.parts["comm"] == 0.157734156


def test_the_mean_temperature_of_mitgcm_is_held_against_the_wanted_one() -> None:
    assert mitgcm(PRINTED, theta="3.6196").ok
    assert not mitgcm(PRINTED, theta="3.6197").ok and mitgcm(PRINTED, theta="3.6197", tolerance=1e-3).ok
    assert not mitgcm(PRINTED.replace("3.6196", "77.6")).ok
    half = mitgcm(PRINTED[: PRINTED.index("Seconds")])
    assert half.ok is False and "no seconds of section ALL" in half.found
    assert "no mean temperature" in mitgcm("").found


def test_mitgcm_runs_in_a_fresh_copy() -> None:
    known, given = Mitgcm(), choices(Mitgcm(), executable="/opt/mitgcmuv", run="/data/run", mpi="yes")
    launched = known.command(given, place())
    assert launched.fresh and launched.mpi and launched.outputs == ("STDOUT.0000",)
    assert launched.copies == {"/data/run": ".", "/opt/mitgcmuv": "nm-mitgcm"}
    assert launched.argv == (str(HERE / "nm-mitgcm"),)
    assert known.needs(given).programs == () and known.needs(choices(known)).programs == ("mitgcmuv",)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "executable is an absolute path"),
        ({"executable": "/a", "run": "b"}, "run is an absolute path"),
        ({"executable": "/a", "run": "/b", "theta": "warm"}, "theta is a number of degrees"),
    ],
)
def test_options_that_mitgcm_cannot_run_are_refused(values: dict[str, Value], told: str) -> None:
    assert told in (Mitgcm().problem(choices(Mitgcm(), **values), place()) or "")


def test_mitgcm_without_mpi_stays_in_one_instance() -> None:
    given = choices(Mitgcm(), executable="/a", run="/b")
    assert Mitgcm().problem(given, place(tasks=2)) is None
    assert "one instance" in (Mitgcm().problem(given, place(instances=2)) or "")


def test_the_sections_of_veros() -> None:
    found = ocean(TOLD)
    assert values_of(found) == {
        "run": 42.0,
        "main": 29.0,
        "steps": 1.0,
        **{name: 2.0 for name, _ in veros.SECTIONS.values()},
    }
    assert found.ok and found.parts == {"compute": 6.0, "io": 2.0}
    assert found.facts["written"] == 68914000


@pytest.mark.parametrize(
    "change",
    [
        {"astray": {"temp": 1e-6, "salt": 0.0}},
        {"means": {"temp": 3.2, "salt": 34.7}},
        {"current": 0.03},
        {"current": None},
        {"astray": {"temp": 0.0}},
        {"means": None},
    ],
)
def test_a_wrong_ocean_is_not_verified(change: dict[str, object]) -> None:
    assert ocean({**TOLD, **change}).ok is False


def test_another_size_is_held_against_its_own_budget_alone() -> None:
    cold = {**TOLD, "means": {"temp": 8.0, "salt": 34.8}, "current": 0.5}
    assert ocean(cold, nx=18).ok and not ocean(cold).ok


def test_veros_is_launched_offline_with_what_it_needs() -> None:
    known = Veros()
    launched = known.command(choices(known, python="/opt/v/bin/python"), place(storage=Path("/var/tmp/s")))
    assert launched.argv[:2] == ("/opt/v/bin/python", "veros_setup.py")
    assert launched.argv[launched.argv.index("--output") + 1] == "/var/tmp/s"
    assert "class GlobalOcean" in launched.files["veros_setup.py"] and not launched.mpi
    assert known.command(choices(known), place()).argv[-3:-1] == (".", "--result")
    assert "pip install veros" in known.needs(choices(known)).remedy
    assert "takes about" in (known.problem(choices(known), place(memory=1 << 28)) or "")
    assert known.problem(choices(known), place()) is None


def sound(found: Parsed, declared: list[str]) -> None:
    assert [m.name for m in found.metrics] == declared
    assert all((m.value is None) == bool(m.reason) for m in found.metrics)


@given(st.one_of(st.text(max_size=200), st.integers(0, len(PRINTED)).map(lambda n: PRINTED[:n])))
def test_any_output_of_mitgcm_is_read(text: str) -> None:
    sound(mitgcm(text), [*SECTIONS, "steps"])


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "*********", "1,5", "-9.0", "1e999", ""])
def test_broken_numbers_of_mitgcm_are_none(bad: str) -> None:
    found = mitgcm(PRINTED.replace("42.91028", bad))
    assert values_of(found)["all"] is None and found.ok is False
    assert mitgcm(PRINTED.replace("3.6196000000000E+00", bad)).ok is False


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TOLD, "temp", "main"]), inner)
    ),
    max_leaves=12,
)


@given(st.one_of(st.text(max_size=100), JSON.map(json.dumps)))
def test_any_result_of_veros_is_read(text: str) -> None:
    sound(ocean(text), [name for name, _, _ in Veros().metrics(choices(Veros()))])


@given(st.sampled_from(sorted(TOLD)), JSON)
def test_any_part_of_veros_may_be_wrong(key: str, value: object) -> None:
    sound(ocean({**TOLD, key: value}), [name for name, _, _ in Veros().metrics(choices(Veros()))])


def test_a_larger_globe_and_more_steps_take_longer() -> None:
    def seconds(**given: int) -> float:
        return Veros().seconds(Choices(values={p.name: p.default for p in Veros.parameters} | given))

    assert seconds(steps=2, nx=18, ny=10, nz=5) < seconds(steps=30) < seconds(steps=360)
