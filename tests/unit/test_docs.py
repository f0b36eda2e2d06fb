"""The documentation says what the code does: links, commands, options, errors, messages and examples."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import nearmetal
from nearmetal import errors
from nearmetal.environments import Backend, Tools, Unavailable
from nearmetal.model.capabilities import ENTRY_POINTS
from nearmetal.testing.fake_host import FakeHost

SOURCE = Path(nearmetal.__file__).parent
ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
EXAMPLES = ROOT / "examples"
OWN_PROGRAM = ROOT / "docs" / "guide" / "your-program.md"
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
    nav = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(nav) == sorted(str(p.relative_to(docs)) for p in docs.rglob("*.md"))


# ------------------------------------------------------------------------------------------------------ words

MOST_WORDS = 19_300
"""Words of README and docs/, code blocks and tables included. A word has at least one letter."""


def test_the_documentation_stays_short() -> None:
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    words = [word for page in pages for word in page.read_text().split() if re.search(r"[^\W\d_]", word)]
    assert len(words) <= MOST_WORDS, "say it once, or leave it to --help, --explain and docstrings"


INNER_WORDS = re.compile(
    r"\b(arms?|folds?|folded|seats?|roofs?|slices?|stands?|standing|looks?)\b", re.IGNORECASE
)
PAGES_OF_USERS = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("index", "ten-minutes", "study-file", "errors", "workloads", "benchmarks")
    ),
    *sorted((ROOT / "docs").glob("add-a-*.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]


@pytest.mark.parametrize("page", [pytest.param(p, id=p.name) for p in PAGES_OF_USERS])
def test_pages_of_users_have_no_words_of_the_code(page: Path) -> None:
    """Names in code spans, such as `mode: slices`, are what a user or an author has to type."""
    assert INNER_WORDS.findall(re.sub(r"`[^`]*`", "", prose(page))) == []


# ------------------------------------------------------------------------------------- commands and options


@lru_cache
def command_options() -> dict[str, set[str]]:
    """Options by command, from the command line itself."""
    from typer.main import get_command

    from nearmetal.cli.app import application
    from nearmetal.cli.commands import COMMANDS

    group: Any = get_command(application({c.name for c in COMMANDS}))
    commands: dict[str, Any] = group.commands
    return {name: options_of(c) for name, c in commands.items()} | {
        "": {o for p in group.params for o in p.opts}
    }


def options_of(command: Any) -> set[str]:
    """Of a command and, where it is a group, of all its own."""
    own = {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")}
    return own.union(*(options_of(c) for c in getattr(command, "commands", {}).values()))


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


def typed_words(line: str) -> list[str]:
    """The words of a shell line up to a comment, a pipe or a redirection."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    return list(takewhile(lambda word: not re.fullmatch(r"[|>;&]+", word), lexer))


def shell_commands(page: Path) -> list[list[str]]:
    """The arguments of each line of a page's shell blocks that calls nearmetal."""
    lines = [line for b in blocks(page) if b.language in ("sh", "") for line in b.text.splitlines()]
    return [typed_words(line)[1:] for line in lines if line.startswith("nearmetal ")]


def parse_by_the_command_line(words: list[str]) -> None:
    """Parse arguments as nearmetal does, without running a command. Raises what the parser raises."""
    from typer.main import get_command

    from nearmetal.cli.app import application

    command: Any = get_command(application(words))
    context: Any = None
    name = "nearmetal"
    while True:
        context = command.make_context(name, list(words), parent=context)
        if not hasattr(command, "commands"):
            return
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])


@pytest.mark.parametrize("page", BY_NAME)
def test_shell_commands_parse(page: Path) -> None:
    for words in shell_commands(page):
        try:
            parse_by_the_command_line(words)
        except Exception as error:
            pytest.fail(f"{page.name}: nearmetal {shlex.join(words)}: {error}")


@pytest.mark.parametrize(
    "line",
    [
        "nearmetal weigh native --no-such-option",
        "nearmetal image no-such-command",
        "nearmetal quick --time",
        "nearmetal image build",
    ],
)
def test_a_wrong_shell_command_does_not_parse(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|requires an argument|missing parameter"):
        parse_by_the_command_line(typed_words(line)[1:])


def test_commands_are_found_in_the_pages() -> None:
    """The search above is not blind: it finds commands, options, and stops at '--'."""
    assert ("clean", ["--dry-run"]) in list(calls(ROOT / "docs" / "guide" / "resume-and-clean-up.md"))
    assert ("weigh", ["--mpi", "--ranks"]) in list(calls(OWN_PROGRAM))


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
    """Base by name of NearmetalError and all its subclasses, found in the source without importing it."""
    classes: dict[str, str] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name):
                classes[node.name] = node.bases[0].id
    ours = {"NearmetalError"}
    while more := {name for name, base in classes.items() if base in ours} - ours:
        ours |= more
    return {name: classes[name] for name in ours}


