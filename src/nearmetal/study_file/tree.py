"""Parse YAML 1.2 text into a tree of nodes with positions, within fixed limits. This module does not depend
on the keys of a study.

The tree is built from the parser's events, which arrive one by one. Therefore excessive depth, too many
nodes, tags and aliases are rejected before they cause recursion or use memory. Every scalar remains text. Its
key decides what the text means, so no number is too long and no date is invalid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Mark
from .problems import MAX_BYTES, TOO_LARGE, Path, Problems, clip

if TYPE_CHECKING:
    from ruamel.yaml.events import Event, ScalarEvent

MAX_DEPTH = 16
MAX_NODES = 10_000
MAX_TEXT = 8192  # characters of one scalar
MAX_LINE = 1 << 16  # ruamel scans a line of "!" in quadratic time
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value in a study file.

    mark: its position.
    text: its text, with quotes and escapes resolved.
    plain: whether it is written without quotes.
    """

    mark: Mark
    text: str
    plain: bool

    @property
    def null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class ListNode:
    mark: Mark
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping in a study file.

    mark: its position.
    entries: (position of the key, value) by key, in the order of the file.
    """

    mark: Mark
    entries: dict[str, tuple[Mark, Node]]

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return entry[1] if entry else None


Node = Scalar | ListNode | MapNode
Data = None | str | list["Data"] | dict[str, "Data"]


def plain_data(node: Node) -> Data:
    if isinstance(node, Scalar):
        return None if node.null else node.text
    if isinstance(node, ListNode):
        return [plain_data(i) for i in node.items]
    return {k: plain_data(v) for k, (_, v) in node.entries.items()}


def mark_of(root: Node, path: Path, *, key: bool = False) -> Mark:
    """Return the position of the value at a path, or that of its nearest existing parent.

    key: whether to return the position of the key instead of the value.
    """
    mark, node = root.mark, root
    for at, part in enumerate(path):
        if isinstance(node, MapNode) and isinstance(part, str) and part in node.entries:
            key_mark, node = node.entries[part]
            mark = key_mark if key and at == len(path) - 1 else node.mark
        elif isinstance(node, ListNode) and isinstance(part, int) and 0 <= part < len(node.items):
            node = node.items[part]
            mark = node.mark
        else:
            break
    return mark


@dataclass(frozen=True, kw_only=True)
class Located:
    """A node of a file, with its path in the file.

    problems: receives the mistakes in it.
    """

    node: Node
    path: Path
    problems: Problems

    @property
    def entries(self) -> Mapping[str, tuple[Mark, Node]]:
        """The entries of a mapping, with the positions of their keys; empty for any other node."""
        return self.node.entries if isinstance(self.node, MapNode) else {}

    def get(self, key: str) -> Located | None:
        """Return the value of a key; None if it is missing."""
        entry = self.entries.get(key)
        return (
            None if entry is None else Located(node=entry[1], path=(*self.path, key), problems=self.problems)
        )

    def each(self, section: str) -> Iterator[tuple[str, Located]]:
        """Yield the entries of a section by their keys; none if the section is missing."""
        found = self.get(section)
        for key, (_, node) in (found.entries if found is not None else {}).items():
            yield key, Located(node=node, path=(*self.path, section, key), problems=self.problems)

    def unread(self, *at: str | int) -> bool:
        """Return whether the value of a key has mistakes."""
        return (*self.path, *at) in self.problems.unread

    def mistake(self, at: Path, what: str, *, key: bool = False) -> None:
        """Add a mistake in the value at a path below the node, or in the key of that value."""
        self.problems.add(mark_of(self.node, at, key=key), self.path + at, what)


def read_tree(text: str, problems: Problems) -> MapNode:
    """Return the top-level mapping of a file. Duplicate keys and unusable texts are added to problems; of
    duplicate keys, the first is kept.

    Raises StudyError if the text is not valid YAML or exceeds a limit.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES:
        problems.stop(Mark(1, 1), TOO_LARGE)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_LINE:
            problems.stop(Mark(number, MAX_LINE + 1), f"line longer than {MAX_LINE} characters")
    builder = _Builder(problems)
    try:
        for event in _events(text):
            builder.take(event)
    except RecursionError:
        problems.stop(Mark(1, 1), "nested too deep")
    except _yaml_errors() as e:
        problems.stop(_mark_of_error(e, text, builder.last), f"not readable as YAML: {_reason(e)}")
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.null):
        hint = "; nearmetal init writes one to start from" if problems.noun == "study" else ""
        problems.stop(Mark(1, 1), f"the file is empty{hint}")
    if not isinstance(root, MapNode):
        example = ', such as "name: first"' if problems.noun == "study" else ""
        problems.stop(root.mark, f"{problems.a_noun} is a list of keys with values{example}")
    return root


