"""The script of a project that writes a file which a launch lacks: the step before, which a user would run first."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gonogo.evidence.prepared import FOLDER
from gonogo.evidence.script.script import Call, Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, UserError, translated
from gonogo.finding.remedy import Purpose, Reason, rehearse_again

_WRITERS = (
    "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.memmap", "torch.save", "pickle.dump", "json.dump",
    "joblib.dump", "h5py.File", "open", "*.open", "*.to_csv", "*.to_parquet", "*.to_json", "*.to_pickle", "*.tofile",
    "*.save_to_disk", "*.write_text", "*.write_bytes", "*.export", "tarfile.open", "zipfile.ZipFile",
)  # fmt: skip
_OPENING = frozenset({"open", "File", "ZipFile", "memmap"})
_WRITING_MODE_PATTERN = re.compile(r"[wax]|r\+")
_MAX_FILES = 400
_MAX_BYTES = 1 << 19
_MAX_DEPTH = 4
_MIN_PIECE_LENGTH = 4
_PRODUCED = translated("{text}; {place} writes it: run that step first, or put a few files of its output there")


def name_producer(text: Text, path: str, folder: Path) -> Text:
    """A sentence about a missing file, extended by the place in the project that writes the file, if there is one."""
    place = find_producer(os.path.normpath(folder / path), folder)
    return text if place is None else _PRODUCED.format(text=text, place=place)


def reason_with_producer(reason: Reason, path: str, folder: Path) -> Reason:
    """As :func:`name_producer`, where the next step then is to run what writes the file."""
    place = find_producer(os.path.normpath(folder / path), folder)
    if place is None:
        return reason
    after = rehearse_again(purpose=Purpose.AFTER_STEP, subject=place)
    return Reason(_PRODUCED.format(text=reason.why, place=place), after)


@functools.lru_cache(maxsize=64)
def find_producer(path: str, folder: Path) -> str | None:
    """``FILE:LINE`` at which a script below ``folder`` writes the file or folder at an absolute path; None: none does.

    The name has to be in the call that writes it, or in what its arguments were computed from; failing that, in a
    script that writes files, for which its own line is given.
    """
    pieces = list(_distinctive_parts(path))
    weaker: str | None = None
    for file in _python_files(folder):
        try:
            source = SourceFile.read(file)
        except UserError:
            continue
        if len(source.data) > _MAX_BYTES or not any(
            piece[:_MIN_PIECE_LENGTH].encode() in source.data for piece in pieces
        ):
            continue
        script = Script(source)
        writes = [call for call in script.calls(*_WRITERS) if _writes_file(call)] if script.tree is not None else []
        shown = os.path.relpath(file, folder)
        for call in writes:
            strings = set(_resolved_strings(script, call.node, 0))
            if any(piece in one or _is_filled_in(one, piece) for piece in pieces for one in strings):
                return f"{shown}:{call.line}"
        if writes and weaker is None and not _is_training_script(script):
            naming = [
                (len(node.value), node.lineno)  # the shortest is the name itself, rather than a text about it
                for node in script.nodes(ast.Constant)
                if isinstance(node.value, str) and any(piece in node.value for piece in pieces)
            ]
            naming += [
                (len(text), node.lineno)
                for node in script.nodes(ast.JoinedStr)
                if any(_is_filled_in(text := _template(node), piece) for piece in pieces)
            ]
            if naming:
                weaker = f"{shown}:{min(naming)[1]}"
    return weaker


def _distinctive_parts(path: str) -> Iterator[str]:
    """What a script that writes the path would contain: the file name without its number, or the folder."""
    name = os.path.basename(path.rstrip("/"))
    stem = re.split(r"\d+(?:\.\w+)?$|\*", name)[0] or name
    for piece in (name, stem):
        if len(piece) >= _MIN_PIECE_LENGTH and not piece.startswith("."):
            yield piece


def _python_files(folder: Path) -> Iterator[Path]:
    count = 0
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and name not in (FOLDER, "site-packages", "node_modules", "tests")
            and not os.path.exists(os.path.join(at, name, "pyvenv.cfg"))
        )  # fmt: skip
        for name in sorted(files):
            if name.endswith(".py"):
                count += 1
                if count > _MAX_FILES:
                    return
                yield Path(at, name)


def _writes_file(call: Call) -> bool:
    """Whether a call writes a file; ``open`` does only in a mode for writing."""
    if call.method not in _OPENING:
        return True
    modes = [call.keyword("mode"), *(call.argument(at) for at in range(min(3, len(call.node.args))))]
    return any(
        isinstance(mode.value, str) and len(mode.value) <= 3 and _WRITING_MODE_PATTERN.search(mode.value)
        for mode in modes
    )


_VALUE = "\0"
"""What stands in a template for a value that an f-string fills in."""


def _template(node: ast.JoinedStr) -> str:
    """An f-string with :data:`_VALUE` in place of its values."""
    return "".join(str(one.value) if isinstance(one, ast.Constant) else _VALUE for one in node.values)


def _is_filled_in(template: str, name: str) -> bool:
    """Whether a file's name may be what a template becomes: its own letters are in it, in order, and not too few."""
    own = os.path.basename(template)
    if _VALUE not in own or len(own.replace(_VALUE, "").rpartition(".")[0]) < _MIN_PIECE_LENGTH:
        return False
    return re.fullmatch(r"[\w-]+".join(map(re.escape, own.split(_VALUE))), name) is not None


def _resolved_strings(script: Script, node: ast.AST, depth: int) -> Iterator[str]:
    """The strings and f-strings in an expression, and in what the names in it were computed from."""
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            yield _template(one)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and depth < _MAX_DEPTH:
            bound = script.bound_to(one)
            if bound is not one:
                yield from _resolved_strings(script, bound, depth + 1)


def _is_training_script(script: Script) -> bool:
    """Whether a script trains: then it names its data to read it, and writes checkpoints."""
    return any(True for _ in script.calls("*.backward", "*.train", "*Trainer"))
