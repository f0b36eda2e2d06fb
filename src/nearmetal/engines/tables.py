"""Engines that are described by a table: the words of their commands, and regular expressions that parse
their output. One job is submitted for each worker."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files

from ..errors import RunError, UnavailableError
from ..host import Host
from .contract import EXTRA, SECONDS, Job, State, ask, extra_words

TABLE = "tables.yaml"


@dataclass(frozen=True, kw_only=True)
class TableEngine:
    """An engine of the table. Its fields are explained at the top of tables.yaml.

    submitting, asking, ending: values of the keys `submit`, `states` and `cancel`, whose names are taken by
        the methods.
    """

    submitting: Sequence[str]
    words: Sequence[str]
    script: bool
    limit: Sequence[str]
    id: str
    submitted: str
    asking: Sequence[str]
    state: str
    waiting: Sequence[str]
    running: Sequence[str]
    ended: Sequence[str]
    gone: str
    ending: Sequence[str]
    options: Mapping[str, str] = field(default_factory=lambda: EXTRA)

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        program = self.submitting[0]
        if host.which(program) is None:
            raise UnavailableError(f"no {program} here", remedy="run this where its jobs are submitted")
        limit = self.limit if job.minutes else []
        ids: list[str] = []
        for number in range(1, job.workers + 1):
            known = {
                "name": job.name,
                "directory": str(job.directory),
                "log": f"{job.logs}/{number}.out",
                "cpus": str(job.cpus),
                "minutes": str(job.minutes),
                "seconds": str(job.minutes * 60),
                "hms": f"{job.minutes // 60}:{job.minutes % 60:02d}:00",
                "command": shlex.join(job.argv),
            }
            known["limit"] = "".join(limit).format(**known)
            tokens = self.words if any("{limit}" in word for word in self.words) else (*limit, *self.words)
            own = [word for token in tokens for word in _filled(token, known, job.argv)]
            argv = [*self.submitting, *extra_words(options), *own]
            try:
                done = ask(host, argv, stdin=job.script() if self.script else None)
                found = re.search(self.submitted.format(id=self.id), done.stdout, re.MULTILINE | re.ASCII)
                if found is None:
                    raise RunError(f"{program} printed no number of a job: {done.stdout.strip()!r}")
            except RunError:
                self.cancel(host, ids, options)
                raise
            ids.append(found[1])
        return tuple(ids)

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        return {identity: self._state(host, identity) for identity in ids}

    def _state(self, host: Host, identity: str) -> State:
        argv = [word.format(id=identity) for word in self.asking]
        done = host.run(argv, timeout=SECONDS)
        expression = self.state.replace("{id}", re.escape(identity))
        found = re.search(expression, done.stdout, re.MULTILINE) if done.ok else None
        if found is None:
            said = done.stderr + done.stdout
            gone = re.search(self.gone, said) is not None if self.gone else done.ok
            return State.ENDED if gone else State.UNKNOWN
        words = {State.WAITING: self.waiting, State.RUNNING: self.running, State.ENDED: self.ended}
        return next((state for state, known in words.items() if found[1] in known), State.UNKNOWN)

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        for identity in ids:
            host.run([word.format(id=identity) for word in self.ending], timeout=SECONDS)


def _filled(token: str, known: Mapping[str, str], argv: Sequence[str]) -> Sequence[str]:
    """Return the words of a command that a token of the table stands for.

    known: values of the placeholders, by name.
    argv: command of a worker, for the token '{argv}'.
    """
    return argv if token == "{argv}" else (token.format(**known),)


def table_engine(name: str) -> TableEngine:
    """Return an engine of the table. Raises KeyError for an unknown name."""
    from ruamel.yaml import YAML

    known = YAML(typ="safe").load((files(__package__) / TABLE).read_text())[name]
    names = {"submit": "submitting", "states": "asking", "cancel": "ending"}
    return TableEngine(**{names.get(key, key): value for key, value in known.items()})


flux, lsf, oar, pbs, sge = (partial(table_engine, name) for name in ("flux", "lsf", "oar", "pbs", "sge"))
