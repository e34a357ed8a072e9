"""Lists, pipelines, branches, loops, functions and redirections."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from gonogo.evidence.shell.arithmetic import combined
from gonogo.evidence.shell.conditions import holds
from gonogo.evidence.shell.expansion import expand, expand_words, number_of
from gonogo.evidence.shell.shell import Shell
from gonogo.evidence.shell.state import CHANGED_IN_LOOP, SUCCESS, UNSURE, ExitStatus, State, Variable, merge
from gonogo.evidence.shell.text import Piece, text_of
from gonogo.evidence.source_file import Place

_MAX_ITERATIONS = 32
_WRITING = (">", ">>", ">|", "&>", "&>>")
_CHANGING = ("++", "--", "+=", "-=", "*=", "/=", "=")
_DECLARING = {"export": True, "declare": False, "typeset": False, "local": False, "readonly": False}


def follow(shell: Shell, node: Any, state: State) -> ExitStatus:
    """Follow a statement that is neither a command nor an assignment."""
    kind = node.type
    if kind == "compound_statement" and node.children and node.children[0].type == "((":
        return _arithmetic(shell, node, state)
    if kind in ("program", "compound_statement", "do_group", "else_clause", "ERROR"):
        return shell.statements(node.children, state)
    if kind == "redirected_statement":
        return _redirected(shell, node, state)
    if kind == "list":
        return _list(shell, node, state)
    if kind == "pipeline":
        return _pipeline(shell, node, state)
    if kind == "subshell":
        own = state.copy()
        status = shell.statements(node.children, own)
        state.written.update(own.written)
        return status
    if kind == "negated_command":
        inside = node.named_children
        return shell.statement(inside[0], state).negated() if inside else UNSURE
    if kind == "test_command":
        return holds(shell, node, state)
    if kind == "if_statement":
        return _if(shell, node, state)
    if kind == "case_statement":
        return _case(shell, node, state)
    if kind == "for_statement":
        return _for(shell, node, state)
    if kind in ("while_statement", "c_style_for_statement"):
        return _while(shell, node, state)
    if kind == "function_definition":
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[shell.text(name)] = (body, shell.source)
        return SUCCESS
    if kind == "declaration_command":
        return _declaration(shell, node, state)
    if kind == "unset_command":
        for child in node.named_children:
            if child.type in ("variable_name", "word") and not shell.text(child).startswith("-"):
                state.variables[shell.text(child)] = Variable(unset=True)
        return SUCCESS
    return UNSURE


def _arithmetic(shell: Shell, node: Any, state: State) -> ExitStatus:
    """``(( N > 2 ))``, ``(( N++ ))``, ``(( N += 2 ))``."""
    inside = node.named_children
    if len(inside) != 1:
        return UNSURE
    expression = inside[0]
    target = expression.named_children[0] if expression.named_children else None
    operator = next((shell.text(child) for child in expression.children if not child.is_named), "")
    if target is None or target.type not in ("variable_name", "word") or operator not in _CHANGING:
        number = number_of(shell, expression, state)
        return UNSURE if number is None else ExitStatus(number != 0)
    name = shell.text(target)
    before = number_of(shell, target, state)
    by = number_of(shell, expression.named_children[-1], state) if operator not in ("++", "--") else 1
    after = by if operator == "=" else combined(before, operator[0], by)
    place = shell.place(expression)
    piece = Piece(None if after is None else str(after), place.source, place.start, place.end)
    state.set(name, Variable((piece,), place))
    return UNSURE


def _list(shell: Shell, node: Any, state: State) -> ExitStatus:
    # `a && b && c …` nests to the left: walk down without recursion.
    chain: list[tuple[str, Any]] = []
    current = node
    while current.type == "list" and len(current.named_children) >= 2:
        operator = next((child.type for child in current.children if child.type in ("&&", "||")), "&&")
        chain.append((operator, current.named_children[-1]))
        current = current.named_children[0]
    status = shell.statement(current, state)
    for operator, right in reversed(chain):
        if state.gone:
            break
        wanted = operator == "&&"
        if status.success is None or status.assumed:
            branch = state.copy()
            reached = shell.statement(right, branch)
            if status.success is wanted and not branch.ended:
                state.become(branch)
                status = ExitStatus(reached.success, assumed=True)
            elif status.success is None:
                shell.either(branch, state.copy(), state, right)
                status = UNSURE
        elif status.success is wanted:
            status = shell.statement(right, state)
        elif status.success and right.type not in ("list",):
            # What would run after a failure is told of too, but changes nothing.
            shell.statement(right, state.copy())
    return status


def _pipeline(shell: Shell, node: Any, state: State) -> ExitStatus:
    status = SUCCESS
    for child in node.named_children:
        own = state.copy()
        status = shell.statement(child, own)
        state.written.update(own.written)
        if child.type == "command":
            _note_written(shell, child, [], None, state)
    return status


def _if(shell: Shell, node: Any, state: State) -> ExitStatus:
    possible: list[State] = []
    clause = node
    clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
    settled = False
    for index in range(len(clauses) + 1):
        clause = node if index == 0 else clauses[index - 1]
        if clause.type == "else_clause":
            branch = state.copy()
            shell.statements(clause.children, branch)
            possible.append(branch)
            settled = True
            break
        condition, body = _condition_and_body(clause)
        status = shell.statements(condition, state).as_condition()
        if status.success is False and not status.assumed:
            continue
        branch = state.copy()
        shell.statements(body, branch)
        if status.success and not (status.assumed and branch.ended):
            possible.append(branch)
            settled = True
            break
        if status.success is None or (status.success and branch.ended):
            possible.append(branch)
        # Taken as false for what the caller leaves unset: what it would run was told of, its changes are dropped.
    if not settled:
        possible.append(state.copy())
    state.become(possible[0] if len(possible) == 1 else merge(possible, shell.place(node)))
    return SUCCESS


def _condition_and_body(clause: Any) -> tuple[list[Any], list[Any]]:
    condition: list[Any] = []
    body: list[Any] = []
    target = condition
    for child in clause.children:
        if child.type == "then":
            target = body
        elif child.type not in ("elif_clause", "else_clause", "if", "elif", "fi"):
            target.append(child)
    return condition, body


def _case(shell: Shell, node: Any, state: State) -> ExitStatus:
    value = node.child_by_field_name("value")
    text = text_of(expand(shell, value, state)) if value is not None else None
    possible: list[State] = []
    for item in (child for child in node.children if child.type == "case_item"):
        patterns = item.children_by_field_name("value")
        matches: list[bool | None] = []
        for pattern in patterns:
            wanted = text_of(expand(shell, pattern, state))
            if wanted is None:
                matches.append(None)
            elif wanted == "*":
                matches.append(True)
            elif text is None:
                matches.append(None)
            else:
                matches.append(len(text) <= 4096 and fnmatchcase(text, wanted))
        if not any(match is not False for match in matches):
            continue
        values = {id(pattern) for pattern in patterns}
        starts = {pattern.start_byte for pattern in patterns}
        body = [child for child in item.children if id(child) not in values and child.start_byte not in starts]
        branch = state.copy()
        shell.statements(body, branch)
        possible.append(branch)
        if True in matches:
            break
    else:
        possible.append(state.copy())
    state.become(possible[0] if len(possible) == 1 else merge(possible, shell.place(node)))
    return SUCCESS


def _for(shell: Shell, node: Any, state: State) -> ExitStatus:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        return UNSURE
    words = [word for value in node.children_by_field_name("value") for word in expand_words(shell, value, state)]
    name = shell.text(variable)
    known = all(word.value is not None and not any(c in word.value for c in "*?{") for word in words)
    if not words or not known or len(words) > _MAX_ITERATIONS:
        return _unknown_turns(shell, node, state, [body], name)
    for word in words:
        state.set(name, Variable(word.pieces, word.place))
        shell.statement(body, state)
        if state.leaving == "continue":
            state.leaving = ""
        if state.gone:
            break
    if state.leaving == "break":
        state.leaving = ""
    return SUCCESS


def _while(shell: Shell, node: Any, state: State) -> ExitStatus:
    body = node.child_by_field_name("body")
    if body is None:
        return UNSURE
    if node.type == "c_style_for_statement":
        return _unknown_turns(shell, node, state, [body], "")
    condition = [child for child in node.children if child is not body and child.start_byte < body.start_byte]
    until = bool(condition) and condition[0].type == "until"
    condition = [child for child in condition if child.type not in ("while", "until")]
    before = state.copy()
    for _turn in range(_MAX_ITERATIONS):
        trial = state.copy()
        status = shell.statements(condition, trial).as_condition()
        success = status.negated().success if until else status.success
        if success is False:
            if status.assumed:
                shell.statement(body, trial.copy())
            return SUCCESS
        if success is None or status.assumed:
            break
        state.become(trial)
        shell.statement(body, state)
        if state.leaving == "continue":
            state.leaving = ""
        if state.leaving == "break":
            state.leaving = ""
            return SUCCESS
        if state.gone:
            return SUCCESS
    else:
        state.become(before)
    return _unknown_turns(shell, node, state, [*condition, body], "")


def _unknown_turns(shell: Shell, node: Any, state: State, parts: list[Any], name: str) -> ExitStatus:
    """A loop that turns an unknown number of times: what it changes is unknown, inside it and after it."""
    place = shell.place(node)
    if name:
        state.forget(name, place, CHANGED_IN_LOOP.format(name=name, line=place.line))
    trial = state.copy()
    with shell.quietly():
        shell.statements(parts, trial)
    for changed, variable in trial.variables.items():
        if not variable.same(state.variables.get(changed)):
            state.forget(changed, place, CHANGED_IN_LOOP.format(name=changed, line=place.line))
    if [word.value for word in trial.positional] != [word.value for word in state.positional]:
        state.positional, state.arguments_given = (), False
    inside = state.copy()
    shell.statements(parts, inside)
    state.functions.update(inside.functions)
    state.written.update(inside.written)
    return SUCCESS


def _declaration(shell: Shell, node: Any, state: State) -> ExitStatus:
    word = shell.text(node.children[0]) if node.children else ""
    exported = _DECLARING.get(word, False)
    removing = False
    for child in node.named_children:
        text = shell.text(child)
        if child.type == "word" and text.startswith("-"):
            exported = exported or "x" in text
            removing = removing or (word == "export" and "n" in text)
            continue
        if word == "local" and state.locals:
            target = child.child_by_field_name("name") if child.type == "variable_assignment" else child
            if target is not None:
                state.locals[-1].setdefault(shell.text(target), state.variables.get(shell.text(target)))
        if child.type == "variable_assignment":
            shell.assign(child, state, exported=exported)
        elif child.type in ("variable_name", "word") and (exported or removing):
            _export(text, state, exported and not removing)
        elif child.type in ("simple_expansion", "string", "concatenation", "expansion"):
            for made in expand_words(shell, child, state):
                name, equals, value = (made.value or "").partition("=")
                if equals and name.isidentifier():
                    piece = Piece(value, made.place.source, made.place.start, made.place.end)
                    state.set(name, Variable((piece,), made.place, exported))
    return SUCCESS


def _export(name: str, state: State, exported: bool) -> None:
    variable = state.variables.get(name)
    if variable is not None and not variable.unset:
        state.variables[name] = msgspec.structs.replace(variable, exported=exported)


def _redirected(shell: Shell, node: Any, state: State) -> ExitStatus:
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
        else:
            status = shell.statement(body, state)
        given = (standard_input, place) if standard_input is not None and place is not None else None
        _note_written(shell, body, redirects, given, state)
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
    shell: Shell, body: Any, redirects: list[Any], given: tuple[tuple[Piece, ...], Place] | None, state: State
) -> None:
    """Note the files that a command writes: what ``cat`` and ``tee`` are given, else a text that can't be told."""
    name = body.child_by_field_name("name") if body.type == "command" else None
    program = shell.text(name) if name is not None else ""
    targets = [
        word
        for child in redirects
        if child.type == "file_redirect" and any(c.type in _WRITING for c in child.children)
        for target in [child.child_by_field_name("destination")]
        if target is not None
        for word in expand_words(shell, target, state)
    ]
    if program == "tee":
        targets += [
            word for child in body.children_by_field_name("argument") for word in expand_words(shell, child, state)
        ]
    place = shell.place(body)
    made = given if given is not None and program in ("cat", "tee") else None
    for word in targets:
        if word.value and not word.value.startswith("/dev/"):
            unknown = (Piece(None, place.source, place.start, place.end),), place
            state.written[os.path.normpath(os.path.join(state.cwd, word.value))] = made or unknown