def _events(text: str) -> Iterator[Event]:
    from ruamel.yaml import YAML

    yield from YAML(typ="safe", pure=True).parse(text)


def _yaml_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that ruamel can raise for invalid text. Besides its own errors, they come from
    int() of %YAML versions, chr() of \\U escapes, decoding of %-escapes in tags, and bugs of ruamel with
    incomplete tokens."""
    from ruamel.yaml.error import YAMLError, YAMLStreamError

    return (
        YAMLError,
        YAMLStreamError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        TypeError,
        AssertionError,
    )


def _mark_of_error(error: Exception, text: str, last: Mark) -> Mark:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return Mark(mark.line + 1, mark.column + 1)
    position = getattr(error, "position", None)  # raised by ruamel's reader for an unprintable character
    if isinstance(position, int):
        return Mark.after(text[:position])
    return last


def _reason(error: Exception) -> str:
    problem = getattr(error, "problem", None)
    if problem:
        context = getattr(error, "context", None)
        return clip(f"{context}: {problem}" if context else str(problem), 200)
    character = getattr(error, "character", None)
    if character is not None:
        code = ord(character) if isinstance(character, str) else int(character)
        return f"character U+{code:04X} is not allowed in a file"
    return clip(str(error).splitlines()[0] if str(error) else type(error).__name__, 200)


class _Builder:
    """Builds the tree from the parser's events.

    root: the finished document; None until it is complete.
    last: position of the last event.
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.root: Node | None = None
        self.last = Mark(1, 1)
        self._open: list[_Open] = []
        self._nodes = 0
        self._documents = 0

    def take(self, event: Event) -> None:
        from ruamel.yaml import events as ev

        mark = Mark(event.start_mark.line + 1, event.start_mark.column + 1)
        self.last = mark
        if isinstance(event, ev.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self.problems.stop(mark, f"a second document (---); one file holds one {self.problems.noun}")
            if event.version is not None and tuple(event.version) != (1, 2):
                self.problems.stop(mark, "files are YAML 1.2; remove the %YAML line")
        elif isinstance(event, ev.NodeEvent):
            self._node(event, mark)
        elif isinstance(event, ev.CollectionEndEvent):
            top = self._open.pop()
            self._put(top.node(self.problems))

    def _node(self, event: Event, mark: Mark) -> None:
        from ruamel.yaml import events as ev

        self._nodes += 1
        if self._nodes > MAX_NODES:
            self.problems.stop(mark, f"more than {MAX_NODES} values, which no {self.problems.noun} has")
        if isinstance(event, ev.AliasEvent) or getattr(event, "anchor", None) is not None:
            self.problems.stop(mark, "anchors (&name) and aliases (*name) are not used; write it out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.problems.stop(mark, f'unknown tag "{clip(str(tag))}"; tags are not used')
        if isinstance(event, ev.ScalarEvent):
            self._put(self._scalar(event, mark))
        else:
            if len(self._open) >= MAX_DEPTH:
                self.problems.stop(mark, f"nested deeper than {MAX_DEPTH}")
            self._open.append(_Open(mark, isinstance(event, ev.MappingStartEvent)))

    def _scalar(self, event: ScalarEvent, mark: Mark) -> Scalar:
        text, plain = str(event.value), event.style in (None, "")
        if len(text) > MAX_TEXT:
            self.problems.add(mark, (), f"text longer than {MAX_TEXT} characters")
            text = text[:MAX_TEXT]
        if "\0" in text or _SURROGATES.search(text):
            self.problems.add(mark, (), "text holds a NUL character or half of a surrogate pair")
            text = _SURROGATES.sub("", text.replace("\0", ""))
        return Scalar(mark=mark, text=text, plain=plain)

    def _put(self, node: Node) -> None:
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node


class _Open:
    """A list or mapping whose end has not been read yet."""

    def __init__(self, mark: Mark, mapping: bool) -> None:
        self.mark, self.mapping = mark, mapping
        self.children: list[Node] = []

    def node(self, problems: Problems) -> Node:
        if not self.mapping:
            return ListNode(mark=self.mark, items=tuple(self.children))
        entries: dict[str, tuple[Mark, Node]] = {}
        for key, value in zip(self.children[::2], self.children[1::2], strict=True):
            if not isinstance(key, Scalar):
                problems.add(key.mark, (), "a key is one word, not a list or a mapping")
            elif key.text in entries:
                line = entries[key.text][0].line
                problems.add(key.mark, (), f'key "{clip(key.text)}" given twice; first on line {line}')
            else:
                if isinstance(value, Scalar) and value.plain and not value.text:
                    value = Scalar(mark=key.mark, text="", plain=True)  # ruamel's mark is the next token's
                entries[key.text] = (key.mark, value)
        return MapNode(mark=self.mark, entries=entries)
