"""The documentation says what the code does: links, commands, options, errors, messages and examples."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import nearmetal
from nearmetal import errors
from nearmetal.environments import Backend, Tools, Unavailable
from nearmetal.environments.registry import GROUP
from nearmetal.testing.fake_host import FakeHost

SOURCE = Path(nearmetal.__file__).parent
ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
BY_NAME = [pytest.param(p, id=p.name) for p in PAGES]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


@lru_cache
def blocks(page: Path) -> tuple[Block, ...]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return tuple(Block(page, language, text) for language, text in found)


def blocks_of(language: str) -> list[Any]:
    return [
        pytest.param(b, id=f"{b.page.stem}-{i}")
        for page in PAGES
        for i, b in enumerate(blocks(page))
        if b.language == language
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


# ------------------------------------------------------------------------------------------------------ links


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and mkdocs make them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


@pytest.mark.parametrize("page", BY_NAME)
def test_relative_links_resolve(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}: no such heading"


def test_the_site_names_every_page_and_no_other() -> None:
    nav = re.findall(r"^  - [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(nav) == sorted(p.name for p in (ROOT / "docs").glob("*.md"))


# ------------------------------------------------------------------------------------- commands and options


@lru_cache
def command_options() -> dict[str, set[str]]:
    """Options by command, from the command line itself."""
    from typer.main import get_command

    from nearmetal.cli.app import app

    group: Any = get_command(app)
    commands: dict[str, Any] = group.commands
    return {
        name: {o for p in c.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")}
        for name, c in commands.items()
    } | {"": {o for p in group.params for o in p.opts}}


def calls(page: Path) -> Iterator[tuple[str, list[str]]]:
    """(command, options in front of a bare '--') of every `nearmetal ...` in code, spans and fenced lines."""
    lines = [line for b in blocks(page) if b.language in ("sh", "") for line in b.text.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", prose(page))
    for text in (*lines, *spans):
        for call in re.findall(r"(?:^|[\s|;(/])nearmetal ([a-z][a-z-]*(?: [^|;`#>]*)?)", text):
            words = call.split()
            head = words[: words.index("--")] if "--" in words else words
            yield words[0], [w.partition("=")[0] for w in head if re.match(r"--?[a-z]", w)]


@pytest.mark.parametrize("page", BY_NAME)
def test_commands_and_options_exist(page: Path) -> None:
    known = command_options()
    for command, options in calls(page):
        assert command in known, f"{page.name}: nearmetal {command} is no command"
        for option in options:
            assert option in known[command] | {"-h", "--help"}, f"{page.name}: {command} has no {option}"


def test_commands_are_found_in_the_pages() -> None:
    """The search above is not blind: it finds commands, options, and stops at '--'."""
    found = list(calls(ROOT / "docs" / "guide.md"))
    assert ("clean", ["--dry-run"]) in found
    assert ("weigh", ["--mpi", "--ranks"]) in found


def test_every_command_is_documented() -> None:
    told = {command for command, _ in calls(ROOT / "docs" / "architecture.md")}
    assert command_options().keys() - {""} <= told


def test_options_in_running_text_exist() -> None:
    """A `--option` by itself in prose belongs to some command of ours."""
    every = {o for options in command_options().values() for o in options}
    for page in PAGES:
        for option in re.findall(r"`(--[a-z-]+)(?: [^`]*)?`", prose(page)):
            assert option in every, f"{page.name}: no command has {option}"


# ----------------------------------------------------------------------------------------------------- errors


@lru_cache
def error_classes() -> dict[str, str]:
    """Names of all subclasses of NearmetalError in the source with the text of their base, found without
    importing anything."""
    classes: dict[str, str] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                classes |= {node.name: b.id for b in node.bases if isinstance(b, ast.Name)}
    ours = {"NearmetalError"}
    while more := {name for name, base in classes.items() if base in ours} - ours:
        ours |= more
    return {name: classes.get(name, "") for name in ours}


def table_rows(page: Path) -> list[list[str]]:
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in prose(page).splitlines()
        if line.startswith("|")
    ]


def exit_code_of(name: str) -> int:
    own = getattr(errors, name, None)
    while own is None:  # defined in an upper room: its exit code is that of its base
        name = error_classes()[name]
        own = getattr(errors, name, None)
    assert isinstance(own, type) and issubclass(own, errors.NearmetalError)
    return int(own.exit_code)


def test_every_error_class_stands_in_the_catalogue_with_its_exit_code() -> None:
    told = {row[0]: row[1] for row in table_rows(ROOT / "docs" / "errors.md") if len(row) == 3}
    assert {"NearmetalError", "StudyError", "DiskFullError", "PlacementDiffers"} <= error_classes().keys()
    for name in error_classes():
        assert told.get(f"`{name}`") == str(exit_code_of(name)), name
    listed = {c.strip("`") for c in told if re.fullmatch(r"`\w+(Error|Differs)`", c)}
    assert listed == error_classes().keys()


def test_every_exit_code_stands_in_the_catalogue() -> None:
    told = {(row[0], row[1]) for row in table_rows(ROOT / "docs" / "errors.md")}
    for code in errors.ExitCode:
        assert (str(code.value), f"`{code.name}`") in told


def template(node: ast.AST) -> str:
    """A text as it stands in the source, with … for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(v) for v in node.values)
    return "…"


