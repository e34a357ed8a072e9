"""The source code around a failure's frames: from the run's files, or from packages installed here if they match.

Another release of a package may have other lines at the same place: lines are shown only if the file contains the
frame's line of code as logged, and the release that they are from is stated.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.code_owner import code_owner_of_path, distribution_of
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.traceback import LogFrame
from gonogo.evidence.paths import is_file, open_for_reading
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, translated

_BEFORE, _AFTER = 8, 5
_MAX_BYTES = 2 << 20
_MAX_EXCERPTS = 6
_MAX_LINE_LENGTH = 160
_MAX_SIGNATURE_LINES = 6
"""Maximum lines of a function's signature shown above the excerpt."""
_IN_PACKAGES_PATTERN = re.compile(r"(?:site|dist)-packages[/\\](.*)")

_FROM_RUN = translated("the run's file")
_FROM_INSTALLED = translated("{package} {version} as installed here")
_OTHER_RELEASE = translated("; the run had {version}")


@dataclass(frozen=True)
class SourceExcerpt:
    """The lines around a frame; ``origin`` says which file they are from."""

    frame: LogFrame
    origin: Text
    lines: tuple[tuple[int, str], ...]
    at: int


def source_around(
    log: FailureLog, files: Mapping[str, SourceFile], released: Mapping[str, str] | None = None
) -> Iterator[SourceExcerpt]:
    """The source around the most important frames, the innermost of the first error first.

    ``files`` are the run's own files by path; ``released`` are fetched files of the release that the run used, by
    their path below site-packages.
    """
    shown = 0
    seen: set[tuple[str, int]] = set()
    for frame in _most_important_frames(log):
        if shown >= _MAX_EXCERPTS or (frame.path, frame.line) in seen:
            continue
        seen.add((frame.path, frame.line))
        excerpt = _frame_excerpt(frame, log, files, released or {})
        if excerpt is not None:
            shown += 1
            yield excerpt


def _most_important_frames(log: FailureLog) -> Iterator[LogFrame]:
    from gonogo.evidence.log.role import Role

    errors: Iterable[LoggedError] = [error for error in (*log.errors, *log.truncated_errors) if error.role is Role.ROOT]
    for error in list(errors)[:3]:
        frames = [frame for frame in error.all_frames if frame.line]
        if not frames:
            continue
        yield frames[-1]
        own = next((frame for frame in reversed(frames) if not is_library_path(frame.path)), None)
        if own is not None:
            yield own
        yield from reversed(frames[-4:-1])


def _frame_excerpt(
    frame: LogFrame, log: FailureLog, files: Mapping[str, SourceFile], released: Mapping[str, str]
) -> SourceExcerpt | None:
    packaged = _IN_PACKAGES_PATTERN.search(frame.path)
    if packaged is not None:
        return _package_excerpt(frame, packaged[1].replace("\\", "/"), log, released)
    source = _file_of(frame.path, files)
    shown = _excerpt_around(frame, source.text, _FROM_RUN) if source is not None else None
    if shown is None and (owner := code_owner_of_path(frame.path)).owner == "clone" and owner.module:
        # A framework run from a clone: the release installed here may have the same lines.
        relative = owner.module.replace(".", "/") + ("/__init__.py" if frame.path.endswith("__init__.py") else ".py")
        shown = _package_excerpt(frame, relative, log, released)
    return shown


def _package_excerpt(
    frame: LogFrame, relative_path: str, log: FailureLog, released: Mapping[str, str]
) -> SourceExcerpt | None:
    """The lines around a frame in a package's file, given by its path below site-packages."""
    package, version = _distribution_and_version(relative_path)
    logged_version = log.setup.version_texts.get(package.lower().replace("_", "-"), "")
    if relative_path in released:
        return _excerpt_around(
            frame, released[relative_path], Text(f"{package} {logged_version}", f"{package} {logged_version}")
        )
    if version is None or (text := _read_installed(relative_path)) is None:
        return None
    origin = _FROM_INSTALLED.format(package=package, version=version)
    if logged_version and logged_version != version:
        other = _OTHER_RELEASE.format(version=logged_version)
        origin = Text(origin.en + other.en, origin.zh + other.zh)
    return _excerpt_around(frame, text, origin)


