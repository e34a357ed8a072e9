"""The key of a rehearsal that is kept: what is known before it starts, and decides what comes of it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import gonogo
from gonogo.evidence.environment.hardware import Machine
from gonogo.prepare.packages import PackageOverlay
from gonogo.prepare.provided_files import preparation_id
from gonogo.rehearse.cache.reads import Read
from gonogo.rehearse.request import RehearsalRequest

ROOT = Path(gonogo.__file__).resolve().parent
# The rooms that a record comes out of; imports run downward only, so that it is all.
_ROOMS = ("confinement", "evidence", "finding", "rehearse", "virtual")
_CODE = (".py", ".json", ".sh")
# Variables of a terminal, a login or a CI job, which differ from one time to the next. Where a file that was read names
# one, its value counts all the same.
_HARMLESS = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM|TERM_.*|COLORTERM|COLUMNS|LINES|LS_COLORS|LESS.*|PS\d|PROMPT.*|HIST.*|NO_COLOR"
    r"|FORCE_COLOR|CLICOLOR.*|WINDOWID|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|SSH_.*|TMUX.*|STY|VTE_VERSION|ITERM.*|KITTY_.*"
    r"|DBUS_.*|XDG_SESSION.*|XDG_SEAT.*|XDG_VTNR|XDG_RUNTIME_DIR|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_.*|VSCODE_.*"
    r"|GITHUB_.*|RUNNER_.*|ACTIONS_.*|GITLAB_.*|CI_.*|BUILDKITE.*|JENKINS_.*|BUILD_.*|CIRCLE_.*|MAKEFLAGS|MAKELEVEL|MFLAGS"
    r"|HOSTNAME|TMPDIR|GONOGO_.*|PYTEST_.*"
)
# Options: a rehearsal that was over in time would be so with more of it.
_DECIDE_NOTHING = frozenset({"timeout", "keep", "viewers", "ray", "use_cache"})
_MAX_TEXT = 4 << 20
_HOST = re.compile(rb"hostname|HOSTNAME|uname|platform\.node")
_HOST_NAME = "name of this machine"


def key_of(request: RehearsalRequest, stated: Machine, overlay: PackageOverlay) -> str:
    """The name of the command, the options, the machine, the environment and gonogo's own code."""
    told: dict[str, Any] = {
        "cwd": os.getcwd(),
        "options": {name: repr(value) for name, value in vars(request).items() if name not in _DECIDE_NOTHING},
        "machine": msgspec.to_builtins(stated),
        "packages": repr(overlay),
        "prepared": hashlib.sha256(preparation_id(Path.cwd())).hexdigest(),
        "environment": {name: value for name, value in os.environ.items() if not _HARMLESS.fullmatch(name)},
        "handed_on": {one: os.environ.get(one) for one in request.env},
        "python": [sys.executable, sys.version],
        "host": [platform.system(), platform.machine(), os.cpu_count(), _processors(), _memory()],
        "gonogo": [gonogo.__version__, source_digest(_ROOMS)],
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def source_digest(rooms: tuple[str, ...]) -> str:
    """Of gonogo's own code in these rooms: a change in it makes what was kept worthless."""
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in _CODE:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def conditions_named(reads: Iterable[Read], command: Iterable[str]) -> dict[str, str | None]:
    """Of what else counts where it is named: the values of variables, and the host's name."""
    harmless = [name for name in os.environ if len(name) > 1 and _HARMLESS.fullmatch(name)]
    pattern = re.compile(b"|".join([rb"\b" + re.escape(os.fsencode(name)) + rb"\b" for name in harmless]) or b"(?!)")
    found: dict[str, str | None] = {}
    for text in [*_texts(reads), "\0".join(command).encode("utf-8", "surrogateescape")]:
        for match in pattern.finditer(text):
            name = os.fsdecode(match[0])
            found[name] = os.environ.get(name)
        if _HOST.search(text):
            found[_HOST_NAME] = platform.node()
    return found


def conditions_hold(conditions: Mapping[str, str | None]) -> bool:
    """Whether these have the same values now."""
    return all(
        value == (platform.node() if name == _HOST_NAME else os.environ.get(name)) for name, value in conditions.items()
    )


def _texts(reads: Iterable[Read]) -> Iterable[bytes]:
    for read in reads:
        if read.kind == "file" and read.digest and read.size <= _MAX_TEXT:
            try:
                yield Path(read.path).read_bytes()
            except OSError:
                continue
