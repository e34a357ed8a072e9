"""``$(…)`` for commands whose output the files determine: dirname, basename, pwd, echo, seq, wc, cut and the like."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.shell.arithmetic import apply_operator
from gonogo.evidence.shell.builtins import run_builtin
from gonogo.evidence.shell.expansion import expand_assignment_words
from gonogo.evidence.shell.lexer import Lexer, Substitution
from gonogo.evidence.shell.reading import MAX_STEPS, ShellReader
from gonogo.evidence.shell.state import State
from gonogo.evidence.shell.text import Piece, ShellWord, joined_text

_MAX_DEPTH = 5


def substitution_output(shell: ShellReader, part: Substitution, state: State) -> Sequence[Piece] | None:
    """What the commands print, without trailing newlines; None if it can't be determined."""
    start, end = part.inner
    shell.steps += 1
    if shell.steps > MAX_STEPS:
        return None
    # Each level is read again for the one around it: the time grows with the square of the depth.
    if shell.substitutions >= _MAX_DEPTH or (part.backquoted and b"\\" in shell.source.data[start:end]):
        return None
    root = shell.parse_part(start, end)
    inside = [child for child in root.named_children if child.type != "comment"] if root is not None else []
    if not inside:
        return []
    with shell.limit_to_substitution(end):
        own = state.copy()
        pieces: list[Piece] | None = []
        for child in inside:
            made = _printed_pieces(shell, child, own, 0)
            if made is None or pieces is None:
                pieces = None
                break
            if joined_text(pieces) and joined_text(made):
                pieces.append(Piece("\n", shell.source, start, start))
            pieces += made
    if pieces is None:
        return None
    text = joined_text(pieces)
    if text is not None and text.endswith("\n"):
        return [Piece(text.rstrip("\n"), shell.source, start, end)]
    return pieces


def _printed_pieces(shell: ShellReader, node: Any, state: State, depth: int) -> list[Piece] | None:
    """What a command or pipeline prints; None if it can't be determined."""
    if depth > 10:
        return None
    kind = node.type
    if kind == "redirected_statement":
        body = node.child_by_field_name("body")
        here = any(child.type in ("heredoc_redirect", "herestring_redirect") for child in node.named_children)
        return None if body is None or here else _printed_pieces(shell, body, state, depth + 1)
    if kind == "list" and len(node.named_children) == 2 and any(child.type == "&&" for child in node.children):
        left, right = node.named_children
        before = _printed_pieces(shell, left, state, depth + 1)
        if before is None:
            return None
        after = _printed_pieces(shell, right, state, depth + 1)
        return None if after is None else [*before, *after]
    if kind == "pipeline":
        commands = node.named_children
        text: str | None = None
        for index, command in enumerate(commands):
            if index == 0:
                first = _printed_pieces(shell, command, state, depth + 1)
                text = joined_text(first) if first is not None else None
            else:
                words = _known_words(shell, command, state)
                text = (
                    _evaluate_filter(words, text + "\n" if not text.endswith("\n") else text)
                    if words and text
                    else None
                )
            if text is None:
                return None
        return [Piece(text, shell.source, node.start_byte, node.end_byte)]
    if kind != "command":
        return None
    expanded = _expand_words(shell, node, state)
    if not expanded:
        return None
    name, arguments = expanded[0].value, expanded[1:]
    if name == "cd":
        run_builtin("cd", arguments, state, shell.place(node))
        return [] if state.cwd_known else None
    if name == "echo":
        return _evaluate_echo(shell, node, arguments)
    values = [word.value for word in arguments if not (name == "getopt" and word.may_split)]
    if name is None or any(value is None for value in values):
        return None
    printed = _simple_command_output(name, [value for value in values if value is not None], state)
    return None if printed is None else [Piece(printed, shell.source, node.start_byte, node.end_byte)]


def _expand_words(shell: ShellReader, node: Any, state: State) -> list[ShellWord]:
    simple = Lexer(shell.source.data, shell.limit).parse_simple_command(node.start_byte)
    if simple.assignments:
        return []
    return [made for word in simple.words for made in expand_assignment_words(shell, word, state)]


