"""Chooses the package sources of a build: the mirror of the definition or, if it names none, the sources of
this machine's apt."""

from __future__ import annotations

import re

from ..errors import UnavailableError
from ..host import Host, text_of
from ..model.environments.image import HOST, ImageDefinition

_INDEXES = "$(REPO_URI)|$(RELEASE)|$(ORIGIN)|$(COMPONENT)"
_LIMIT = 30.0


def resolved_suite(host: Host, definition: ImageDefinition) -> str:
    """Return the name of the suite from which an image is built, such as 'bookworm'.

    If the definition's suite is HOST, this is the suite of this machine.

    Raises UnavailableError if this machine has no suite.
    """
    if definition.suite != HOST:
        return definition.suite
    _, suite = _system(host)
    if not suite:
        raise UnavailableError(
            f"image {definition.name}: /etc/os-release names no suite of Debian's kind",
            remedy="name a suite in a definition of your own: suite: trixie",
        )
    return suite


def archive_lines(host: Host, definition: ImageDefinition) -> tuple[str, ...]:
    """Return the last arguments of mmdebstrap: lines of sources.list, or a URI. Empty if mmdebstrap's default
    is to be used."""
    if definition.mirror is not None:
        return (definition.mirror, *definition.sources)
    system, codename = _system(host)
    done = host.run(["apt-get", "indextargets", "--format", _INDEXES, "Created-By: Packages"], timeout=_LIMIT)
    lines = own_archives(done.stdout, system, codename, resolved_suite(host, definition)) if done.ok else ()
    # Additional lines alone would replace mmdebstrap's default.
    return (*(lines or (("",) if definition.sources else ())), *definition.sources)


def own_archives(indexes: str, system: str, codename: str, suite: str) -> tuple[str, ...]:
    """Return lines of sources.list for a suite, from the archives that this machine uses. For the suite of
    this machine, they include its updates.

    indexes: output of `apt-get indextargets` in the format _INDEXES.
    system, codename: distribution and suite of this machine ('debian', 'bookworm').
    suite: suite of the image.
    """
    wanted = {codename: suite}
    if suite == codename:
        wanted |= {f"{codename}-{part}": f"{codename}-{part}" for part in ("updates", "security")}
    found: dict[tuple[str, str], list[str]] = {}
    for line in indexes.splitlines():
        uri, release, origin, component = line.split("|") if line.count("|") == 3 else ("", "", "", "")
        # Archives of other origins may have a suite of the same name. The origin is empty until apt has read
        # the index of an archive.
        if codename and release in wanted and origin.casefold() in ("", system):
            components = found.setdefault((uri, wanted[release]), [])
            if component not in components:
                components.append(component)
    ordered = sorted(found.items(), key=lambda item: (len(item[0][1]), item[0]))
    return tuple(f"deb {uri} {release} {' '.join(parts)}" for (uri, release), parts in ordered)


def _system(host: Host) -> tuple[str, str]:
    form = r'^(ID|VERSION_CODENAME)="?([\w.-]*)"?$'
    found = dict(re.findall(form, text_of(host, "/etc/os-release"), re.MULTILINE))
    return found.get("ID", ""), found.get("VERSION_CODENAME", "")
