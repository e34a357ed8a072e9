"""Parses a shell script into a syntax tree, whatever its bytes are, in bounded time and memory."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, translated

MAX_SCRIPT = 512 << 10
"""In bytes. Launch scripts have a few kilobytes; anything larger is an installer with an embedded archive."""
_MAX_DEPTH = 500
"""Nesting depth. Beyond it, the parser's memory and time grow with depth times size."""
_MAX_PIPES = 5000
"""Per script: tree-sitter hangs or overflows its stack on a pipeline of some ten thousand commands."""
_MAX_SECONDS = 0.7
"""Of CPU time. A script that bash accepts takes 20 ms at most; after a syntax error, the parser tries every way to
recover, in time quadratic in the length of what it can't parse."""
_CHUNK = 1 << 12
"""Bytes passed to the parser at a time; when it backtracks, it requests them again."""

_TOO_LARGE = translated(
    "the file has {size} KiB, and gonogo reads shell scripts only up to {limit} KiB: give the script that "
    "starts the training"
)
_NUL = translated("line {line} contains a NUL byte, which bash can't read: save the file as UTF-8")
_UTF16 = translated("the script is in UTF-16, which bash can't read: save it as UTF-8 without a byte-order mark")
_TOO_MANY_PIPES = translated(
    "the script contains more than {limit} pipes, so it was not read: give the script that starts the training"
)
_TOO_DEEP = translated(
    "line {line} is nested more than {limit} levels deep, so the script was not read: reduce the nesting"
)
_SYNTAX_ERROR_REASON = translated("syntax error near line {line}: check it with `bash -n`")


@cache
def _bash_language() -> Any:
    """tree-sitter's grammar of bash."""
    import tree_sitter

    return tree_sitter.Language(_grammar())


def _grammar() -> Any:
    """tree-sitter-bash's grammar, loaded from its extension module only.

    Its package imports importlib.resources for query files that aren't used here, which takes 10 ms at each start.
    """
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("tree_sitter_bash")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("_binding", list(folders)) if folders else None
    if spec is None or spec.loader is None:
        import tree_sitter_bash

        return tree_sitter_bash.language()
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.language()


def parse_script(source: SourceFile, part: tuple[int, int] | None = None) -> Any:
    """The root node of a script, or of a byte range of it; None if it can't be parsed, for the reason in ``gap``.

    Code that bash itself would reject still has a tree, as far as the parser finds one in bounded time.
    """
    start, end = part or (0, len(source.data))
    gap = _unreadable(source, start, end)
    root = None
    if gap is None:
        root, gap = _parse_shell(source, part)
    if gap is not None:
        source.gap = source.gap or gap
    return root


def _unreadable(source: SourceFile, start: int, end: int) -> Text | None:
    """Why these bytes can't be passed to the parser, if so."""
    if end - start > MAX_SCRIPT:
        return _TOO_LARGE.format(size=(end - start) >> 10, limit=MAX_SCRIPT >> 10)
    if source.data.count(b"|", start, end) > _MAX_PIPES:
        return _TOO_MANY_PIPES.format(limit=_MAX_PIPES)
    nul = source.data.find(b"\0", start, end)
    if nul < 0:
        return None
    if source.data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _UTF16
    return _NUL.format(line=source.line_of(nul))


def _parse_shell(source: SourceFile, part: tuple[int, int] | None) -> tuple[Any, Text | None]:
    import tree_sitter

    data = source.data
    parser = tree_sitter.Parser(_bash_language())
    if part is not None:
        parser.included_ranges = [
            tree_sitter.Range(_tree_sitter_point(source, part[0]), _tree_sitter_point(source, part[1]), *part)
        ]
    reached = 0
    latest = time.thread_time() + _MAX_SECONDS

    def give_up(offset: int, _has_error: bool) -> bool:
        nonlocal reached
        reached = max(reached, offset)
        return time.thread_time() > latest

    try:
        tree = parser.parse(lambda offset, _point: data[offset : offset + _CHUNK], progress_callback=give_up)
    except ValueError:  # the parser was cancelled
        tree = None
    if tree is None:
        return None, _SYNTAX_ERROR_REASON.format(line=source.line_of(reached))
    start, end = part or (0, len(data))
    deep = _too_deep_at(tree) if end - start > 2 * _MAX_DEPTH else None
    if deep is not None:
        return None, _TOO_DEEP.format(line=source.line_of(deep), limit=_MAX_DEPTH)
    return tree.root_node, None


def _tree_sitter_point(source: SourceFile, offset: int) -> tuple[int, int]:
    line = source.line_of(offset)
    return line - 1, offset - source.line_start(line)


def _too_deep_at(tree: Any) -> int | None:
    """The offset of a node that is nested too deeply; None if there is none."""
    cursor = tree.walk()
    while True:
        if cursor.goto_first_child():
            if cursor.depth > _MAX_DEPTH:
                return int(cursor.node.start_byte)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return None
