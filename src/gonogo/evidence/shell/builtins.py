"""Shell builtins that change the shell's state."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.shell.state import ASSUMED_SUCCESS, FAILURE, SUCCESS, UNSURE, ExitStatus, State, Variable
from gonogo.evidence.shell.text import Piece, ShellWord, joined_text
from gonogo.evidence.source_file import Place
from gonogo.finding import translated

_MAX_PATH = 1024
"""Characters of a folder's path that are followed; Linux takes 4,096, and a script that gets there goes round in it."""
_READ_FROM_STDIN = translated("`{name}` is read from standard input")
_IGNORED_COMMANDS = """
    echo printf : true ulimit wait sleep rm cp mv ls chmod touch which type hash umask history alias
    nvidia-smi date tee grep sed awk cat find sort uniq head tail wc tr cut pip pip3 conda mamba module shopt kill pkill
    ps free df hostname whoami uname git wget curl tar unzip apt apt-get jobs disown logger printenv id ln stat md5sum
    sync clear shuf seq nproc du diff basename dirname realpath readlink expr bc jq column tput rsync scp yes openssl
    sha256sum getconf ip ifconfig lscpu lspci ping nc lsof ss netstat rocm-smi npu-smi
"""


@cache
def _no_effect_commands() -> frozenset[str]:
    """The commands that change nothing that a launch depends on."""
    return frozenset(_IGNORED_COMMANDS.split())


def run_builtin(name: str, arguments: Sequence[ShellWord], state: State, place: Place) -> ExitStatus | None:
    """Evaluate a builtin that runs no other script; None if ``name`` isn't such a builtin."""
    if name in ("exit", "exec") and not (name == "exec" and arguments):
        if name == "exit":
            state.ended = True
        return SUCCESS
    if name in ("return", "break", "continue"):
        state.leaving = name
        return SUCCESS
    if name == "cd":
        return _cd(arguments, state)
    if name in ("pushd", "popd"):
        return _push_or_pop_folder(name, arguments, state)
    if name == "mkdir":
        return _mkdir(arguments, state)
    if name in ("cp", "mv", "ln", "rsync"):
        return _copy(name, arguments, state)
    if name == "trap":
        if len(arguments) > 1 and any(word.value in ("EXIT", "0") for word in arguments[1:]):
            state.on_exit = () if arguments[0].value in ("-", "") else (arguments[0],)
        return SUCCESS
    if name == "shopt":
        return _shopt(arguments, state)
    if name == "shift":
        return _shift(arguments, state)
    if name == "set":
        return _set(arguments, state)
    if name == "read":
        for word in arguments:
            if word.value and word.value.isidentifier():
                state.set_unknown(word.value, place, _READ_FROM_STDIN.format(name=word.value))
        return SUCCESS
    if name in ("mapfile", "readarray"):
        target = arguments[-1].value if arguments else None
        if target and target.isidentifier():
            piece = Piece(
                None, place.source, place.start, place.end, many=True, reason=_READ_FROM_STDIN.format(name=target)
            )
            state.set(target, Variable((), place, array=(ShellWord((piece,), place),)))
        return SUCCESS
    if name == "getopts":
        return _getopts(arguments, state, place)
    if name == "false":
        return FAILURE
    if name in ("conda", "mamba") and arguments and arguments[0].value == "run":
        return None
    if name in ("true", ":", "echo", "printf"):
        return SUCCESS
    return ASSUMED_SUCCESS if name in _no_effect_commands() else None


class _ReadOptions(NamedTuple):
    """The options and names of a ``read`` command."""

    names: tuple[str, ...]
    delimiter: str = "\n"
    """``""`` if all of the input is read."""
    into_array: bool = False
    raw: bool = False
    """A backslash is kept as it is."""


def _read_options(arguments: Sequence[ShellWord]) -> _ReadOptions | None:
    """What ``read`` is asked for; None if that isn't known, or if it reads by a count or from another file."""
    rest = [word.value for word in arguments]
    delimiter, into_array, raw = "\n", False, False
    while rest and (option := rest[0]) is not None and option.startswith("-") and len(option) > 1:
        rest.pop(0)
        if option == "--":
            break
        for index, letter in enumerate(option[1:], 1):
            into_array |= letter == "a"
            raw |= letter == "r"
            if letter in "inNtu":
                return None
            if letter in "dp":
                value = option[index + 1 :] or (rest.pop(0) if rest else None)
                if value is None:
                    return None
                delimiter = value[:1] if letter == "d" else delimiter
                break
    names = tuple(name for name in rest if name is not None and name.isidentifier())
    return _ReadOptions(names, delimiter, into_array, raw) if len(names) == len(rest) else None


