"""Scripts that a launch script runs or sources, and the text that it evals: changed like the first one."""

from __future__ import annotations

import os
import sys

from gonogo.rehearse.shell.rewrite import Unreadable, rewritten
from gonogo.rehearse.shell.session import MOST_NESTED, ShellSession

_OPTIONS_WITH_VALUE = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
# Folders of the training machine's own software, which another machine need not have.
_OF_THE_MACHINE = ("/usr/", "/opt/", "/etc/")


def run_shell(session: ShellSession, words: list[str]) -> int:
    """Replace the process by bash, which runs the changed script; answers a status only where it can't."""
    depth = int(os.environ.get("GONOGO_DEPTH", "0")) + 1
    if depth > MOST_NESTED:
        session.fail(f"scripts call each other {MOST_NESTED} deep: {' '.join(words)[:200]}")
        return 2
    options, rest, from_input = _split(words[1:])
    if options and options[-1] == "-c":
        if not rest:
            print(f"{words[0]}: -c: option requires an argument", file=sys.stderr)
            return 2
        options, text, name, arguments = options[:-1], rest[0], (rest[1:2] or [words[0]])[0], rest[2:]
        source = ""
    elif rest and not from_input:
        name, arguments, source = rest[0], rest[1:], rest[0]
        found = read_script(session, name)
        if found is None:
            print(f"{words[0]}: {name}: No such file or directory", file=sys.stderr)
            return 127
        text = found
    else:
        text, name, arguments, source = sys.stdin.read(), words[0], rest, ""
    try:
        prepared = session.prepared(text, source)
    except Unreadable as unreadable:
        session.fail(f"{name}: {unreadable}")
        return 2
    command = session.bash_command(options, prepared, name, arguments)
    os.environ["GONOGO_DEPTH"] = str(depth)
    os.execv(command[0], command)


def _split(arguments: list[str]) -> tuple[list[str], list[str], bool]:
    """Bash's own options (ending in ``-c`` where that was among them), what follows, and whether ``-s`` was said."""
    options: list[str] = []
    from_input = False
    rest = list(arguments)
    while rest and rest[0][:1] in ("-", "+") and len(rest[0]) > 1:
        option = rest.pop(0)
        if option == "--":
            break
        if option in _OPTIONS_WITH_VALUE and rest:
            options += [option, rest.pop(0)]
        elif not option.startswith("--") and option.startswith("-") and "c" in option:
            others = option.replace("c", "")
            return [*options, *([others] if len(others) > 1 else []), "-c"], rest, False
        elif option == "-s":
            from_input = True
        elif option != "-i":
            options.append(option)
    return options, rest, from_input


def prepare_source(session: ShellSession, path: str) -> int:
    """Print the path of a changed copy of a script that is sourced."""
    found = path
    if "/" not in path:
        folders = session.settings.path.split(os.pathsep)
        found = next((f"{folder}/{path}" for folder in folders if os.path.isfile(f"{folder}/{path}")), path)
    text = read_script(session, found)
    if text is None:
        if path.startswith(_OF_THE_MACHINE):
            session.leave_out(["source", path])
            found = "/dev/null"
        print(found, end="")
        return 0
    try:
        print(session.write_source(session.prepared(text, found)), end="")
    except Unreadable as unreadable:
        session.fail(f"{path}: {unreadable}")
        return 2
    return 0


def prepare_eval(session: ShellSession, text: str) -> int:
    """Print the changed text of an ``eval``."""
    try:
        changed = rewritten(text, None)
    except Unreadable as unreadable:
        session.fail(f"eval: {unreadable}")
        return 2
    sys.stdout.buffer.write(changed.encode("utf-8", "surrogateescape"))
    return 0


def read_script(session: ShellSession, path: str) -> str | None:
    """A script's text, from the session where an earlier command wrote it; None where there is none."""
    written = session.place(path, os.getcwd())
    try:
        with open(written if written.is_file() else path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return None


def is_shell_script(path: str) -> bool:
    """Whether a file is a script for bash or sh: by its first line, or, without ``#!``, by being text."""
    try:
        with open(path, "rb") as file:
            start = file.read(512)
    except OSError:
        return False
    first = start.split(b"\n", 1)[0]
    if first.startswith(b"#!"):
        interpreter = first[2:].strip().replace(b"/usr/bin/env", b"").split()
        return any(word.rpartition(b"/")[2] in (b"bash", b"sh", b"dash") for word in interpreter)
    return b"\0" not in start
