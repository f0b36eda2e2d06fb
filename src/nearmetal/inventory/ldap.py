"""Nodes of an LDAP directory: entries of the class ipHost (RFC 2307), read by the package ldap3."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import RunError, UnavailableError, UsageError
from ..model.inventory import MOST, Inventory, InventoryNode, expand_names

FILTER = "(objectClass=ipHost)"
SECONDS = 20
PAGE = 500
_ADDRESS = re.compile(r"[A-Za-z0-9.:%_-]{1,254}")


def from_ldap(url: str) -> Inventory:
    """Return the hosts of an LDAP directory, read without a password.

    url: ldap://HOST[:PORT]/BASE[??SCOPE?FILTER] (RFC 4516), such as
        ldap://dir.example/ou=hosts,dc=example??sub?(cn=node*). Without a filter, entries of the class ipHost
        are returned.

    Raises UsageError for an unusable URL or an entry without a usable name, UnavailableError without the
    package ldap3, and RunError if the server does not answer or refuses.
    """
    server, base, scope, wanted = parse_url(url)
    try:
        import ldap3
        from ldap3.core.exceptions import LDAPException
    except ImportError as e:
        raise UnavailableError(
            "nodes of an LDAP directory need the package ldap3",
            where=url,
            remedy="pip install nearmetal[ldap]",
        ) from e
    try:
        with ldap3.Connection(
            ldap3.Server(server, connect_timeout=SECONDS),
            auto_bind=True,
            read_only=True,
            receive_timeout=SECONDS,
            raise_exceptions=True,
        ) as connection:
            found = connection.extend.standard.paged_search(
                search_base=base,
                search_filter=wanted,
                search_scope={"base": ldap3.BASE, "one": ldap3.LEVEL, "sub": ldap3.SUBTREE}[scope],
                attributes=["cn", "ipHostNumber"],
                paged_size=PAGE,
                generator=True,
            )
            entries = [e["attributes"] for e in found if e.get("type") == "searchResEntry"]
    except LDAPException as e:
        raise RunError(
            f"the LDAP server returned no nodes: {str(e).partition(' - None')[0]}",
            where=url,
            remedy=f"try: ldapsearch -x -H {server} -b {base}",
        ) from e
    return Inventory(source=url, nodes=nodes_of(entries, url))


def parse_url(url: str) -> tuple[str, str, str, str]:
    """Return server, base, scope and filter of an LDAP URL. Raises UsageError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise UsageError(f"not the address of an LDAP server: {e}", where=url) from e
    base = unquote(parts.path.lstrip("/"))
    words = [unquote(word) for word in parts.query.split("?")]
    scope, wanted = (words[1] if len(words) > 1 else "") or "sub", "?".join(words[2:]) or FILTER
    if not parts.hostname or not base or scope not in ("base", "one", "sub"):
        raise UsageError(
            "not the URL of a place in an LDAP directory",
            where=url,
            remedy="write ldap://HOST/BASE, such as ldap://dir.example/ou=hosts,dc=example",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}", base, scope, wanted


def nodes_of(entries: Iterable[Mapping[str, Any]], url: str) -> tuple[InventoryNode, ...]:
    """Return the nodes of LDAP entries, sorted by name.

    Raises UsageError for an entry without a usable name, and for more than MOST entries.
    """
    found: dict[str, InventoryNode] = {}
    for entry in entries:
        names, addresses = _texts(entry.get("cn")), _texts(entry.get("ipHostNumber"))
        try:
            (name,) = expand_names(names[0]) if names else ("",)
        except ValueError:  # no name, or a set of several
            name = ""
        if not name:
            raise UsageError(f"an entry has no usable name in cn: {names[:1]}", where=url)
        address = next((a for a in addresses if _ADDRESS.fullmatch(a)), "")
        found.setdefault(name, InventoryNode(name=name, address=address))
        if len(found) > MOST:
            raise UsageError(f"more than {MOST} entries", where=url, remedy="write a filter into the URL")
    return tuple(found[name] for name in sorted(found))


def _texts(value: object) -> Sequence[str]:
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)