def read_words(
    arguments: Sequence[ShellWord], pieces: Sequence[Piece], separators: str, state: State, place: Place
) -> ExitStatus | None:
    """``read NAME… <<< TEXT`` and ``read -r -d '' NAME <<EOF``; None if the words that it reads aren't known.

    Without a delimiter in the text, which must end in a newline otherwise, ``read`` fails, though it sets the names.
    """
    options = _read_options(arguments)
    if options is None:
        return None
    status = SUCCESS if options.delimiter == "\n" else FAILURE
    text = joined_text(pieces)
    if text is None or (not options.raw and "\\" in text):
        if text is None and options.delimiter == "" and options.raw and len(options.names) == 1:
            state.set(options.names[0], Variable(_strip_pieces(pieces, separators), place))
            return status
        return None
    text, found, _ = text.partition(options.delimiter) if options.delimiter else (text, "", "")
    status = SUCCESS if found else status
    if options.names == ():
        state.set("REPLY", Variable((Piece(text, place.source, place.start, place.end),), place))
        return status
    blanks = "".join(one for one in separators if one in " \t\n")
    text = text.strip(blanks) if blanks else text
    if not options.into_array and len(options.names) == 1:
        whole = (Piece(text, place.source, place.start, place.end),)
        kept = whole if options.delimiter else _strip_pieces(pieces, separators)
        state.set(options.names[0], Variable(kept, place))
        return status
    if options.into_array:
        for separator in separators[1:]:
            text = text.replace(separator, separators[0])
        parts = text.split(separators[0]) if separators else [text]
        if not separators.strip():
            parts = [part for part in parts if part]
        words = [ShellWord((Piece(part, place.source, place.start, place.end),), place) for part in parts]
        state.set(options.names[-1], Variable((), place, array=tuple(words)))
        return status
    signs = re.escape("".join(one for one in separators if one not in blanks))
    gap = (
        f"[{re.escape(blanks)}]*[{signs}]?[{re.escape(blanks)}]*"
        if signs and blanks
        else f"[{signs or re.escape(blanks)}]"
    )
    between = re.compile(gap if signs else f"{gap}+") if separators else None
    for index, name in enumerate(options.names):
        value, at = text, len(text)
        if index < len(options.names) - 1 and between is not None:
            first = next((each for each in between.finditer(text) if each.end() > each.start()), None)
            value, at = (text[: first.start()], first.end()) if first else (text, len(text))
        state.set(name, Variable((Piece(value, place.source, place.start, place.end),), place))
        text = text[at:]
    return status


def _strip_pieces(pieces: Sequence[Piece], separators: str) -> tuple[Piece, ...]:
    """Pieces without the blanks at both ends, each of the others still where it is written."""
    blanks = "".join(one for one in separators if one in " \t\n")
    kept = list(pieces)
    while kept and kept[-1].text is not None and not kept[-1].text.rstrip(blanks):
        kept.pop()
    while kept and kept[0].text is not None and not kept[0].text.lstrip(blanks):
        kept.pop(0)
    if kept and (text := kept[-1].text) is not None:
        shorter = text.rstrip(blanks)
        kept[-1] = msgspec.structs.replace(kept[-1], text=shorter, end=kept[-1].end - len(text) + len(shorter))
    if kept and (text := kept[0].text) is not None:
        shorter = text.lstrip(blanks)
        kept[0] = msgspec.structs.replace(kept[0], text=shorter, start=kept[0].start + len(text) - len(shorter))
    return tuple(kept)


