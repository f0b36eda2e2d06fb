"""What is said about study files to people and editors: schema, explanation, template, docs, built-ins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nearmetal.study_file
from nearmetal.errors import UsageError
from nearmetal.model.study import Attachment, KernelWorkload, Mode, Pages, Transport
from nearmetal.studies import builtin, names
from nearmetal.study_file import SCHEMA_LINE, SCHEMA_NAME, Catalog, explain, json_schema, load_text, template

ROOM = Path(nearmetal.study_file.__file__).parent
DOCS = Path(__file__).parents[3] / "docs" / "study-file.md"


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of every section, with its schema."""
    for section in (schema, *schema["$defs"].values()):
        yield from section["properties"].items()


def resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    name = node.get("$ref", "").rpartition("/")[2]
    return {**schema["$defs"][name], **node} if name else node


def fits(schema: dict[str, Any], node: dict[str, Any], value: object) -> bool:
    """As much of JSON Schema as ours uses; an unknown word fails the test."""
    node = resolved(schema, node)
    known = {
        "$ref", "$defs", "$schema", "title", "description", "examples", "default", "type", "enum", "const",
        "anyOf", "pattern", "minimum", "maximum", "minLength", "minItems", "minProperties", "items",
        "properties",
        "required", "additionalProperties", "patternProperties", "propertyNames",
    }  # fmt: skip
    assert set(node) <= known, set(node) - known
    types: dict[str, tuple[type, ...]] = {
        "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
        "boolean": (bool,),
    }  # fmt: skip
    kinds = node.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, types[k]) for k in kinds):
        return False
    if isinstance(value, bool) and kinds and "boolean" not in kinds:
        return False
    if "enum" in node and value not in node["enum"]:
        return False
    if "const" in node and value != node["const"]:
        return False
    if "anyOf" in node and not any(fits(schema, n, value) for n in node["anyOf"]):
        return False
    if isinstance(value, str) and not re.search(node.get("pattern", ""), value):
        return False
    if isinstance(value, int) and not node.get("minimum", value) <= value <= node.get("maximum", value):
        return False
    if isinstance(value, list):
        return len(value) >= node.get("minItems", 0) and all(
            fits(schema, node.get("items", {}), v) for v in value
        )
    if isinstance(value, dict):
        own, rest = node.get("properties", {}), node.get("additionalProperties", True)
        for expression, inner in node.get("patternProperties", {}).items():
            own = {**own, **{k: inner for k in value if re.search(expression, k)}}
        if rest is False and not set(value) <= set(own):
            return False
        if not set(node.get("required", [])) <= set(value):
            return False
        return all(
            fits(schema, own[k], v) if k in own else rest is True or fits(schema, rest, v)
            for k, v in value.items()
        )
    return True


def yaml(text: str) -> object:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(text)


def test_every_key_is_described_with_an_example_that_fits(catalog: Catalog) -> None:
    schema = json_schema(catalog)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    seen = 0
    for key, node in properties(schema):
        assert node.get("description"), key
        assert node.get("examples"), key
        if key not in ("environments", "placements", "workloads", "design"):
            for value in [*node["examples"], *([node["default"]] if "default" in node else [])]:
                assert fits(schema, node, value), (key, value, node)
        seen += 1
    assert seen > 60


@pytest.mark.parametrize("name", [*names(), "template"])
def test_our_own_studies_fit_the_schema(catalog: Catalog, name: str) -> None:
    schema = json_schema(catalog)
    text = template(catalog) if name == "template" else builtin(name)
    study = yaml(text)
    assert fits(schema, schema, study)
    assert isinstance(study, dict)
    for section, key, wrong in (
        ("design", "margin", 3),
        ("design", "margin", "3"),
        ("design", "margn", "3 %"),
        ("workloads", "ep", {"kernel": "ep", "class": "C"}),
        ("workloads", "ep", {"kernel": "ep", "size": "S"}),
        ("workloads", "ep", {"kernel": "epp"}),
        ("environments", "native", {"backend": "natve"}),
        ("environments", "native", {}),
    ):
        assert not fits(schema, schema, {**study, section: {**study[section], key: wrong}}), (
            section,
            key,
            wrong,
        )
    assert not fits(schema, schema, {k: v for k, v in study.items() if k != "design"})


def test_the_template_is_a_whole_study_that_names_the_schema(catalog: Catalog) -> None:
    text = template(catalog)
    assert text.startswith(f"{SCHEMA_LINE}\n")
    assert SCHEMA_LINE.endswith(f"./{SCHEMA_NAME}")
    study = load_text(text, "first.yaml", catalog, seed=1)
    quick = load_text(builtin("quick"), "quick", catalog, seed=1)
    assert study.workloads == quick.workloads
    assert {e.backend for e in study.environments} == {"native", "namespaces"}


