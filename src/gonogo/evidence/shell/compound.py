"""Evaluates compound statements: lists, pipelines, branches, loops, functions and redirections."""

from __future__ import annotations

import contextlib
import os
import re
from itertools import pairwise
from typing import Any

from gonogo.evidence.shell.conditions import evaluate_test_command
from gonogo.evidence.shell.expansion import (
    evaluate_arithmetic_range,
    expand_text,
    expand_unsplit,
    expand_words,
    pattern_to_regex,
    word_at,
)
from gonogo.evidence.shell.lexer import Lexer
from gonogo.evidence.shell.shell import Shell
from gonogo.evidence.shell.state import CHANGED_IN_LOOP, SUCCESS, UNSURE, ExitStatus, State, Variable, merge
from gonogo.evidence.shell.text import Piece, ShellWord, joined_text, matches_whole_text
from gonogo.evidence.source_file import Place

_MAX_ITERATIONS = 32
_WRITING_REDIRECTS = (">", ">>", ">|", "&>", "&>>")


def evaluate_compound(shell: Shell, node: Any, state: State) -> ExitStatus:
    """Evaluate a list, a pipeline, a branch, a loop or the like."""
    kind = node.type
    if kind == "compound_statement" and node.children and node.children[0].type == "((":
        return _run_arithmetic(shell, node, state)
    if kind in ("program", "compound_statement", "do_group", "else_clause", "ERROR"):
        return shell.statements(node.children, state)
    if kind == "redirected_statement":
        return _run_redirected(shell, node, state)
    if kind == "list":
        return _run_list(shell, node, state)
    if kind == "pipeline":
        return _run_pipeline(shell, node, state)
    if kind == "subshell":
        own = state.copy()
        own.on_exit = ()
        status = shell.statements(node.children, own)
        shell.at_exit(own)
        state.written.update(own.written)
        state.copied.update(own.copied)
        state.made |= own.made
        return status
    if kind == "negated_command":
        inside = node.named_children
        with shell.as_condition():
            return shell.statement(inside[0], state).negated() if inside else UNSURE
    if kind == "test_command":
        return evaluate_test_command(shell, node, state)
    if kind == "if_statement":
        return _run_if(shell, node, state)
    if kind == "case_statement":
        return _run_case(shell, node, state)
    if kind == "for_statement":
        return _run_for(shell, node, state)
    if kind in ("while_statement", "c_style_for_statement"):
        return _run_while(shell, node, state)
    if kind == "function_definition":
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[shell.text(name)] = (body, shell.source)
        return SUCCESS
    return UNSURE


def _run_arithmetic(shell: Shell, node: Any, state: State) -> ExitStatus:
    """``(( N > 2 ))``, ``(( N++ ))``, ``(( N += 2 ))``."""
    close = Lexer(shell.source.data, shell.limit).find_closing_parenthesis(node.start_byte + 2)
    number = evaluate_arithmetic_range(shell, node.start_byte + 2, close, state) if close is not None else None
    return UNSURE if number is None else ExitStatus(number != 0)


def _run_list(shell: Shell, node: Any, state: State) -> ExitStatus:
    # `a && b && c …` nests to the left: walk down without recursion.
    chain: list[tuple[str, Any]] = []
    current = node
    while current.type == "list" and len(current.named_children) >= 2:
        operator = next((child.type for child in current.children if child.type in ("&&", "||")), "&&")
        chain.append((operator, current.named_children[-1]))
        current = current.named_children[0]
    with shell.as_condition():
        status = shell.statement(current, state)
    for index, (operator, right) in enumerate(reversed(chain)):
        if state.has_ended:
            break
        if index + 1 < len(chain):
            with shell.as_condition():
                status = _and_or_list(shell, status, operator, right, state)
        else:
            status = _and_or_list(shell, status, operator, right, state)
    return status


def _and_or_list(shell: Shell, status: ExitStatus, operator: str, right: Any, state: State) -> ExitStatus:
    """The status of ``… && right`` if the left side ended with ``status``."""
    if operator:
        wanted = operator == "&&"
        if status.success is None or status.assumed:
            branch = state.copy()
            reached = shell.statement(right, branch)
            if status.success is wanted and not branch.ended:
                state.replace_with(branch)
                status = ExitStatus(reached.success, assumed=True)
            elif status.success is None:
                shell.merge_states(branch, state.copy(), state, right)
                status = UNSURE
        elif status.success is wanted:
            status = shell.statement(right, state)
        elif status.success and right.type not in ("list",):
            # Commands that would run after a failure are recorded too, but change nothing.
            shell.statement(right, state.copy())
    return status


def _run_pipeline(shell: Shell, node: Any, state: State) -> ExitStatus:
    status = SUCCESS
    for child in node.named_children:
        own = state.copy()
        status = shell.statement(child, own)
        state.written.update(own.written)
        state.copied.update(own.copied)
        if child.type == "command":
            _record_written_files(shell, child, [], None, state)
    return status


