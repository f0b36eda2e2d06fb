"""What a workload is, code asks the workload itself; few places look at its class."""

import ast
from pathlib import Path

import nearmetal
from nearmetal.model.study import (
    ApplicationWorkload,
    CommandWorkload,
    EventSubject,
    KernelWorkload,
    SubjectFacts,
    Workload,
)

SOURCE = Path(nearmetal.__file__).parent
CLASSES = {"KernelWorkload", "CommandWorkload", "ApplicationWorkload", "EventSubject"}
FIELDS = "reads fields that only one class has"
SELECTS = "the study's workloads of one class, for callers that read its fields"
#: How often the modules of a file or a room may look at the class of a workload at most, and what for. The
#: subjects measure one class each and may do so as they like.
SWITCHES = {
    "analysis/causes/suggestions.py": (1, FIELDS),
    "analysis/roofs.py": (1, FIELDS),
    "api/adhoc/weigh.py": (2, FIELDS),
    "api/studies.py": (1, FIELDS),
    "model/study.py": (4, SELECTS),
    "model/sweep.py": (3, FIELDS),
    "node/survey/programs.py": (1, "only the application itself knows whether mpirun starts it"),
    "report/tables/floors.py": (1, "the kernels know their kind of work, and the model does not know them"),
    "study_file": (11, "each class has keys of its own"),
}


def switches(tree: ast.AST) -> int:
    """How often the code tests whether a workload is of a class: by isinstance, by match, or by its type."""
    found = 0
    for node in ast.walk(tree):
        tested: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            tested = node.args[1:]
        elif isinstance(node, ast.MatchClass):
            tested = [node.cls]
        elif isinstance(node, ast.Compare):
            tested = node.comparators
        named = {getattr(n, "id", getattr(n, "attr", "")) for t in tested for n in ast.walk(t)}
        found += bool(named & CLASSES)
    return found


def test_few_places_look_at_the_class_of_a_workload() -> None:
    counted: dict[str, int] = {}
    for path in SOURCE.rglob("*.py"):
        name = str(path.relative_to(SOURCE))
        place = name if name in SWITCHES else name.partition("/")[0]
        counted[place] = counted.get(place, 0) + switches(ast.parse(path.read_text()))
    del counted["subjects"]
    too_many = {p: n for p, n in counted.items() if n > SWITCHES.get(p, (0, ""))[0]}
    assert not too_many, "ask the workload by a property, or say here why its class matters"


KERNEL = KernelWorkload(name="k", kernel="cg", params={})
COMMAND = CommandWorkload(name="c", argv=("true",))
APPLICATION = ApplicationWorkload(name="a", application="hpcc")
EVENT = EventSubject(
    name="e", facts=SubjectFacts(name="start", metrics=("ready",), quantiles=frozenset({"ready"}))
)
ALL: tuple[Workload, ...] = (KERNEL, COMMAND, APPLICATION, EVENT)


def test_a_workload_is_of_one_sort() -> None:
    assert [(w.sliced, w.program, w.event) for w in ALL] == [
        (True, False, False),
        (False, True, False),
        (False, True, False),
        (False, False, True),
    ]


def test_workload_names_the_program_that_it_runs() -> None:
    assert [w.ran for w in ALL] == ["cg", "", "hpcc", "start"]


def test_how_many_processes_a_workload_starts() -> None:
    assert [w.processes(4) for w in ALL] == [4, 1, 4, 0]
    assert CommandWorkload(name="c", argv=("true",), mpi=True).processes(4) == 4
    assert CommandWorkload(name="c", argv=("true",), per_task=True).processes(4) == 4


def test_programs_have_a_time_limit() -> None:
    assert [getattr(w.limited_to(5.0), "time_limit", None) for w in ALL] == [None, 5.0, 5.0, None]
    assert KERNEL.limited_to(5.0) == KERNEL
    assert EVENT.limited_to(5.0) == EVENT