def _known_words(shell: ShellReader, node: Any, state: State) -> list[str] | None:
    """The words of a command after expansion; None if one is unknown, or it isn't a simple command."""
    if node.type != "command":
        return None
    values = [word.value for word in _expand_words(shell, node, state)]
    return None if None in values else [value for value in values if value is not None]


def _evaluate_echo(shell: ShellReader, node: Any, arguments: Sequence[ShellWord]) -> list[Piece] | None:
    pieces: list[Piece] = []
    for index, word in enumerate(arguments):
        if index == 0 and word.value in ("-n", "-e", "-ne"):
            continue
        if pieces:
            pieces.append(Piece(" ", shell.source, node.start_byte, node.start_byte))
        pieces += word.pieces
    return pieces


def _simple_command_output(name: str, values: list[str], state: State) -> str | None:
    values = [value for value in values if value != "--"]
    if name == "pwd":
        return str(state.cwd) if state.cwd_known else None
    if name == "dirname" and len(values) == 1:
        return os.path.dirname(values[0].rstrip("/")) or ("/" if values[0].startswith("/") else ".")
    if name == "basename" and 1 <= len(values) <= 3:
        if values[0] == "-s" and len(values) == 3:
            values = [values[2], values[1]]
        base = values[0].rstrip("/").rpartition("/")[2] or values[0][:1]
        suffix = values[1] if len(values) == 2 else ""
        return base.removesuffix(suffix) if base != suffix else base
    if name in ("realpath", "readlink"):
        paths = [value for value in values if not value.startswith("-")]
        return os.path.normpath(os.path.join(state.cwd, paths[0])) if len(paths) == 1 and state.cwd_known else None
    if name == "getopt" and not state.positional and not state.arguments_given:
        return " --"
    if name == "seq":
        return _seq_output(values)
    if name == "expr" and len(values) == 3:
        left, operator, right = (value.strip() for value in values)
        result = apply_operator(parse_whole_number(left), operator, parse_whole_number(right))
        return str(result) if result is not None else None
    if name == "printf" and len(values) == 2 and values[0] in ("%s", "%s\\n"):
        return values[1]
    return None


def _seq_output(values: list[str]) -> str | None:
    separator = "\n"
    if values[:1] == ["-s"]:
        separator, values = values[1] if len(values) > 1 else "\n", values[2:]
    elif values and values[0].startswith("-s"):
        separator, values = values[0][2:], values[1:]
    if not 1 <= len(values) <= 2 or not all(value.isdecimal() and len(value) < 5 for value in values):
        return None
    first, last = (1, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))
    return separator.join(str(number) for number in range(first, min(last, first + 1024) + 1))


def _evaluate_filter(words: list[str], text: str) -> str | None:
    """The output of a filter for a given input: the ways in which scripts count CUDA_VISIBLE_DEVICES."""
    name, arguments = words[0], words[1:]
    if name == "wc" and len(arguments) == 1:
        counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text)}
        return str(counts[arguments[0]]) if arguments[0] in counts else None
    if name == "tr" and len(arguments) == 2:
        old, new = (argument.replace("\\n", "\n") for argument in arguments)
        if arguments[0] == "-d":
            return "".join(character for character in text if character not in new)
        return text.replace(old, new) if len(old) == len(new) == 1 else None
    if name == "awk" and arguments and arguments[-1].replace(" ", "") == "{printNF}":
        separator = "".join(arguments[:-1]).removeprefix("-F").strip()
        line = text.split("\n")[0]
        return str(len(line.split(separator) if separator else line.split()))
    if name == "cut" and len(arguments) in (2, 3, 4):
        joined = "".join(arguments)
        delimiter, _, field = joined.removeprefix("-d").partition("-f")
        number = parse_whole_number(field)
        if joined.startswith("-d") and len(delimiter) == 1 and number:
            parts = text.rstrip("\n").split(delimiter)
            return parts[number - 1] if number <= len(parts) else ""
    if name == "grep" and arguments == ["-o", ","]:
        return ",\n" * text.count(",") or None
    return None