def _run_if(shell: Shell, node: Any, state: State) -> ExitStatus:
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
        with shell.as_condition():
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
        # Assumed false because of an unset variable: its commands were recorded, but its changes are dropped.
    if not settled:
        possible.append(state.copy())
    state.replace_with(possible[0] if len(possible) == 1 else merge(possible, shell.place(node)))
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


def _run_case(shell: Shell, node: Any, state: State) -> ExitStatus:
    value = node.child_by_field_name("value")
    text = joined_text(expand_unsplit(shell, word_at(shell, value.start_byte), state)) if value is not None else None
    possible: list[State] = []
    falling = False
    for item in (child for child in node.children if child.type == "case_item"):
        results, end = _match_patterns(shell, item, text, state)
        if not falling and not any(result is not False for result in results):
            continue
        body = [child for child in item.children if child.start_byte >= end]
        branch = state.copy()
        shell.statements(body, branch)
        possible.append(branch)
        if any(child.type in (";&", ";;&") for child in item.children):
            return _loop_unknown_times(shell, node, state, body, "")
        if True in results:
            break
    else:
        possible.append(state.copy())
    state.replace_with(possible[0] if len(possible) == 1 else merge(possible, shell.place(node)))
    return SUCCESS


def _match_patterns(shell: Shell, item: Any, text: str | None, state: State) -> tuple[list[bool | None], int]:
    """Whether each pattern of a ``case`` branch matches, and the offset at which the patterns end."""
    results: list[bool | None] = []
    end = item.start_byte
    for pattern in item.children_by_field_name("value"):
        if pattern.start_byte < end:
            continue
        word = word_at(shell, pattern.start_byte, pattern=True)
        end = max(word.end_byte, pattern.start_byte + 1)
        if shell.source.data[word.start_byte : word.end_byte] == b"*":
            results.append(True)
            continue
        wanted = pattern_to_regex(shell, word.parts, state)
        results.append(None if wanted is None or text is None or len(text) > 4096 else matches_whole_text(wanted, text))
    return results, end


def _run_for(shell: Shell, node: Any, state: State) -> ExitStatus:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        return UNSURE
    name = shell.text(variable)
    start = next((child.end_byte for child in node.children if child.type == "in"), None)
    if start is None:
        words = list(state.positional)
        if not state.arguments_given:
            return _loop_unknown_times(shell, node, state, [body], name)
    else:
        lexed = Lexer(shell.source.data, shell.limit).parse_words(start)
        words = [made for word in lexed for made in expand_words(shell, word, state)]
        shell.steps += len(words)  # nested loops repeat this expansion in each iteration
        if failed := shell.expansion_failure(state):
            return failed
    known = all(word.value is not None and not word.may_split and not _has_glob_pattern(word) for word in words)
    if (not words and start is None) or not known or len(words) > _MAX_ITERATIONS:
        return _loop_unknown_times(shell, node, state, [body], name) if words or not known else SUCCESS
    for word in words:
        state.set(name, Variable(word.pieces, word.place))
        shell.statement(body, state)
        if state.leaving == "continue":
            state.leaving = ""
        if state.has_ended:
            break
    if state.leaving == "break":
        state.leaving = ""
    return SUCCESS


def _has_glob_pattern(word: ShellWord) -> bool:
    """Whether a word contains a glob that matches no file here, although it may on the training machine."""
    return any(not piece.quoted and any(sign in (piece.text or "") for sign in "*?") for piece in word.pieces)


def _run_c_style_for(shell: Shell, node: Any, state: State, body: Any) -> ExitStatus:
    """``for ((i = 0; i < 3; i++))``."""
    opening = next((child.start_byte for child in node.children if child.type == "(("), None)
    close = Lexer(shell.source.data, shell.limit).find_closing_parenthesis(opening + 2) if opening is not None else None
    if opening is None or close is None:
        return _loop_unknown_times(shell, node, state, [body], "")
    data = shell.source.data
    edges = [opening + 1, *(at for at in range(opening + 2, close) if data[at] == 59), close]
    if len(edges) != 4:
        return _loop_unknown_times(shell, node, state, [body], "")
    parts = [(first + 1, last) for first, last in pairwise(edges)]
    before = state.copy()
    if evaluate_arithmetic_range(shell, *parts[0], state) is None:
        return _loop_unknown_times(shell, node, state, [body], "")
    for _turn in range(_MAX_ITERATIONS):
        number = evaluate_arithmetic_range(shell, *parts[1], state) if data[slice(*parts[1])].strip() else 1
        if number is None:
            break
        if number == 0:
            return SUCCESS
        shell.statement(body, state)
        if state.leaving in ("continue", "break"):
            ends, state.leaving = state.leaving == "break", ""
            if ends:
                return SUCCESS
        if state.has_ended:
            return SUCCESS
        if evaluate_arithmetic_range(shell, *parts[2], state) is None:
            break
    state.replace_with(before)
    for name in set(re.findall(r"[A-Za-z_]\w*", data[opening:close].decode("utf-8", "replace"))):
        state.set_unknown(name, shell.place(node), CHANGED_IN_LOOP.format(name=name, line=shell.place(node).line))
    return _loop_unknown_times(shell, node, state, [body], "")


