"""Turn the fixes of findings into diffs, and apply them to files.

A fix is applied completely or not at all. Two fixes that change the same bytes in different ways are a conflict: the
first, which belongs to the more certain finding, is applied, and the other is reported.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gonogo.finding import Applicability, Edit, Finding, Fix, Text, UserError, translated
from gonogo.report.atomic import write_atomically

_FILE_CHANGED = translated("{path} changed while gonogo was reading it; nothing was written: run the command again")
_CANNOT_WRITE = translated("can't write {path}: {why}")
_SYMLINK_OUTSIDE_ROOT = translated("the file is a symlink that points outside {root}: fix {target} itself")


_MAX_TOTAL_DIFF_LENGTH = 1 << 20
"""Maximum number of characters of all diffs of a report together."""
_MAX_DIFF_LENGTH = 1 << 16
"""Maximum number of characters of a single diff."""
_MAX_CHANGED_BYTES = 1 << 14
"""Maximum number of bytes that one fix removes and inserts."""
_CONTEXT_LINES = 3
_HUNK_PATTERN = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


READ_ONLY = translated("the file is read-only: run chmod u+w {path}, then --fix again")


class UnappliedFix(msgspec.Struct, frozen=True):
    """A fix that was not applied, and the reason."""

    hazard: str
    path: str
    why: Text


class FixPlan(msgspec.Struct, frozen=True):
    """The fixes that can be applied together, and the edits of each file in file order."""

    edits: dict[str, list[Edit]] = {}
    fixes: tuple[tuple[Finding, Fix], ...] = ()
    not_applied: tuple[UnappliedFix, ...] = ()


def plan_fixes(findings: Iterable[Finding], *, unsafe: bool) -> FixPlan:
    """Plan the first applicable fix of each finding: only safe fixes, or with ``unsafe`` also unsafe ones."""
    allowed = {Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE}
    edits: dict[str, list[Edit]] = {}
    done: list[tuple[Finding, Fix]] = []
    conflicts = []
    for finding in findings:
        fix = next((fix for fix in finding.fixes if fix.edits and fix.applicability in allowed), None)
        if fix is None:
            continue
        clash = next((edit for edit in fix.edits if _conflicts_with_any(edit, edits.get(edit.path, []))), None)
        if clash is not None:
            why = translated("another fix changes the same lines: review it, then run --fix again")
            conflicts.append(UnappliedFix(finding.hazard, clash.path, why))
            continue
        for edit in fix.edits:
            if edit not in edits.setdefault(edit.path, []):
                edits[edit.path].append(edit)
        done.append((finding, fix))
    for of_file in edits.values():
        of_file.sort(key=lambda edit: (edit.start, edit.end))
    return FixPlan(edits, tuple(done), tuple(conflicts))


def _conflicts_with_any(edit: Edit, others: Sequence[Edit]) -> bool:
    for other in others:
        if edit == other:
            continue
        if edit.start < other.end and other.start < edit.end:
            return True
        if edit.start == other.start and (edit.start == edit.end or other.start == other.end):
            return True  # two insertions at one place: their order is undefined
    return False


def apply_edits_to(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file's bytes with the edits applied. Raises ValueError if the edits were made for other contents."""
    parts = []
    position = 0
    for edit in edits:
        if data[edit.start : edit.end] != edit.before or edit.start < position:
            raise ValueError(edit.path)
        parts += [data[position : edit.start], edit.after]
        position = edit.end
    return b"".join((*parts, data[position:]))


def unified_diff(path: str, before: bytes, after: bytes) -> str:
    """A unified diff that ``patch -p1`` and git accept. Line endings are kept."""
    old, new = _split_lines(before), _split_lines(after)
    name = path.replace(os.sep, "/").lstrip("/")
    # difflib is given only the changed part with its context, since its time grows with the number of lines.
    shortest = min(len(old), len(new))
    same = next((index for index in range(shortest) if old[index] != new[index]), shortest)
    left = shortest - same
    same_end = next((index for index in range(left) if old[-1 - index] != new[-1 - index]), left)
    first, kept_end = max(same - _CONTEXT_LINES, 0), max(same_end - _CONTEXT_LINES, 0)
    before_part, after_part = (
        [line.decode("utf-8", "surrogateescape") for line in lines[first : len(lines) - kept_end]]
        for lines in (old, new)
    )
    diff = difflib.unified_diff(before_part, after_part, f"a/{name}", f"b/{name}", n=_CONTEXT_LINES)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in _shift_hunks(diff, first)
    )


def _shift_hunks(diff: Iterable[str], line_offset: int) -> Iterator[str]:
    """Shift the line numbers of a diff's hunks by an offset, for a diff of a part of a file."""
    for line in diff:
        hunk = _HUNK_PATTERN.match(line)
        if hunk is None:
            yield line
        else:
            yield f"@@ -{int(hunk[1]) + line_offset}{hunk[2]} +{int(hunk[3]) + line_offset}{hunk[4]} @@\n"


