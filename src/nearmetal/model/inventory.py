"""The machines on which rounds may run, as an inventory lists them. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .keys import SOME_TEXT, ListOf, ValueMistake, key_or, matching, whole

_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_ADDRESS = r"^[A-Za-z0-9_\[:][A-Za-z0-9_.:%\[\]-]{0,253}$"
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
SLURM, LDAP = "slurm", ("ldap://", "ldaps://")
MOST = 10_000
"""Largest number of machines in an inventory."""


@dataclass(frozen=True, kw_only=True)
class InventoryNode:
    """One machine."""

    name: str
    address: str = key_or(
        "",
        matching(_ADDRESS, "the name or address of a machine"),
        "what ssh connects to: a name or an address",
        "10.1.0.2",
        usual="the name of the node",
    )
    user: str = key_or(
        "",
        matching(r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}$", "a user name"),
        "user on that machine",
        "bench",
        usual="ssh's own choice",
    )
    port: int | None = key_or(
        None, whole(1, 65_535), "port of its ssh server", 2222, usual="ssh's own choice"
    )
    groups: tuple[str, ...] = key_or(
        (), ListOf(SOME_TEXT), "sets that the node belongs to, such as partitions", ["fast"]
    )

    @property
    def destination(self) -> str:
        """The destination on the command line of ssh that reaches the machine."""
        at = f"{self.user}@" if self.user else ""
        address = self.address or self.name
        if self.port is None:
            return f"{at}{address}"
        bracketed = f"[{address}]" if ":" in address and not address.startswith("[") else address
        return f"ssh://{at}{bracketed}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The machines of a cluster.

    source: where the list comes from, for messages.
    ssh_config: file for ssh -F; None for the user's own configuration.
    left_out: machines that cannot be used according to the source, with the reason.
    """

    source: str
    nodes: tuple[InventoryNode, ...]
    ssh_config: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)


def is_service(source: str) -> bool:
    """Return whether the source of an inventory is Slurm or LDAP, and not a file. No I/O."""
    return source.startswith(LDAP) or source.partition(":")[0] == SLURM


def expand_names(text: str) -> tuple[str, ...]:
    """Return the names in a text of Slurm's notation: 'n[1-3,07],login' gives n1, n2, n3, n07, login.

    Leading zeros are kept. Several bracket pairs in one name are combined.

    Raises ValueMistake for a text that is not in this notation, and for more than MOST names.
    """
    found: list[str] = []
    for word in _split(text):
        found += _expand(word, text)
        if len(found) > MOST:
            raise ValueMistake(f'"{text[:60]}" names more than {MOST} nodes')
    for name in found:
        if not _NODE.fullmatch(name):
            raise ValueMistake(
                f'"{name[:60]}" is not the name of a node: letters, digits, dot, dash and underscore, not '
                "starting with a dot or dash"
            )
    return tuple(found)


def fold_names(names: Iterable[str]) -> str:
    """Return names in Slurm's notation, sorted: 'login,n[1-3,7]'. The inverse of expand_names()."""
    found: dict[tuple[str, str, int], list[str]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        number = re.search(r"\d{1,9}(?=\D*$)", name)
        if number is None:
            plain.append(name)
        else:
            place = name[: number.start()], name[number.end() :], len(number[0])
            found.setdefault(place, []).append(number[0])
    groups: dict[tuple[str, str, int], list[int]] = {}
    for (before, after, length), texts in found.items():
        padded = length > 1 and any(text.startswith("0") for text in texts)
        groups.setdefault((before, after, length if padded else 0), []).extend(map(int, texts))
    for (before, after, width), numbers in groups.items():
        runs = [[f"{n:0{width}d}" for n in dict.fromkeys(run)] for run in _runs(sorted(numbers))]
        inside = ",".join("-".join(run) for run in runs)
        plain.append(f"{before}{inside}{after}" if inside.isdigit() else f"{before}[{inside}]{after}")
    return ",".join(sorted(plain))


def _split(text: str) -> Sequence[str]:
    """Split a text at the commas outside of brackets."""
    words, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise ValueMistake(f'"{text[:60]}": brackets do not match')
        if character == "," and depth == 0:
            words.append(text[begin:at])
            begin = at + 1
    if depth:
        raise ValueMistake(f'"{text[:60]}": brackets do not match')
    return [word.strip() for word in (*words, text[begin:])]


def _expand(word: str, text: str) -> list[str]:
    before, opened, rest = word.partition("[")
    if not opened:
        return [word]
    inside, _, after = rest.partition("]")
    numbers: list[str] = []
    for part in inside.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None or (found[2] is not None and int(found[2]) < int(found[1])):
            raise ValueMistake(f'"{text[:60]}": "{part[:20]}" is not a number or a range such as 1-16')
        low, high = int(found[1]), int(found[2] or found[1])
        if high - low >= MOST:
            raise ValueMistake(f'"{text[:60]}" names more than {MOST} nodes')
        numbers += [f"{n:0{len(found[1])}d}" for n in range(low, high + 1)]
    tails = _expand(after, text)
    if len(numbers) * len(tails) > MOST:
        raise ValueMistake(f'"{text[:60]}" names more than {MOST} nodes')
    return [f"{before}{number}{tail}" for number in numbers for tail in tails]


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], n
        else:
            runs.append((n, n))
    return runs
