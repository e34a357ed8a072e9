"""Stand-ins for programs that change files: what a script may need of them happens in the session's folder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from gonogo.rehearse.shell.session import ShellSession

# A configuration file is small; weights and data sets are not copied.
_LARGEST_COPY = 16 << 20

_GIT_READS = frozenset({"rev-parse", "describe", "log", "show", "ls-files", "remote", "version", "--version"})
_PIP_READS = frozenset({"list", "show", "freeze", "--version", "-V", "check"})
_FIND_WRITES = ("-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls")


def stand_in_for(session: ShellSession, name: str, words: list[str]) -> int:
    """Do what ``words`` would do, in the session's folder; leave out what can't be done there."""
    stand_in = _STAND_INS.get(name)
    if stand_in is None or not stand_in(session, words):
        session.leave_out([name, *words[1:]])
    return 0


def _real(session: ShellSession, name: str, words: list[str]) -> bool:
    """Replace the process by the real program; False where there is none."""
    path = shutil.which(name, path=session.settings.path)
    if path is None:
        return False
    sys.stdout.flush()
    os.execv(path, words)


def _sed(session: ShellSession, words: list[str]) -> bool:
    in_place = any(
        word.startswith("--in-place") or (word.startswith("-") and not word.startswith("--") and "i" in word)
        for word in words[1:]
    )
    if not in_place:
        return _real(session, "sed", [words[0], *(_as_read(session, word) for word in words[1:])])
    mapped = [_copied(session, word) for word in words[1:]]
    return mapped != words[1:] and _real(session, "sed", [words[0], *mapped])


def _cp(session: ShellSession, words: list[str]) -> bool:
    paths = [word for word in words[1:] if not word.startswith("-")]
    if len(paths) < 2:
        return False
    cwd = os.getcwd()
    *sources, target = paths
    into = os.path.isdir(target) or session.place(target, cwd).is_dir() or target.endswith("/")
    for source in sources:
        read = Path(_as_read(session, source))
        if not read.is_file() or read.stat().st_size > _LARGEST_COPY:
            return False
        place = session.place(os.path.join(target, os.path.basename(source)) if into else target, cwd)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(read, place)
    return True


def _tee(session: ShellSession, words: list[str]) -> bool:
    append = any(word in ("-a", "--append") for word in words[1:])
    places = []
    for word in words[1:]:
        if word.startswith("-"):
            continue
        if word.startswith("/dev/"):
            places.append(Path(word))
            continue
        place = session.place(word, os.getcwd())
        place.parent.mkdir(parents=True, exist_ok=True)
        if append and not place.exists() and os.path.isfile(word) and os.path.getsize(word) <= _LARGEST_COPY:
            shutil.copyfile(word, place)
        places.append(place)
    files = [open(place, "ab" if append else "wb") for place in places]  # noqa: SIM115 - as many as there are words
    while block := os.read(0, 1 << 16):
        os.write(1, block)
        for file in files:
            file.write(block)
    for file in files:
        file.close()
    return True


def _mktemp(session: ShellSession, words: list[str]) -> bool:
    folder = [word for word in words[1:] if word in ("-d", "--directory")]
    return _real(session, "mktemp", [words[0], *folder])  # TMPDIR is the session's


def _git(session: ShellSession, words: list[str]) -> bool:
    subcommand = next((word for word in words[1:] if not word.startswith("-") or word == "--version"), "")
    os.environ["GIT_OPTIONAL_LOCKS"] = "0"
    return subcommand in _GIT_READS and _real(session, "git", words)


def _pip(session: ShellSession, words: list[str]) -> bool:
    if words[1:2] and words[1] in _PIP_READS:
        python = session.settings.python
        os.execv(python, [python, "-m", "pip", *words[1:]])
    return False


def _find(session: ShellSession, words: list[str]) -> bool:
    return not any(word in _FIND_WRITES for word in words) and _real(session, "find", words)


def _if_harmless(name: str, harmless: Callable[[list[str]], bool]) -> Callable[[ShellSession, list[str]], bool]:
    """A stand-in that runs the real program where its arguments only ask for something."""
    return lambda session, words: harmless(words[1:]) and _real(session, name, words)


_IP_CHANGES = frozenset({"set", "add", "del", "delete", "change", "replace", "flush", "append", "netns"})

_STAND_INS: dict[str, Callable[[ShellSession, list[str]], bool]] = {
    "sed": _sed,
    "cp": _cp,
    "tee": _tee,
    "mktemp": _mktemp,
    "git": _git,
    "pip": _pip,
    "pip3": _pip,
    "find": _find,
    "date": _if_harmless("date", lambda words: not any(word.startswith(("-s", "--set")) for word in words)),
    "hostname": _if_harmless("hostname", lambda words: all(word.startswith("-") and word != "-F" for word in words)),
    "ip": _if_harmless("ip", lambda words: not _IP_CHANGES.intersection(words)),
    "ifconfig": _if_harmless("ifconfig", lambda words: len(words) <= 1),
    "gcc": _if_harmless("gcc", lambda words: set(words) <= {"--version", "-v", "-dumpversion", "-dumpmachine"}),
    "nvcc": _if_harmless("nvcc", lambda words: set(words) <= {"--version", "-V"}),
    "shuf": _if_harmless("shuf", lambda words: not any(word.startswith(("-o", "--output")) for word in words)),
    "openssl": _if_harmless("openssl", lambda words: words[:1] == ["rand"] and "-out" not in words),
    "uniq": _if_harmless("uniq", lambda words: sum(not word.startswith("-") for word in words) <= 1),
}


def _as_read(session: ShellSession, word: str) -> str:
    """The session's file where ``word`` names one that the script has written; else the word."""
    if not word or word.startswith("-"):
        return word
    place = session.place(word, os.getcwd())
    return str(place) if place.is_file() else word


def _copied(session: ShellSession, word: str) -> str:
    """The session's copy of the file that ``word`` names; the word where it names no small file."""
    read = _as_read(session, word)
    if read != word or word.startswith("-") or not os.path.isfile(word) or os.path.getsize(word) > _LARGEST_COPY:
        return read
    place = session.place(word, os.getcwd())
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(word, place)
    return str(place)