def _read_installed(relative_path: str) -> str | None:
    """The text of an installed package's file, also of an editable install; nothing is imported."""
    top, _, rest = relative_path.partition("/")
    folders = [Path(sysconfig.get_paths()[name], relative_path) for name in ("purelib", "platlib")]
    try:
        found = PathFinder.find_spec(top.removesuffix(".py"))
    except (ImportError, ValueError, AttributeError):
        found = None
    if found is not None and rest:
        folders += [Path(folder, rest) for folder in found.submodule_search_locations or ()]
    elif found is not None and found.origin:
        folders.append(Path(found.origin))
    return next((text for path in dict.fromkeys(folders) if (text := _read_text(path)) is not None), None)


def _excerpt_around(frame: LogFrame, text: str, origin: Text) -> SourceExcerpt | None:
    lines = text.splitlines()
    at = _line_of(frame, lines)
    if at is None:
        return None
    first, last = max(at - _BEFORE, 1), min(at + _AFTER, len(lines))
    numbers = [*_signature_lines(frame, lines, first), *range(first, last + 1)]
    return SourceExcerpt(
        frame, origin, tuple((number, lines[number - 1].rstrip()[:_MAX_LINE_LENGTH]) for number in numbers), at
    )


def _line_of(frame: LogFrame, lines: list[str]) -> int | None:
    """The line number (from 1) of the code that the log shows for a frame; None if the file doesn't contain it."""
    code = frame.code.strip()
    if not code:
        return None  # without its code, the line can't be verified
    if frame.line <= len(lines) and lines[frame.line - 1].strip().startswith(code[:80]):
        return frame.line
    same = [number for number, line in enumerate(lines, 1) if line.strip() == code]
    return min(same, key=lambda number: abs(number - frame.line), default=None) if len(code) > 12 else None


def _signature_lines(frame: LogFrame, lines: list[str], first_line: int) -> list[int]:
    """The line numbers of the function's signature, if it is above the excerpt."""
    name = frame.function.rpartition(".")[2]
    if not name.isidentifier():
        return []
    head = re.compile(rf"\s*(?:async )?def {re.escape(name)}\b")
    start = next((number for number in range(first_line - 1, 0, -1) if head.match(lines[number - 1])), None)
    if start is None:
        return []
    end = start
    while end < min(start + _MAX_SIGNATURE_LINES - 1, first_line - 1) and not lines[end - 1].rstrip().endswith(":"):
        end += 1
    return list(range(start, end + 1))


def _distribution_and_version(relative_path: str) -> tuple[str, str | None]:
    """The distribution of a path below site-packages (ms-swift for swift/…), and its version if installed here."""
    module = relative_path.removesuffix(".py").replace("/", ".")
    top = module.partition(".")[0]
    names = (distribution_of(module), top)
    known = next(((name, version) for name in names if (version := _installed_version(name)) is not None), None)
    if known is not None:
        return known
    for name in metadata.packages_distributions().get(top, ()):
        return name, _installed_version(name)
    return names[0], None


def _installed_version(distribution: str) -> str | None:
    """The version of a distribution that is installed here, or None."""
    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _file_of(path: str, files: Mapping[str, SourceFile]) -> SourceFile | None:
    """The run's file that a frame refers to: the one that shares most trailing path components, at least the name."""
    wanted = re.split(r"[/\\]", path)
    best, most = None, 0
    for name, source in files.items():
        parts = re.split(r"[/\\]", name)
        same = 0
        while same < min(len(parts), len(wanted)) and parts[-1 - same] == wanted[-1 - same]:
            same += 1
        if same > most:
            best, most = source, same
    return best


def _read_text(path: Path) -> str | None:
    if not is_file(path):
        return None
    try:
        with open_for_reading(path) as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError:
        return None
    return data.decode("utf-8", "replace") if len(data) <= _MAX_BYTES else None