def _run_while(shell: Shell, node: Any, state: State) -> ExitStatus:
    body = node.child_by_field_name("body")
    if body is None:
        return UNSURE
    if node.type == "c_style_for_statement":
        return _run_c_style_for(shell, node, state, body)
    condition = [child for child in node.children if child is not body and child.start_byte < body.start_byte]
    until = bool(condition) and condition[0].type == "until"
    condition = [child for child in condition if child.type not in ("while", "until")]
    before = state.copy()
    for _turn in range(_MAX_ITERATIONS):
        trial = state.copy()
        with shell.as_condition():
            status = shell.statements(condition, trial).as_condition()
        success = status.negated().success if until else status.success
        if success is False:
            if status.assumed:
                shell.statement(body, trial.copy())
            state.replace_with(trial)
            return SUCCESS
        if success is None or status.assumed:
            break
        state.replace_with(trial)
        shell.statement(body, state)
        if state.leaving == "continue":
            state.leaving = ""
        if state.leaving == "break":
            state.leaving = ""
            return SUCCESS
        if state.has_ended:
            return SUCCESS
    else:
        state.replace_with(before)
    return _loop_unknown_times(shell, node, state, [*condition, body], "")


def _loop_unknown_times(shell: Shell, node: Any, state: State, parts: list[Any], name: str) -> ExitStatus:
    """A loop with an unknown number of iterations: what it changes is unknown inside it and after it."""
    place = shell.place(node)
    if name:
        state.set_unknown(name, place, CHANGED_IN_LOOP.format(name=name, line=place.line))
    trial = state.copy()
    with shell.without_recording():
        shell.statements(parts, trial)
    for changed, variable in trial.variables.items():
        if not variable.is_same_value(state.variables.get(changed)):
            state.set_unknown(changed, place, CHANGED_IN_LOOP.format(name=changed, line=place.line))
    if [word.value for word in trial.positional] != [word.value for word in state.positional]:
        state.positional, state.arguments_given = (), False
    if trial.cwd != state.cwd or not trial.cwd_known:
        state.cwd_known = False
    inside = state.copy()
    shell.statements(parts, inside)
    state.on_exit = tuple(dict.fromkeys((*state.on_exit, *inside.on_exit)))
    state.functions.update(inside.functions)
    state.written.update(inside.written)
    state.copied.update(inside.copied)
    return SUCCESS


def _run_redirected(shell: Shell, node: Any, state: State) -> ExitStatus:
    """Evaluate a command with redirections: a heredoc is its input, or the text of a file that it writes."""
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
                standard_input = tuple(expand_text(shell, text.start_byte, text.end_byte, state, heredoc=True))
        redirects += [child for child in heredoc.named_children if child.type == "file_redirect"]
    # `cat <<EOF | cmd` and `cmd <<EOF && other` are inside the heredoc's node.
    operator = next((child.type for child in heredoc.children if child.type in ("&&", "||")), "") if heredoc else ""
    if body is not None:
        with shell.as_condition() if operator else contextlib.nullcontext():
            if body.type in ("command", "declaration_command", "variable_assignment", "variable_assignments"):
                status = shell.command(body, state, node, standard_input, place)
            else:
                status = shell.statement(body, state)
        given = (standard_input, place) if standard_input is not None and place is not None else None
        _record_written_files(shell, body, redirects, given, state)
    if heredoc is not None:
        inside = [
            child
            for child in heredoc.named_children
            if child.type not in ("heredoc_start", "heredoc_body", "heredoc_end") and "redirect" not in child.type
        ]
        for child in inside:
            if state.has_ended:
                break
            status = _and_or_list(shell, status, operator, child, state) if operator else shell.statement(child, state)
    return status


def _record_written_files(
    shell: Shell, body: Any, redirects: list[Any], heredoc: tuple[tuple[Piece, ...], Place] | None, state: State
) -> None:
    """Record the files that a command writes: ``cat`` and ``tee`` write their input; other contents are unknown."""
    name = body.child_by_field_name("name") if body.type == "command" else None
    program = shell.text(name) if name is not None else ""
    targets = [
        word
        for child in redirects
        if child.type == "file_redirect" and any(c.type in _WRITING_REDIRECTS for c in child.children)
        for target in [child.child_by_field_name("destination")]
        if target is not None
        for word in expand_words(shell, word_at(shell, target.start_byte), state)
    ]
    if program == "tee":
        lexed = Lexer(shell.source.data, shell.limit).parse_words(body.start_byte)
        targets += [made for word in lexed[1:] for made in expand_words(shell, word, state)]
    place = shell.place(body)
    made = heredoc if heredoc is not None and program in ("cat", "tee") else None
    for word in targets:
        if word.value and not word.value.startswith("/dev/"):
            unknown = (Piece(None, place.source, place.start, place.end),), place
            state.written[os.path.normpath(os.path.join(state.cwd, word.value))] = made or unknown