def _split_lines(data: bytes) -> list[bytes]:
    """The lines with their line endings; only ``\\n`` ends a line, as in patch."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def with_diffs(findings: Iterable[Finding], files: dict[str, bytes]) -> tuple[Finding, ...]:
    """The findings with a diff for each of their fixes. ``files``: the contents that the edits were made for.

    In a file with a few very long lines, each diff contains most of the file: diffs above the length limit are left
    out of the report, and shown by ``--diff``.
    """
    left = _MAX_TOTAL_DIFF_LENGTH
    shown: list[Finding] = []
    for finding in findings:
        offered = [fix for fix in finding.fixes if _changed_bytes(fix) <= _MAX_CHANGED_BYTES]
        fixes = tuple(_with_diff(fix, files) if left > 0 else fix for fix in offered)
        # A diff that is left out for its length took as much time to make.
        left -= sum(len(fix.diff) or (_MAX_DIFF_LENGTH if fix.edits else 0) for fix in fixes)
        shown.append(replace(finding, fixes=fixes))
    return tuple(shown)


def _changed_bytes(fix: Fix) -> int:
    return sum(len(edit.before) + len(edit.after) for edit in fix.edits)


def _with_diff(fix: Fix, files: dict[str, bytes]) -> Fix:
    if not fix.edits or fix.diff:
        return fix
    by_path: dict[str, list[Edit]] = {}
    for edit in sorted(fix.edits, key=lambda edit: (edit.path, edit.start)):
        by_path.setdefault(edit.path, []).append(edit)
    diffs = [
        unified_diff(path, files[path], apply_edits_to(files[path], edits))
        for path, edits in by_path.items()
        if path in files
    ]
    diff = "".join(diffs)
    return replace(fix, diff=diff) if len(diff) <= _MAX_DIFF_LENGTH else fix


def diff_of_plan(plan: FixPlan) -> str:
    """A single diff of all changes in a plan. Raises UserError if a file has changed since it was read."""
    return "".join(unified_diff(path, *_read_and_edit(path, edits)) for path, edits in sorted(plan.edits.items()))


def apply_plan(
    plan: FixPlan, roots: Sequence[Path], may_overwrite: Callable[[str], bool] = lambda path: False
) -> tuple[tuple[str, ...], tuple[UnappliedFix, ...]]:
    """Write the planned changes; returns the changed files, and the fixes that could not be applied.

    A symlink is followed only if its target is within ``roots``, and stays a symlink. A read-only file is changed
    only if ``may_overwrite`` allows it. All new contents are computed before the first file is written. Raises
    UserError if a file has changed since it was read, or can't be written.
    """
    kept: dict[str, Text] = {}
    for path in sorted(plan.edits):
        target = Path(os.path.realpath(path))
        if not any(_is_within(target, root) for root in roots):
            kept[path] = _SYMLINK_OUTSIDE_ROOT.format(root=roots[0] if roots else ".", target=target)
        elif _is_read_only(target) and not may_overwrite(path):
            kept[path] = READ_ONLY.format(path=path)
    refused = []
    left: dict[str, list[Edit]] = {}
    for finding, fix in plan.fixes:
        in_way = next((edit.path for edit in fix.edits if edit.path in kept), None)
        if in_way is not None:
            refused.append(UnappliedFix(finding.hazard, in_way, kept[in_way]))
            continue
        for edit in fix.edits:
            if edit not in left.setdefault(edit.path, []):
                left[edit.path].append(edit)
    contents: dict[Path, tuple[str, bytes]] = {}
    for path, edits in sorted(left.items()):
        edits.sort(key=lambda edit: (edit.start, edit.end))
        target = Path(os.path.realpath(path))
        if target not in contents:  # otherwise it's the same file under another name, with the same edits
            contents[target] = (path, _read_and_edit(path, edits)[1])
    written = []
    for target, (path, data) in contents.items():
        try:
            write_atomically(target, data, stat.S_IMODE(target.stat().st_mode))
        except OSError as error:
            raise UserError(_CANNOT_WRITE.format(path=path, why=error.strerror or error)) from None
        written.append(path)
    return tuple(written), tuple(refused)


def _is_read_only(path: Path) -> bool:
    """Whether a file has no write permission for anyone. The mode is tested, since root may always write."""
    try:
        return not path.stat().st_mode & 0o222
    except OSError:
        return False  # the error is reported when the file is read


def _is_within(target: Path, root: Path) -> bool:
    return target.is_relative_to(os.path.realpath(root))


def _read_and_edit(path: str, edits: Sequence[Edit]) -> tuple[bytes, bytes]:
    """A file's bytes before and after the edits."""
    try:
        before = Path(path).read_bytes()
        return before, apply_edits_to(before, edits)
    except OSError as error:
        raise UserError(_CANNOT_WRITE.format(path=path, why=error.strerror or error)) from None
    except ValueError:
        raise UserError(_FILE_CHANGED.format(path=path)) from None
