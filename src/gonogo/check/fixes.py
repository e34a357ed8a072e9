"""What the fixes of findings come to: diffs, and files changed.

A fix is carried out whole or not at all. Two fixes that change the same bytes in different ways are a conflict: the
first, which belongs to the better finding, is carried out, and the other is reported.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gonogo.finding import Applicability, Edit, Finding, Fix, Text
from gonogo.finding.errors import UserError
from gonogo.report.atomic import write_atomically

_CHANGED = Text(
    "{path} has changed while gonogo was reading it; nothing was written: run it again",
    "{path} 在 gonogo 读取期间被修改；没有写入任何内容：请重新运行",
)
_CANNOT_WRITE = Text("can't write {path}: {why}", "无法写入 {path}：{why}")
_OUTSIDE = Text(
    "it is a link that leads out of {root}: fix {target} itself", "它是指向 {root} 之外的链接：请直接修改 {target}"
)


class NotApplied(msgspec.Struct, frozen=True):
    """A fix that was not carried out, and why."""

    hazard: str
    path: str
    why: Text


class FixPlan(msgspec.Struct, frozen=True):
    """The fixes that can be carried out together: for each file its edits, in the order of the file."""

    edits: dict[str, list[Edit]] = {}
    fixes: tuple[tuple[Finding, Fix], ...] = ()
    not_applied: tuple[NotApplied, ...] = ()


def planned(findings: Iterable[Finding], *, unsafe: bool) -> FixPlan:
    """The first fix of each finding that may be applied by the tool: safe ones, with ``unsafe`` also the others."""
    allowed = {Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE}
    edits: dict[str, list[Edit]] = {}
    done: list[tuple[Finding, Fix]] = []
    conflicts = []
    for finding in findings:
        fix = next((fix for fix in finding.fixes if fix.edits and fix.applicability in allowed), None)
        if fix is None:
            continue
        clash = next((edit for edit in fix.edits if _clashes(edit, edits.get(edit.path, []))), None)
        if clash is not None:
            why = Text(
                "another fix changes the same place: run --fix again after looking at it",
                "另一个修复修改了同一处：请确认后再次运行 --fix",
            )
            conflicts.append(NotApplied(finding.hazard, clash.path, why))
            continue
        for edit in fix.edits:
            if edit not in edits.setdefault(edit.path, []):
                edits[edit.path].append(edit)
        done.append((finding, fix))
    for of_file in edits.values():
        of_file.sort(key=lambda edit: (edit.start, edit.end))
    return FixPlan(edits, tuple(done), tuple(conflicts))


def _clashes(edit: Edit, others: Sequence[Edit]) -> bool:
    for other in others:
        if edit == other:
            continue
        if edit.start < other.end and other.start < edit.end:
            return True
        if edit.start == other.start and (edit.start == edit.end or other.start == other.end):
            return True  # two insertions at one place: which comes first is not for the tool to say
    return False


def edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file's bytes with the edits made. Raises ValueError where the file isn't what the edits were made for."""
    parts = []
    position = 0
    for edit in edits:
        if data[edit.start : edit.end] != edit.before or edit.start < position:
            raise ValueError(edit.path)
        parts += [data[position : edit.start], edit.after]
        position = edit.end
    return b"".join((*parts, data[position:]))


def diff_of(path: str, before: bytes, after: bytes) -> str:
    """A unified diff, as ``patch -p1`` and git take it. Line ends are shown as they are."""
    old, new = (data.decode("utf-8", "surrogateescape") for data in (before, after))
    name = path.replace(os.sep, "/").lstrip("/")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}")
    )


def _lines(text: str) -> list[str]:
    """The lines with their ends; only ``\\n`` ends one, as in patch."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def with_diffs(findings: Iterable[Finding], files: dict[str, bytes]) -> tuple[Finding, ...]:
    """The findings with the diff of each of their fixes; ``files`` are the bytes that the edits were made for."""
    return tuple(
        replace(finding, fixes=tuple(_with_diff(fix, files) for fix in finding.fixes)) if finding.fixes else finding
        for finding in findings
    )


def _with_diff(fix: Fix, files: dict[str, bytes]) -> Fix:
    if not fix.edits or fix.diff:
        return fix
    by_path: dict[str, list[Edit]] = {}
    for edit in sorted(fix.edits, key=lambda edit: (edit.path, edit.start)):
        by_path.setdefault(edit.path, []).append(edit)
    diffs = [diff_of(path, files[path], edited(files[path], edits)) for path, edits in by_path.items() if path in files]
    return replace(fix, diff="".join(diffs))


def diff_of_plan(plan: FixPlan) -> str:
    """One diff of all that the plan would change. Raises UserError where a file has changed meanwhile."""
    return "".join(diff_of(path, *_before_and_after(path, edits)) for path, edits in sorted(plan.edits.items()))


def apply(plan: FixPlan, roots: Sequence[Path]) -> tuple[tuple[str, ...], tuple[NotApplied, ...]]:
    """Change the files; answers which were, and what could not be.

    A link is followed to the file it names only within ``roots``, and stays a link. All new contents are worked out
    before the first file is written. Raises UserError where a file has changed since it was read, or can't be written.
    """
    refused = []
    contents: dict[Path, tuple[str, bytes]] = {}
    for path, edits in sorted(plan.edits.items()):
        target = Path(os.path.realpath(path))
        root = next((root for root in roots if _within(target, root)), None)
        if root is None:
            why = _OUTSIDE.format(root=roots[0] if roots else ".", target=target)
            hazards = [finding.hazard for finding, fix in plan.fixes if any(edit.path == path for edit in fix.edits)]
            refused += [NotApplied(hazard, path, why) for hazard in hazards]
            continue
        if target not in contents:  # else the same file under another name, whose edits are the same
            contents[target] = (path, _before_and_after(path, edits)[1])
    written = []
    for target, (path, data) in contents.items():
        try:
            write_atomically(target, data, stat.S_IMODE(target.stat().st_mode))
        except OSError as error:
            raise UserError(_CANNOT_WRITE.format(path=path, why=error.strerror or error)) from None
        written.append(path)
    return tuple(written), tuple(refused)


def _within(target: Path, root: Path) -> bool:
    return target.is_relative_to(os.path.realpath(root))


def _before_and_after(path: str, edits: Sequence[Edit]) -> tuple[bytes, bytes]:
    try:
        before = Path(path).read_bytes()
        return before, edited(before, edits)
    except OSError as error:
        raise UserError(_CANNOT_WRITE.format(path=path, why=error.strerror or error)) from None
    except ValueError:
        raise UserError(_CHANGED.format(path=path)) from None