def _cd(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    words = [word for word in arguments if word.value is None or not word.value.startswith("-")]
    before = state.cwd if state.cwd_known else None
    if not words:
        if any(word.value == "-" for word in arguments):
            if state.previous is None:
                state.cwd_known = False
            else:
                state.cwd = state.previous
        elif (arguments and all(word.value in ("-P", "-L", "--") for word in arguments)) or not arguments:
            state.cwd, state.cwd_known = _home_folder(state), True
        state.previous = before
        return SUCCESS
    target = words[0].value
    if target is None:
        state.cwd_known, state.previous = False, before
        return SUCCESS
    if not target:
        return SUCCESS  # bash doesn't change the folder
    absolute = os.path.isabs(target)
    moved = os.path.normpath(os.path.join(state.cwd, target))
    if len(moved) > _MAX_PATH:
        return FAILURE
    if not os.path.isdir(moved) and moved not in state.made:
        return _cd_elsewhere(target, moved, state, before, absolute=absolute)
    state.cwd, state.previous = Path(moved), before
    state.cwd_known = state.cwd_known or absolute or _names_script_folder(words[0])
    return SUCCESS


def _cd_elsewhere(target: str, new_cwd: str, state: State, before: Path | None, *, absolute: bool) -> ExitStatus:
    """``cd`` to a folder that doesn't exist here: on another machine, or relative to where the script is started."""
    if not absolute and not state.cwd_known:
        root = _starting_folder_for(target, state)
        if root is None:
            return ASSUMED_SUCCESS
        state.cwd_assumed, state.cwd = root, Path(os.path.normpath(root / target))
        return SUCCESS
    # Its contents are unknown.
    state.cwd, state.cwd_known, state.previous = Path(new_cwd), False, before
    return ASSUMED_SUCCESS


def _starting_folder_for(target: str, state: State) -> Path | None:
    """The folder above the script's in which ``cd target`` works: the script must be started there."""
    if state.cwd_assumed is not None or target.startswith((".", "~")):
        return None
    for folder in state.cwd.parents:
        if os.path.isdir(folder / target):
            return folder
        if any(os.path.exists(folder / name) for name in (".git", "pyproject.toml", "setup.py")):
            break
    return None


def _home_folder(state: State) -> Path:
    variable = state.variables.get("HOME")
    return Path((variable.value if variable is not None else None) or Path.home())


def _push_or_pop_folder(name: str, arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    """``pushd`` and ``popd``."""
    if name == "popd":
        if arguments or not state.folders:
            state.cwd_known = state.cwd_known and not arguments
            return UNSURE if arguments else FAILURE
        state.previous = state.cwd if state.cwd_known else None
        (state.cwd, state.cwd_known), state.folders = state.folders[0], state.folders[1:]
        return SUCCESS
    target = arguments[0].value if len(arguments) == 1 else None
    if target is None or target.startswith(("+", "-")):
        state.cwd_known = False
        return UNSURE
    here = (state.cwd, state.cwd_known)
    status = _cd(arguments, state)
    if status.success and not status.ran:
        state.folders = (here, *state.folders)
    return status


def _mkdir(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    """``mkdir``: a later ``cd`` into the created folder counts as one into an existing folder."""
    for word in arguments:
        value = word.value
        if value and not value.startswith("-"):
            folder = os.path.normpath(os.path.join(state.cwd, value))
            if len(folder) > _MAX_PATH:
                return FAILURE
            made: list[str] = []
            while len(folder) > len(str(state.cwd)) and folder not in state.made:
                made.append(folder)
                folder = os.path.dirname(folder)
            state.made = state.made.union(made)
    return ASSUMED_SUCCESS


def _copy(name: str, arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    """``cp``, ``mv``, ``ln``, ``rsync`` with known paths: what is started from the copy is read in the original."""
    texts = [word.value for word in arguments]
    given = [text for text in texts if text is not None and not text.startswith("-")]
    options = [text for text in texts if text is not None and text.startswith("-")]
    with_value = any(one in ("-t", "--target-directory", "--exclude", "--include", "-e", "-f") for one in options)
    if None in texts or len(given) < 2 or with_value:
        return ASSUMED_SUCCESS
    *sources, last = given
    target = os.path.normpath(os.path.join(state.cwd, last))
    into = len(sources) > 1 or last.endswith("/") or target in state.made or os.path.isdir(target)
    for source in sources:
        if "*" in source or ":" in source:
            continue
        whole = os.path.normpath(os.path.join(state.cwd, source))
        contents = source.endswith(("/.", "/") if name == "rsync" else "/.")
        copied = target if contents or not into else os.path.join(target, os.path.basename(whole))
        state.copied[copied] = state.copied.get(whole, whole)
    return ASSUMED_SUCCESS


def _shopt(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    """``shopt -s NAME``."""
    values = [word.value or "" for word in arguments]
    names = {value for value in values if value and not value.startswith("-")}
    if "-s" in values:
        state.options |= names
    elif "-u" in values:
        state.options -= names
    return SUCCESS


def _getopts(arguments: Sequence[ShellWord], state: State, place: Place) -> ExitStatus:
    """``getopts an: NAME``."""
    if not state.arguments_given and not state.positional:
        return ExitStatus(False, assumed=True)  # without arguments there are no options to parse
    texts = [word.value for word in arguments]
    given = [word.value for word in state.positional]
    counter = state.variables.get("OPTIND")
    index = parse_whole_number(counter.value if counter is not None else "1")
    if len(texts) != 2 or None in texts or None in given or index is None or not state.arguments_given:
        for name in (*(text for text in texts[1:2] if text), "OPTARG", "OPTIND"):
            state.set_unknown(name, place, _READ_FROM_STDIN.format(name=name))
        return UNSURE
    spec, name = texts[0] or "", texts[1] or ""
    within = state.option_at

    def assign_variable(variable: str, text: str) -> None:
        state.set(variable, Variable((Piece(text, place.source, place.start, place.end),), place))

    word = given[index - 1] if 0 < index <= len(given) else None
    if word is None or (within == 0 and (not word.startswith("-") or word in ("-", "--"))):
        assign_variable(name, "?")
        assign_variable("OPTIND", str(index + 1 if word == "--" else index))
        return FAILURE
    letter = word[within or 1]
    within = (within or 1) + 1
    known = spec.find(letter) if letter != ":" else -1
    if known < 0:
        assign_variable(name, "?")
        state.variables["OPTARG"] = Variable(unset=True)
    elif spec[known + 1 : known + 2] == ":":
        argument = word[within:] or (given[index] if index < len(given) else None)
        index += 0 if word[within:] else 1
        within = len(word)
        if argument is None:
            assign_variable(name, "?")
            state.variables["OPTARG"] = Variable(unset=True)
        else:
            assign_variable(name, letter)
            assign_variable("OPTARG", argument)
    else:
        assign_variable(name, letter)
        state.variables["OPTARG"] = Variable(unset=True)
    if within >= len(word):
        index, within = index + 1, 0
    state.option_at = within
    assign_variable("OPTIND", str(min(index, len(given) + 1)))
    return SUCCESS


def _names_script_folder(word: ShellWord) -> bool:
    """Whether the word of a ``cd`` is computed from the script's own location."""
    return "dirname" in word.place.text or "BASH_SOURCE" in word.place.text or "%/*" in word.place.text


def _shift(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    """``shift N``."""
    count = parse_whole_number(arguments[0].value if arguments else "1")
    if count is None:
        state.positional, state.arguments_given = (), False
    elif count <= len(state.positional):
        state.positional = state.positional[count:]
    else:
        return FAILURE
    return SUCCESS


_OPTION_BY_LETTER = {"e": "errexit", "u": "nounset", "f": "noglob", "a": "allexport", "x": "xtrace"}


def _set(arguments: Sequence[ShellWord], state: State) -> ExitStatus:
    """``set -e``, ``set -- WORDS`` and other forms of ``set``."""
    index = 0
    while index < len(arguments):
        value = arguments[index].value
        if value is None:
            state.positional, state.arguments_given = (), False
            break
        if value == "--" or not value.startswith(("-", "+")) or value == "-":
            rest = arguments[index + (value in ("--", "-")) :]
            complete = not any(word.may_split for word in rest)
            if rest or value == "--":
                state.positional, state.arguments_given = tuple(rest if complete else ()), complete
            break
        names = {_OPTION_BY_LETTER[letter] for letter in value[1:] if letter in _OPTION_BY_LETTER}
        if value[1:].endswith("o") and index + 1 < len(arguments):
            index += 1
            names.add(arguments[index].value or "")
        state.options = state.options | names if value[0] == "-" else state.options - names
        index += 1
    state.export_all = "allexport" in state.options
    return SUCCESS
