"""A bash script, changed so that it can be run without touching the user's files.

=========================  ==================================================================================
in the script              in its place
=========================  ==================================================================================
``> FILE``, ``>> FILE`` …  ``> "$(__gonogo_write FILE)"``: a file of the session
``< FILE``                 ``< "$(__gonogo_read FILE)"``: the session's file, where the script wrote it before
``$BASH_SOURCE``           a variable that holds the path of the script as it was called
``source FILE``            ``source "$(__gonogo_source FILE)"``: a copy of FILE, changed likewise
``eval WORDS``             ``eval "$(__gonogo_rewrite WORDS)"``
``exec COMMAND``           ``__gonogo_exec COMMAND``: functions stand in for the launchers, and exec sees no functions
``$X COMMAND``, ``a/b``    ``__gonogo_run …``: looks at what the name comes to
``$(…)``                   ``$(export GONOGO_SUBSTITUTION=1; …)``: what a program prints here, the script needs
=========================  ==================================================================================

The functions are those of ``prelude.sh``. Everything else stays as it is, on the same line.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from functools import cache

import tree_sitter
import tree_sitter_bash

_WRITES = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_SOURCES = frozenset({b"source", b"."})


class Unreadable(Exception):
    """A redirection stands in a part of the script that the grammar could not make out. ``line`` counts from 1."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")
        self.line = line
        self.text = text


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def rewritten(script: str, source: str | None, first: str = "") -> str:
    """The script, changed as the module says.

    ``source`` is what ``$BASH_SOURCE`` has to be, None where that is left to bash; ``first`` is put before the script
    on its first line. Raises Unreadable where an output redirection might be overlooked.
    """
    text = script.encode("utf-8", "surrogateescape")
    tree = _parser().parse(text)
    variable = "BASH_SOURCE"
    if source is not None:
        digest = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        variable = f"__gonogo_source_{digest}"
        first += f"{variable}=({shlex.quote(source)}); "
    edits = sorted(_edits(tree.root_node, variable.encode()), key=lambda edit: (edit[0], edit[1]))
    out: list[bytes] = []
    position = 0
    for start, end, replacement in edits:
        out += [text[position:start], replacement]
        position = end
    out.append(text[position:])
    return first + b"".join(out).decode("utf-8", "surrogateescape")


def _edits(root: tree_sitter.Node, variable: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(start, end, replacement) of every change, in bytes; no two overlap."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        kind = node.type
        if kind == "command_substitution" and (node.text or b"").startswith(b"$(("):
            continue  # arithmetic, which the grammar takes for a subshell in a here-document
        waiting.extend(node.children)
        if kind == "ERROR":
            _refuse_hidden_redirection(node)
        elif kind == "file_redirect":
            yield from _redirect(node)
        elif kind == "variable_name" and node.text == b"BASH_SOURCE":
            yield node.start_byte, node.end_byte, variable
        elif kind == "command":
            yield from _command(node)
        elif kind == "command_substitution":
            yield from _substitution(node)


def _refuse_hidden_redirection(node: tree_sitter.Node) -> None:
    # Only the node's own tokens: its well-formed children are walked like any other.
    for child in node.children:
        if child.type in _WRITES or (child.type == "word" and b">" in (child.text or b"")):
            line = child.start_point[0] + 1
            raise Unreadable(line, (node.text or b"").decode(errors="replace").splitlines()[0][:120])


def _redirect(node: tree_sitter.Node) -> Iterator[tuple[int, int, bytes]]:
    operator = next((child.type for child in node.children if not child.is_named), "")
    # A second destination is no destination: the grammar takes the words that follow for more of them.
    destination = node.child_by_field_name("destination")
    if destination is None or destination.type == "process_substitution":
        return
    text = destination.text or b""
    if destination.type == "number" or text.startswith(b"/dev/"):
        return
    if operator in _WRITES:
        function = b"__gonogo_write "
    elif operator == "<":
        function = b"__gonogo_read "
    else:
        return
    yield destination.start_byte, destination.start_byte, b'"$(' + function
    yield destination.end_byte, destination.end_byte, b')"'


def _command(node: tree_sitter.Node) -> Iterator[tuple[int, int, bytes]]:
    name = node.child_by_field_name("name")
    if name is None:
        return
    arguments = node.children_by_field_name("argument")
    text = name.text or b""
    literal = len(name.children) == 1 and name.children[0].type == "word"
    if literal and text in _SOURCES and arguments and arguments[0].type != "process_substitution":
        yield arguments[0].start_byte, arguments[0].start_byte, b'"$(__gonogo_source '
        yield arguments[0].end_byte, arguments[0].end_byte, b')"'
    elif literal and text == b"eval" and arguments:
        yield name.end_byte, name.end_byte, b' "$(__gonogo_rewrite'
        yield arguments[-1].end_byte, arguments[-1].end_byte, b')"'
    elif literal and text == b"exec" and any(not (word.text or b"").startswith(b"{") for word in arguments):
        yield name.start_byte, name.end_byte, b"__gonogo_exec"
    elif not literal or b"/" in text or b"\\" in text:
        yield name.start_byte, name.start_byte, b"__gonogo_run "


def _substitution(node: tree_sitter.Node) -> Iterator[tuple[int, int, bytes]]:
    if len(node.children) < 2 or all(child.type == "file_redirect" for child in node.named_children):
        return  # $(< file) is read by bash itself, and only where it stands alone
    opening = node.children[0]
    yield opening.end_byte, opening.end_byte, b"export GONOGO_SUBSTITUTION=1; "