def table_after(head: str) -> list[list[str]]:
    """Rows of the tables of the catalogue whose head begins so."""
    tables = re.findall(r"(?:^\|.*\n)+", prose(ROOT / "docs" / "errors.md"), re.MULTILINE)
    lines = [line for t in tables if t.startswith(head) for line in t.splitlines()[2:]]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def exit_code_of(name: str) -> int:
    own = getattr(errors, name, None)
    while own is None:  # defined in an upper room: its exit code is that of its base
        name = error_classes()[name]
        own = getattr(errors, name, None)
    assert isinstance(own, type) and issubclass(own, errors.NearmetalError)
    return int(own.exit_code)


def test_the_catalogue_lists_every_error_class_with_its_exit_code() -> None:
    told = {row[0].strip("`"): row[1] for row in table_after("| class |")}
    assert {"StudyError", "DiskFullError", "PlacementDiffers"} <= error_classes().keys()
    assert told == {name: str(exit_code_of(name)) for name in error_classes()}


def test_every_exit_code_is_in_the_catalogue() -> None:
    told = [(row[0], row[1]) for row in table_after("| code |")]
    assert told == [(str(code.value), f"`{code.name}`") for code in errors.ExitCode]


def template(node: ast.AST) -> str:
    """A text as it stands in the source, with … for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(v) for v in node.values)
    return "…"


@lru_cache
def source_texts() -> tuple[str, ...]:
    trees = [ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")]
    nodes = (n for t in trees for n in ast.walk(t) if isinstance(n, (ast.Constant, ast.JoinedStr)))
    return tuple(text for text in map(template, nodes) if len(text) > 3)


def messages() -> list[str]:
    return [row[0].strip("`") for row in table_after("| message |")]


def is_said(message: str) -> bool:
    """Whether the parts of a message between its … stand, in this order, in one text of the source."""
    parts = [re.escape(p) for p in message.split("…") if p.strip()]
    pattern = re.compile(".*".join(parts), re.DOTALL)
    return any(pattern.search(t) for t in source_texts())


def test_messages_of_the_catalogue_are_those_of_the_code() -> None:
    assert len(messages()) > 20
    assert not [m for m in messages() if not is_said(m)]


def test_a_message_that_nobody_says_is_noticed() -> None:
    assert not is_said("the … is made of cheese")
    assert not is_said("no complete block … the report is made of cheese")


# ------------------------------------------------------------------------------------- interfaces of backends

ENVIRONMENTS = SOURCE / "environments"


def optional_interfaces() -> dict[str, str]:
    """File below `environments`, by name of each protocol that isinstance() looks for."""
    found = {}
    for path in ENVIRONMENTS.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(d, ast.Name) and d.id == "runtime_checkable" for d in node.decorator_list
            ):
                found[node.name] = str(path.relative_to(ENVIRONMENTS))
    return found


def test_the_optional_interfaces_of_backends_are_in_one_table() -> None:
    page = (ROOT / "docs" / "add-a-backend.md").read_text()
    (table,) = re.findall(r"^\| interface \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = [[re.findall(r"`([\w/.]+)`", cell) for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    listed = {name: file for names, _, (file,) in rows for name in names}
    assert listed == optional_interfaces()


# --------------------------------------------------------------------------------------------------- examples


def sections(text: str) -> dict[str, str]:
    """The top-level sections of a study, as text by key; comment lines between them left out."""
    parts = re.split(r"^(\w+):", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


INVENTORY = "# hosts.yaml"
"""First line of an inventory in a page."""


def first_yaml(page: Path) -> str:
    return next(b.text for b in blocks(page) if b.language == "yaml" and not b.text.startswith(INVENTORY))


@pytest.mark.parametrize("block", [p for p in blocks_of("yaml") if p.values[0].text.startswith(INVENTORY)])
def test_inventories_load(block: Block, tmp_path: Path) -> None:
    from nearmetal.inventory import load_inventory

    (tmp_path / "cluster.conf").write_text("")
    (tmp_path / "hosts.yaml").write_text(block.text)
    assert len(load_inventory(str(tmp_path / "hosts.yaml"), FakeHost()).nodes) > 2


def put_npb(here: Path) -> None:
    """The binaries that the pages name, which is all that is looked for before a run."""
    place = here / "NPB3.4-MPI" / "bin"
    place.mkdir(parents=True)
    for name in ("is", "cg", "mg", "lu"):
        (place / f"{name}.A.x").touch()


@pytest.mark.parametrize(
    "block", [p for p in blocks_of("yaml") if not p.values[0].text.startswith(INVENTORY)]
)
def test_studies_load(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a study (no name) adds its entries to the first study of its page, or of the page on own
    programs if the first of its page is a part too. A design replaces that one. The images of the pages need
    not be built."""
    from nearmetal.api.catalog import catalog
    from nearmetal.images import builtin_names
    from nearmetal.study_file import load_text

    known = catalog()
    names = replace(
        known, no_image=lambda n, *more: None if n in builtin_names() else known.no_image(n, *more)
    )

    put_npb(tmp_path)
    monkeypatch.chdir(tmp_path)
    text, part = block.text, sections(block.text)
    if "name" not in part:
        whole = next(s for page in (block.page, OWN_PROGRAM) if "name" in (s := sections(first_yaml(page))))
        for key, value in part.items():
            new = key == "design" or key not in whole
            whole[key] = value if new else f"{whole[key].rstrip()}\n{value.lstrip(chr(10))}"
        text = "".join(f"{key}:{value}" for key, value in whole.items())
    assert load_text(text, block.page.name, names, seed=1).comparisons()