def test_the_program_in_the_template_needs_only_its_comment_marks_removed(catalog: Catalog) -> None:
    text = re.sub(r"(?m)^  # (lammps:|  )(.*)$", r"  \1\2", template(catalog).partition("  # Kernels")[0])
    text += template(catalog)[template(catalog).index("\ndesign:") :]
    assert "lammps" in [w.name for w in load_text(text, "first.yaml", catalog, seed=1).workloads]


def test_the_explanation_holds_every_key_and_unit(catalog: Catalog) -> None:
    text = explain()
    words = set(text.split())
    for key, _ in properties(json_schema(replace(catalog, kernels={}))):
        assert key in words, key
    for unit in ("ms,", "MiB,", "GiB/s,", "%,", "M,"):
        assert unit in words
    assert all(len(line) <= 100 for line in text.splitlines() if not line.startswith("  rate"))
    assert "elements" in explain(catalog)


def test_the_docs_name_every_key(catalog: Catalog) -> None:
    named = set(re.findall(r"`(\w+)`", DOCS.read_text(encoding="utf-8")))
    schema = json_schema(replace(catalog, kernels={}))
    assert {key for key, _ in properties(schema)} - named == set()


def test_the_docs_show_a_part_of_the_explanation_as_it_is() -> None:
    (part,) = re.findall(r"```text\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert part in explain()


def test_the_examples_of_the_docs_load(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = tmp_path / "NPB3.4-MPI" / "bin"
    binaries.mkdir(parents=True)
    for name in ("is", "cg", "mg", "lu"):
        (binaries / f"{name}.A.x").touch()
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    whole = [b for b in blocks if b.startswith(("#", "name:"))]
    parts = [b for b in blocks if b not in whole]
    assert whole and parts
    for block in whole:
        load_text(block, "docs", catalog, seed=1)
    frame = "name: a\n{}{}{}{}"
    rest = {
        "environments": "environments: {native: {backend: native}}\n",
        "placements": "placements: {1x2: {instances: 1, tasks: 2}}\n",
        "workloads": "workloads: {ep: {kernel: ep}}\n",
        "design": "design: {baseline: native}\n",
    }
    for block in parts:
        load_text(
            frame.format(*(block if block.startswith(k) else v for k, v in rest.items())),
            "docs",
            catalog,
            seed=1,
        )


def test_quick_is_the_study_that_was_asked_for(catalog: Catalog) -> None:
    study = load_text(builtin("quick"), "quick", catalog, seed=1)
    assert [a.name for a in study.arms()] == [
        "native/1x2",
        "native-tcp/1x2",
        "namespaces/1x2",
        "namespaces/2x1",
    ]
    assert [a.transport for a in study.arms()] == [Transport.SHM, Transport.TCP, Transport.SHM, Transport.TCP]
    assert study.environments[1].attachment is Attachment.LOOPBACK
    assert study.environments[2].attachment is Attachment.VETH_BRIDGE
    assert [(c.arm, c.baseline) for c in study.comparisons()] == [
        ("native-tcp/1x2", "native/1x2"),
        ("namespaces/1x2", "native/1x2"),
        ("namespaces/2x1", "native/1x2"),
        ("namespaces/2x1", "native-tcp/1x2"),
    ]
    assert [w.name for w in study.workloads] == [
        "stream-2m", "stream-2m-4k", "stream-big", "ep", "cg", "is", "latency", "bandwidth", "start"
    ]  # fmt: skip
    small = study.workloads[1]
    assert isinstance(small, KernelWorkload)
    assert (small.params["elements"], small.pages, small.metrics) == (2_000_000, Pages.SMALL, ("triad",))
    design = study.design
    assert (design.margin, design.mode, design.slices, design.max_time) == (0.03, Mode.SLICES, None, 90.0)
    assert design.primary == (), "exploratory"


def test_calibrate_plants_what_it_names(catalog: Catalog) -> None:
    study = load_text(builtin("calibrate"), "calibrate", catalog, seed=1)
    planted = {e.name: e.extra_work for e in study.environments}
    assert planted == {
        "native": 0, "handicap-0": 0, "handicap-3": 0.03, "handicap-10": 0.1
    }  # fmt: skip
    assert study.design.margin == 0.01
    assert all(c.baseline == "native/1x2" for c in study.comparisons())


def test_built_in_studies_by_name() -> None:
    assert names() == ("calibrate", "calibrate-quota", "quick", "quick-one-cpu")
    for name in names():
        assert builtin(name).startswith(SCHEMA_LINE)
    with pytest.raises(UsageError, match="no built-in study"):
        builtin("../errors")


def test_pydantic_and_ruamel_come_in_only_where_a_file_is_read() -> None:
    """They cost 80 ms; `nearmetal --help` and the run loop import this room."""
    for path in ROOM.glob("*.py"):
        if path.name == "fields.py":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in ("pydantic", "ruamel"), path.name
                imported = {node.module or "", *(a.name for a in node.names)}
                assert not imported & {"sections", "fields"}, path.name
            elif isinstance(node, ast.Import):
                assert all(a.name.partition(".")[0] not in ("pydantic", "ruamel") for a in node.names), (
                    path.name
                )
