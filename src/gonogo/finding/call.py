"""The user's call, stored with the report so that it can suggest the complete next command."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Invocation(msgspec.Struct, frozen=True):
    """A gonogo command line: the command after ``--``, options that the next command accepts too, and files."""

    command: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    own_options: tuple[tuple[str, ...], ...] = ()
    """The rest of what was typed, which only the same command takes, each with its value: ``("--ranks", "0,1")``."""


LIFE_OPTIONS = (
    *("--life", "--resume-on", "--resume-with", "--saves", "--disk", "--signal"),
    *("--convert-with", "--merge-with", "--serve-with"),
)
"""Those of :attr:`Invocation.own_options` that both ``rehearse`` and ``cure`` take."""


def machine_options(
    gpus: str | None = None,
    nodes: int | None = None,
    host_memory: str | None = None,
    environment: object = None,
    with_packages: Sequence[str] = (),
    env: Sequence[str] = (),
) -> tuple[str, ...]:
    """The options that describe the machine, as typed: the next command needs them again."""
    words: list[str] = []
    for name, value in (
        ("--gpus", gpus),
        ("--nodes", nodes),
        ("--host-memory", host_memory),
        ("--environment", environment),
        *(("--with", one) for one in with_packages),
        *(("--env", one) for one in env),
    ):
        if value is not None:
            words += [name, str(value)]
    return tuple(words)