@pytest.mark.parametrize("part", ["compute", "messages"])
def test_the_parts_of_the_example_load(part: str) -> None:
    from nearmetal.api.catalog import catalog
    from nearmetal.study_file import load_text

    file = EXAMPLES / "boxes" / f"{part}.yaml"
    assert load_text(file.read_text(), str(file), catalog(), seed=1).comparisons()


@pytest.mark.parametrize("block", blocks_of("python"))
def test_python_compiles(block: Block) -> None:
    compile(block.text, f"{block.page.name}", "exec", dont_inherit=True)


def test_the_example_program_prints_what_its_study_reads(capsys: pytest.CaptureFixture[str]) -> None:
    from nearmetal.api.catalog import catalog
    from nearmetal.model.record import Status
    from nearmetal.model.study import CommandWorkload
    from nearmetal.study_file import load_text
    from nearmetal.workloads.command import ResourceUse, parse

    study_text = first_yaml(ROOT / "docs" / "add-a-workload.md")
    program = (EXAMPLES / "solver" / "solve.py").read_text()
    exec(compile(program, "solve.py", "exec"), {"__name__": "__main__"})
    (workload,) = load_text(study_text, "solver.yaml", catalog(), seed=1).workloads
    assert isinstance(workload, CommandWorkload)
    rows = parse(workload, capsys.readouterr().out, ResourceUse(wall=1.0))
    assert [(r.metric, r.status) for r in rows] == [(m, Status.OK) for m in ("wall", "loop", "rate")]
    by_name = {r.metric: r.values[0] for r in rows}
    assert by_name["loop"] * by_name["rate"] == pytest.approx(20_000 * 20, rel=1e-2)


def test_the_example_kernel_fits_its_c_source() -> None:
    from nearmetal.workloads.kernels.contract import Kernel, KernelSetting
    from nearmetal.workloads.parameter import Choices

    module: dict[str, Any] = {}
    exec((EXAMPLES / "broadcast" / "broadcast.py").read_text(), module)
    (kernel,) = module["KERNELS"]
    source = (EXAMPLES / "broadcast" / "broadcast.c").read_text()
    assert isinstance(kernel, Kernel)
    choices = Choices(values={p.name: p.default for p in kernel.parameters})
    setting = KernelSetting(ranks=2, llc_bytes=1 << 25)
    asked = set(re.findall(r'spec_\w+\(spec, "(\w+)"', source))
    assert set(kernel.keys(choices, setting)) == asked
    told = set(re.findall(r'\.metric = "(\w+)"', source))
    assert {m.part for m in kernel.metrics(choices)} == told
    assert re.search(rf'const Kernel {kernel.name}_kernel = {{"{kernel.name}", ', source)


def backend_example() -> tuple[str, dict[str, Any]]:
    """The entry point that the example declares, and its module."""
    package = EXAMPLES / "fixed_layout"
    project = tomllib.loads((package / "pyproject.toml").read_text())
    (point,) = project["project"]["entry-points"][ENTRY_POINTS].items()
    name = point[1].partition(":")[0]
    module: dict[str, Any] = {"__name__": name}
    exec((package / f"{name}.py").read_text(), module)
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
