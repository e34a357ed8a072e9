"""Assignments, and redirections that give a command its input or make a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gonogo.evidence.document.source_file import Place
from gonogo.evidence.shell.expansion import expand, expand_words
from gonogo.evidence.shell.state import SUCCESS, State, Status, Variable
from gonogo.evidence.shell.text import Piece, ShellWord

if TYPE_CHECKING:
    from gonogo.evidence.shell.run import Shell


def assigned(shell: Shell, node: Any, state: State) -> tuple[str, Variable] | None:
    """What an assignment sets, and to what."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if target is None:
        return None
    appending = any(child.type == "+=" for child in node.children)
    place = shell.place(node)
    if target.type == "subscript":
        name_node = target.child_by_field_name("name")
        name = shell.text(name_node) if name_node is not None else ""
        piece = Piece(None, shell.source, node.start_byte, node.end_byte, many=True)
        return (name, Variable((), place, array=(ShellWord((piece,), place),))) if name else None
    name = shell.text(target)
    before = state.variables.get(name)
    if value is not None and value.type == "array":
        array = tuple(expand_words(shell, value, state))[:4096]
        if appending and before is not None and before.array is not None:
            array = (*before.array, *array)
        elif appending and before is not None and before.pieces:
            array = (ShellWord(before.pieces, before.place or place), *array)
        return name, Variable((), place, array=array)
    pieces = tuple(expand(shell, value, state)) if value is not None else ()
    if appending and before is not None and before.array is None:
        pieces = (*before.pieces, *pieces)
    return name, Variable(pieces[:4096], place)


def redirected(shell: Shell, node: Any, state: State) -> Status:
    """Follow a command with redirections: heredocs are its input, or the text of a file that it writes."""
    body = node.child_by_field_name("body")
    redirects = [child for child in node.named_children if child is not body and "redirect" in child.type]
    heredoc = next((child for child in redirects if child.type == "heredoc_redirect"), None)
    status = SUCCESS
    standard_input: tuple[Piece, ...] | None = None
    place = None
    if heredoc is not None:
        text = next((child for child in heredoc.named_children if child.type == "heredoc_body"), None)
        start = next((child for child in heredoc.named_children if child.type == "heredoc_start"), None)
        if text is not None:
            place = shell.place(text)
            if start is not None and shell.text(start)[:1] in ("'", '"', "\\"):
                whole = shell.source.data[text.start_byte : text.end_byte].decode("utf-8", "surrogateescape")
                standard_input = (Piece(whole, shell.source, text.start_byte, text.end_byte, literal=True),)
            else:
                standard_input = tuple(expand(shell, text, state))
        redirects += [child for child in heredoc.named_children if child.type == "file_redirect"]
    if body is not None:
        if body.type == "command":
            status = shell.command(body, state, node, standard_input, place)
            if standard_input is not None and place is not None:
                _note_written(shell, body, redirects, standard_input, place, state)
        else:
            status = shell.statement(body, state)
    if heredoc is not None:
        # `cat <<EOF | cmd` and `cmd <<EOF && other` stand inside the heredoc's node.
        inside = [
            child
            for child in heredoc.named_children
            if child.type not in ("heredoc_start", "heredoc_body", "heredoc_end") and "redirect" not in child.type
        ]
        for child in inside:
            status = shell.statement(child, state)
    return status


def _note_written(
    shell: Shell, body: Any, redirects: list[Any], pieces: tuple[Piece, ...], place: Place, state: State
) -> None:
    name = body.child_by_field_name("name")
    program = shell.text(name) if name is not None else ""
    if program not in ("cat", "tee"):
        return
    targets = [
        word
        for child in redirects
        if child.type == "file_redirect" and any(c.type in (">", ">>", ">|") for c in child.children)
        for target in [child.child_by_field_name("destination")]
        if target is not None
        for word in expand_words(shell, target, state)
    ]
    if program == "tee":
        targets += [
            word for child in body.children_by_field_name("argument") for word in expand_words(shell, child, state)
        ]
    for word in targets:
        if word.value:
            state.written[os.path.normpath(os.path.join(state.cwd, word.value))] = (pieces, place)
