"""The shell's own commands that change its state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gonogo.evidence.shell.conditions import test_words
from gonogo.evidence.shell.state import FAILURE, RAN, SUCCESS, UNSURE, ExitStatus, State, Variable
from gonogo.evidence.shell.text import Piece, ShellWord
from gonogo.evidence.source_file import Place
from gonogo.finding import Text

_READ = Text("`{name}` is read from the standard input", "`{name}` 从标准输入读取")
_NOTHING = """
    echo printf : true trap ulimit wait sleep mkdir rm cp mv ls chmod touch which type hash umask history alias popd
    nvidia-smi date tee grep sed awk cat find sort uniq head tail wc tr cut pip pip3 conda mamba module shopt kill pkill
    ps free df hostname whoami uname git wget curl tar unzip apt apt-get jobs disown logger printenv id ln stat md5sum
    sync clear shuf seq nproc du diff basename dirname realpath readlink expr bc jq column tput rsync scp yes openssl
    sha256sum getconf ip ifconfig lscpu lspci ping nc lsof ss netstat rocm-smi npu-smi
"""


@cache
def _without_effect() -> frozenset[str]:
    return frozenset(_NOTHING.split())


def run_builtin(name: str, arguments: Sequence[ShellWord], state: State, place: Place) -> ExitStatus | None:
    """Do what a builtin does that follows no other script; None where ``name`` is none."""
    if name in ("exit", "exec") and not (name == "exec" and arguments):
        if name == "exit":
            state.ended = True
        return SUCCESS
    if name in ("return", "break", "continue"):
        state.leaving = name
        return SUCCESS
    if name in ("cd", "pushd"):
        return _cd(arguments, state)
    if name == "shift":
        return _shift(arguments, state)
    if name == "set":
        return _set(arguments, state)
    if name == "read":
        for word in arguments:
            if word.value and word.value.isidentifier():
                state.forget(word.value, place, _READ.format(name=word.value))
        return SUCCESS
    if name in ("mapfile", "readarray"):
        target = arguments[-1].value if arguments else None
        if target and target.isidentifier():
            piece = Piece(None, place.source, place.start, place.end, many=True, reason=_READ.format(name=target))
            state.set(target, Variable((), place, array=(ShellWord((piece,), place),)))
        return SUCCESS
    if name == "test":
        return test_words(list(arguments))
    if name == "getopts":
        # Without arguments there are no options to take.
        return ExitStatus(False, assumed=not state.arguments_given) if not state.positional else UNSURE
    if name == "false":
        return FAILURE
    if name in ("conda", "mamba") and arguments and arguments[0].value == "run":
        return None
    if name in ("true", ":", "echo", "printf"):
        return SUCCESS
    return RAN if name in _without_effect() else None


def read_words(arguments: Sequence[ShellWord], text: str, separators: str, state: State, place: Place) -> ExitStatus:
    """``read -ra NAME <<< TEXT`` and ``read NAME… <<< TEXT``."""
    names = [word.value for word in arguments if word.value is not None and not word.value.startswith("-")]
    into_array = any((word.value or "").startswith("-") and "a" in (word.value or "") for word in arguments)
    line = text.split("\n")[0]
    for separator in separators[1:]:
        line = line.replace(separator, separators[0])
    parts = line.split(separators[0]) if separators else [line]
    if not separators.strip():
        parts = [part for part in parts if part]
    words = [ShellWord((Piece(part, place.source, place.start, place.end),), place) for part in parts]
    if into_array and names:
        state.set(names[-1], Variable((), place, array=tuple(words)))
        return SUCCESS
    for index, name in enumerate(names):
        rest = parts[index:] if index == len(names) - 1 else parts[index : index + 1]
        value = (separators[:1] or " ").join(rest)
        state.set(name, Variable((Piece(value, place.source, place.start, place.end),), place))
    return SUCCESS


def _cd(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    words = [word for word in arguments if word.value is None or not word.value.startswith("-")]
    if not words:
        if any(word.value == "-" for word in arguments):
            state.cwd_known = False
        else:
            state.cwd, state.cwd_known = Path.home(), True
        return SUCCESS
    target = words[0].value
    if target is None:
        state.cwd_known = False
        return SUCCESS
    absolute = os.path.isabs(target)
    moved = os.path.normpath(os.path.join(state.cwd, target))
    if (absolute or state.cwd_known) and not os.path.isdir(moved):
        # Another machine's folder, or one that is made first: what will lie in it can't be told.
        state.cwd, state.cwd_known = Path(moved), False
        return SUCCESS
    if not state.cwd_known and not absolute and not os.path.isdir(moved):
        return SUCCESS  # a folder of wherever the script is started
    state.cwd = Path(moved)
    state.cwd_known = state.cwd_known or absolute or _names_script_folder(words[0])
    return SUCCESS


def _names_script_folder(word: ShellWord) -> bool:
    """Whether ``cd`` goes to the script's own folder, or one that is told from there."""
    return "dirname" in word.place.text or "BASH_SOURCE" in word.place.text or "%/*" in word.place.text


def _shift(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    count = arguments[0].value if arguments else "1"
    if count is None or not count.isdigit():
        state.positional, state.arguments_given = (), False
    elif int(count) <= len(state.positional):
        state.positional = state.positional[int(count) :]
    else:
        return FAILURE
    return SUCCESS


def _set(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    for index, word in enumerate(arguments):
        value = word.value
        if value == "--":
            state.positional, state.arguments_given = tuple(arguments[index + 1 :]), True
            break
        if value in ("-a", "-o") and (value == "-a" or [w.value for w in arguments[index + 1 :]] == ["allexport"]):
            state.export_all = True
        elif value == "+a":
            state.export_all = False
    return SUCCESS