@lru_cache
def source_texts() -> tuple[str, ...]:
    texts: list[str] = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Constant, ast.JoinedStr)):
                texts.append(template(node))
    return tuple(t for t in texts if len(t) > 3)


def messages() -> list[str]:
    """First cells of the tables of messages: those whose head says so."""
    found: list[str] = []
    inside = False
    for line in prose(ROOT / "docs" / "errors.md").splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith("| message |"):
            inside = True
        elif inside and (span := re.match(r"\| `([^`]+)` \|", line)):
            found.append(span[1])
    return found


def is_said(message: str) -> bool:
    """Whether the parts of a message between its … stand, in this order, in one text of the source; parts that
    are handed over apart (behind a ';') may stand in a text of their own."""
    parts = [re.escape(p) for p in message.split("…") if len(p.strip()) > 1]
    whole = re.compile(".*".join(parts), re.DOTALL)
    if any(whole.search(t) for t in source_texts()):
        return True
    return all(any(re.search(p.removeprefix("; "), t) for t in source_texts()) for p in parts) and len(parts) == 1


def test_messages_of_the_catalogue_are_those_of_the_code() -> None:
    assert len(messages()) > 40
    assert not [m for m in messages() if not is_said(m)]


def test_a_message_that_nobody_says_is_noticed() -> None:
    assert not is_said("the … is made of cheese")
    assert not is_said("no complete block … the report is made of cheese")


# --------------------------------------------------------------------------------------------------- examples


@pytest.mark.parametrize("block", blocks_of("yaml"))
def test_studies_load(block: Block) -> None:
    from nearmetal.cli.common import catalog
    from nearmetal.study_file import load_text

    study = load_text(block.text, f"{block.page.name}", catalog(), seed=1)
    assert study.comparisons()


@pytest.mark.parametrize("block", blocks_of("python"))
def test_python_compiles(block: Block) -> None:
    compile(block.text, f"{block.page.name}", "exec", dont_inherit=True)


def backend_example() -> tuple[str, dict[str, Any]]:
    """The entry point that the page declares, and the module that it shows."""
    page = ROOT / "docs" / "add-a-backend.md"
    project = tomllib.loads(next(b.text for b in blocks(page) if b.language == "toml"))
    (point,) = project["project"]["entry-points"][GROUP].items()
    module: dict[str, Any] = {"__name__": point[1].partition(":")[0]}
    exec(next(b.text for b in blocks(page) if b.language == "python"), module)
    return point[0], {**module, "entry": module[point[1].partition(":")[2]]}


def test_the_example_backend_keeps_the_contract() -> None:
    name, module = backend_example()
    backend = module["entry"]()
    assert backend.name == name
    for member in ("check", "start"):
        wanted = inspect.signature(getattr(Backend, member))
        given = inspect.signature(getattr(module["entry"], member))
        assert list(given.parameters) == list(wanted.parameters), member


def test_the_example_backend_says_what_is_missing(tmp_path: Path) -> None:
    _, module = backend_example()
    tools = Tools(directory=tmp_path)
    here = {tools / name: tools / name for name in ("nm-box", "nm-init")}
    answer = module["entry"]().check(FakeHost(programs=here, missing=("setarch",)), tools)
    assert isinstance(answer, Unavailable)
    assert "setarch" in answer.reason and answer.remedy == module["REMEDY"]
