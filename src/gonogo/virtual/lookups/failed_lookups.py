"""Lookups that failed: files, modules, libraries, programs, addresses, each with the code that asked.

Any of them may be the cause of a later failure, however its message is worded: pyarrow gives only the path, torch
says "Could not find any NVRTC library", user code may carry on with None. So lookups are recorded where they happen:
by Python's audit events, by wrappers of functions that search for files, by a finder at the end of ``sys.meta_path``,
and by the library loader. A lookup is related to a failure if the same function calls are on the stack both times
(:func:`lookups_before_failure`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
import pathlib
import posix
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.util import source_from_cache
from types import CodeType, FrameType, TracebackType
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from gonogo.evidence.rehearsal.record import FailedLookup, Frame, Phase
from gonogo.virtual.frame_variables import local_variables
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import MODULE_LISTING_SUFFIX
from gonogo.virtual.stack import OURS, is_standard_library, owner_of

Kind = Literal["file", "folder", "module", "library", "program", "address", "made"]
_MAX_LOOKUPS = 4096
_MAX_DEPTH = 150
_MAX_TEXT = 4096
_MAX_RECORDED = 200
_stat = posix.stat
_PATH_POSITION_BY_EVENT = {"open": 0, "os.scandir": 0, "os.listdir": 0, "os.chdir": 0, "sqlite3.connect": 0}
_AUDITED_EVENTS = frozenset({*_PATH_POSITION_BY_EVENT, "os.rename", "subprocess.Popen", "os.system", "os.posix_spawn"})
_IN_MEMORY_DATABASE_PATTERN = re.compile(r"^file:(?::memory:|.*[?&]mode=memory(?:&|$))")
_SHELL_PROGRAMS = frozenset({"sh", "bash", "dash", "zsh"})
_PROGRAM_NAME_PATTERN = re.compile(r"[\w./+-]+")
_SHELL_BUILTINS = frozenset(
    {"cd", "echo", "exit", "export", "set", "source", "test", "true", "false", "ulimit", "exec", "eval"}
)
_IGNORED_PATH_PREFIXES = ("/proc/self", "/proc/thread-self", "/sys/fs/cgroup", "/dev/null", "<")


_IGNORED_CALLER_MODULES = frozenset({"gettext", "locale", "mimetypes", "platform", "uuid", "zoneinfo"})
"""Modules of the standard library that probe for optional files of their own (argparse's translations, the system's
MIME types), which no program names."""


class _UnansweredLookup(NamedTuple):
    """One failed lookup, and the stack that made it: (identity of a frame, its code, its line), innermost first.
    Frames themselves are not kept, since they keep the program's values alive, so the identity of a frame that has
    returned may have been reused by the time something fails."""

    kind: Kind
    name: str
    asked: Frame
    stack: tuple[tuple[int, CodeType, int], ...]
    phase: Phase
    step: int
    into: str
    """The file into which what an address has was to be written."""


class FailedLookups:
    """The failed lookups of one process."""

    def __init__(self, scratch: str | None = None, made: Iterable[str] = ()) -> None:
        """``scratch``: the folder of this process's caches, which start empty; lookups in it are ignored."""
        self._made = tuple(made)
        of_gonogo = (*_IGNORED_PATH_PREFIXES, OURS)  # nor what gonogo's stand-ins don't find
        self._not_taken = of_gonogo if scratch is None else (*of_gonogo, os.path.join(scratch, ""))
        self.written: set[str] = set()
        """The folders to which the program itself has written."""
        # Libraries look up thousands of things during import; separate dicts keep these from evicting the program's.
        self._by_user: dict[tuple[str, str, str, int], _UnansweredLookup] = {}
        self._by_libraries: dict[tuple[str, str, str, int], _UnansweredLookup] = {}
        self.moment: Callable[[], tuple[Phase, int]] = lambda: ("load", 0)
        self._busy = False

    def record(self, kind: Kind, name: str, into: str = "") -> None:
        """Record a failed lookup of the function that is running."""
        if self._busy or (kind == "file" and name.startswith(self._not_taken)):
            return
        self._busy = True
        try:
            found = _calling_frame(sys._getframe(1))
            if found is not None:
                requested, stack = found
                phase, step = self.moment()
                key = (kind, name, requested.path, requested.line)
                kept = self._by_user if requested.owner == "user" else self._by_libraries
                kept.pop(key, None)
                kept[key] = _UnansweredLookup(kind, name, requested, stack, phase, step, into)
                if len(kept) > _MAX_LOOKUPS:
                    del kept[next(iter(kept))]
        finally:
            self._busy = False

    def latest_first(self) -> Iterator[_UnansweredLookup]:
        """The lookups of user code, then those of libraries, each newest first."""
        yield from reversed(list(self._by_user.values()))
        yield from reversed(list(self._by_libraries.values()))

    def record_if_missing(self, path: str) -> None:
        """Record a lookup of a path if nothing is there."""
        if self._busy or path.startswith(self._not_taken):
            return
        if self._made and _is_below(os.path.abspath(path), self._made):
            self.record("made", path)
            return
        # The importer keeps probing entries of sys.path that don't exist, such as pythonXY.zip on most machines;
        # a module that is missing because of that is recorded as a module.
        if not _is_found(path) and not _is_recompilable(path) and path not in sys.path:
            self.record("file", path)

    def is_still_missing(self, path: str) -> bool:
        """Whether a file was looked for in vain, and still isn't there."""
        return any(one.kind == "file" and one.name == path for one in self.latest_first()) and not _path_or_glob_exists(
            path
        )

    def record_listing(self, path: str) -> None:
        """Record the listing of a folder to which the program has written: other ranks may have written there as
        well."""
        if os.path.abspath(path) in self.written:
            self.record("folder", path)

    def record_write(self, path: str) -> None:
        """Note that the program writes a file or creates a directory entry at a path."""
        if len(self.written) < _MAX_LOOKUPS:
            self.written.add(os.path.dirname(os.path.abspath(path)))


_ACTIVE_LOOKUPS: list[FailedLookups] = []
_hooked = False


def install(failed_lookups: FailedLookups) -> Callable[[], None]:
    """Record what this process looks up in vain; returns the undo."""
    global _hooked
    _ACTIVE_LOOKUPS.append(failed_lookups)
    if not _hooked:  # an audit hook can't be removed
        _hooked = True
        sys.addaudithook(_on_audit_event)
    patches = Patches()
    loader: Any = ctypes
    if hasattr(loader, "_dlopen"):
        patches.set(loader, "_dlopen", _wrap_dlopen(loader._dlopen))
    patches.set(shutil, "which", _wrap_which(shutil.which))
    patches.set(glob, "glob", _wrap_glob(glob.glob))
    patches.set(glob, "iglob", _wrap_glob(glob.iglob))
    for name in ("glob", "rglob"):
        patches.set(pathlib.Path, name, _wrap_path_glob(getattr(pathlib.Path, name)))
    finder = _LastFinder()
    sys.meta_path.append(finder)
    patches.on_undo(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)
    patches.on_undo(lambda: _ACTIVE_LOOKUPS.remove(failed_lookups))
    return patches.undo


def record_probe(path: str) -> None:
    """Record a path that was probed with ``os.stat`` or the like."""
    if _ACTIVE_LOOKUPS:
        _ACTIVE_LOOKUPS[-1].record_if_missing(path)


def is_folder_here(path: str) -> bool:
    """``os.path.isdir`` for gonogo's own use, which is not recorded as a lookup of the program."""
    return stat.S_ISDIR(_file_mode(path))


def is_file_here(path: str) -> bool:
    """``os.path.isfile`` for gonogo's own use, which is not recorded."""
    return stat.S_ISREG(_file_mode(path))


def _file_mode(path: str) -> int:
    try:
        return _stat(path).st_mode
    except (OSError, ValueError):
        return 0


def record_unreachable_host(host: str) -> None:
    """Record a host that the kernel or the resolver could not reach, with the file that was to be fetched from it."""
    if _ACTIVE_LOOKUPS:
        lookups = _ACTIVE_LOOKUPS[-1]
        url, into = _find_download(sys._getframe(1), host, lookups)
        lookups.record("address", url or host, into)


def _find_download(frame: FrameType | None, host: str, lookups: FailedLookups) -> tuple[str, str]:
    """The address at a host that the running functions have in a variable, and the file there that is to be written.

    Such a file is in a variable beside the address, and was looked for in vain, or is named like the address's end.
    """
    url = ""
    while frame is not None:
        if not is_standard_library(frame.f_code.co_filename):
            texts = [_string_or_empty(value) for value in local_variables(frame).values()]
            url = next((text for text in texts if _is_url_on_host(text, host)), url)
            if url and url in texts:
                named = os.path.basename(urlsplit(url).path)
                for text in texts:
                    if text and text != url and (os.path.basename(text) == named or lookups.is_still_missing(text)):
                        return url, _displayed_path(text)
        frame = frame.f_back
    return url, ""


def _string_or_empty(value: Any) -> str:
    if isinstance(value, pathlib.PurePath):
        return str(value)
    return value if type(value) is str and len(value) < _MAX_TEXT and "\n" not in value else ""


def _is_url_on_host(text: str, host: str) -> bool:
    """Whether a text is the address of a file at this host."""
    if not text.startswith(("http://", "https://", "ftp://")):
        return False
    with contextlib.suppress(ValueError):
        return urlsplit(text).hostname == host.lower()
    return False


def _displayed_path(path: str) -> str:
    """A path as it would be typed in the program's folder."""
    folder = os.path.join(os.getcwd(), "")
    return path.removeprefix(folder)


def _record_lookup(kind: Kind, name: Any) -> None:
    if _ACTIVE_LOOKUPS:
        _ACTIVE_LOOKUPS[-1].record(kind, str(name))


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _AUDITED_EVENTS:  # it is called for each id() and sys._getframe(), too
        return
    lookups = _ACTIVE_LOOKUPS[-1:]  # another thread may remove it concurrently
    if not lookups:
        return
    current = lookups[0]
    position = _PATH_POSITION_BY_EVENT.get(event)
    if position is None:
        if event == "os.rename" and isinstance(arguments[1], (str, bytes, os.PathLike)):
            if not _is_gonogo_frame(sys._getframe(1)):
                current.record_write(os.fsdecode(arguments[1]))
        elif event == "subprocess.Popen":
            _record_missing_program(arguments[0], arguments[1])
        elif event == "os.system":
            _record_missing_program("/bin/sh", ["sh", "-c", arguments[0]])
        elif event == "os.posix_spawn":
            _record_missing_program(arguments[0], arguments[1])
        return
    path = arguments[position]
    if event == "open" and not _opens_for_reading(arguments):
        if isinstance(path, (str, bytes, os.PathLike)) and not _is_gonogo_frame(sys._getframe(1)):
            current.record_write(os.fsdecode(path))
        return
    with contextlib.suppress(TypeError, ValueError):
        text = os.fsdecode("." if path is None else path)
        if event == "sqlite3.connect" and (text in ("", ":memory:") or _IN_MEMORY_DATABASE_PATTERN.search(text)):
            return  # an in-memory database
        if text.startswith("file:"):
            text = text[5:].partition("?")[0]
        current.record_if_missing(text.removesuffix(MODULE_LISTING_SUFFIX))
        if event in ("os.scandir", "os.listdir") and not text.endswith(MODULE_LISTING_SUFFIX):
            current.record_listing(text)


def _is_gonogo_frame(frame: FrameType | None) -> bool:
    """True if the write comes from gonogo itself or from a library on its behalf (a model's stand-in), not the
    program.

    What gonogo writes on the program's behalf, as for ``torch.save``, is recorded by
    :meth:`FailedLookups.record_write`.
    """
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(OURS):
            return True
        if not path.startswith("<") and _owner(path) == "user":
            return False
        frame = frame.f_back
    return True


def _is_called_by_gonogo(frame: FrameType | None) -> bool:
    """True if gonogo's own code searches, directly or through the standard library.

    What it doesn't find is nothing that the program lacks: a file made for such a pattern would be one that no program
    reads, in the folder of its data.
    """
    while frame is not None and is_standard_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(OURS)


def _opens_for_reading(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return not set(mode) & set("wax")
    return isinstance(flags, int) and not flags & (os.O_CREAT | os.O_WRONLY)


def _record_missing_program(executable: Any, words: Any) -> None:
    """Record a program that is started but not installed; for a shell command, its first word."""
    with contextlib.suppress(TypeError, ValueError, OSError):
        name = os.fsdecode(executable)
        given = [os.fsdecode(word) for word in words] if isinstance(words, (list, tuple)) else []
        if os.path.basename(name) in _SHELL_PROGRAMS and len(given) > 2 and given[1] == "-c":
            name = (shlex.split(given[2]) or [""])[0]
            if not name or not _PROGRAM_NAME_PATTERN.fullmatch(name) or name in _SHELL_BUILTINS:
                return
        found = os.access(name, os.X_OK) if os.sep in name else _original_which(name)
        if not found:
            _record_lookup("program", name)


_original_which = shutil.which


def _wrap_which(which: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(which)
    def which_and_record(cmd: Any, *args: Any, **kwargs: Any) -> Any:
        found = which(cmd, *args, **kwargs)
        if found is None and not _is_called_by_gonogo(sys._getframe(1)):
            _record_lookup("program", cmd)
        return found

    return which_and_record


def _wrap_dlopen(dlopen: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(dlopen)
    def dlopen_and_record(name: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return dlopen(name, *args, **kwargs)
        except OSError:
            _record_lookup("library", name)
            raise

    return dlopen_and_record


def _wrap_glob(find: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(find)
    def glob_and_record(pathname: Any, *args: Any, **kwargs: Any) -> Any:
        found = list(find(pathname, *args, **kwargs))
        if not found and not _is_called_by_gonogo(sys._getframe(1)):
            _record_lookup("file", os.fsdecode(pathname))
        return iter(found) if find.__name__ == "iglob" else found

    return glob_and_record


def _wrap_path_glob(find: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(find)
    def glob_and_record(self: Any, pattern: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        found = list(find(self, pattern, *args, **kwargs))
        if not found and not _is_called_by_gonogo(sys._getframe(1)):
            _record_lookup("file", os.path.join(str(self), str(pattern)))
        return iter(found)

    return glob_and_record


class _LastFinder:
    """The last finder in ``sys.meta_path``: it is only asked for what no other finder has."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Record the module, and find none."""
        _record_lookup("module", name)

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """Record the distribution if it was asked for by name, and find none."""
        if getattr(context, "name", None):
            _record_lookup("module", context.name)
        return iter(())


def _calling_frame(frame: FrameType | None) -> tuple[Frame, tuple[tuple[int, CodeType, int], ...]] | None:
    """The innermost frame that is neither gonogo's nor the standard library's, and the stack from there on."""
    requested: Frame | None = None
    stack: list[tuple[int, CodeType, int]] = []
    while frame is not None and len(stack) < _MAX_DEPTH:
        code = frame.f_code
        if requested is None and not is_standard_library(code.co_filename):
            requested = _frame(code.co_filename, frame.f_lineno or 0, code.co_name)
        elif requested is None and str(frame.f_globals.get("__name__")).partition(".")[0] in _IGNORED_CALLER_MODULES:
            return None
        if requested is not None:
            stack.append((id(frame), code, frame.f_lineno or 0))
        frame = frame.f_back
    return (requested, tuple(stack)) if requested is not None else None


def lookups_before_failure(
    failed_lookups: FailedLookups, error: BaseException, argument_paths: list[str]
) -> list[FailedLookup]:
    """Failed lookups by functions that were still running at the failure, or by user code, newest first.

    Files that exist by now are skipped. ``argument_paths``: paths passed to the call that failed.
    """
    failing = list(_traceback_frames(error))
    places = {id(frame): number for number, (frame, _) in enumerate(failing)}
    frames = [_frame(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in failing]
    raising = next(
        (frame for frame in reversed(frames) if frame is not None and not is_standard_library(frame.path)), None
    )
    found: list[FailedLookup] = []
    for one in failed_lookups.latest_first():
        if one.kind == "file" and _path_or_glob_exists(one.name):
            continue
        shared: Frame | None = None
        failed_at = 0
        below = False
        for number, line in _match_running_frames(one, failing, places):
            frame = frames[number]
            shared, failed_at, below = None, failing[number][1], False
            if frame is not None:
                shared = Frame(frame.path, line, frame.function, "", frame.owner)
                below = raising is not None and _is_raising_function(raising, frame, one.kind)
        of_user = one.asked.owner == "user" or one.kind in ("folder", "made")
        if of_user or (shared is not None and shared.owner != "user"):
            found.append(
                FailedLookup(
                    one.kind,
                    one.name,
                    one.asked,
                    shared,
                    failed_at,
                    below,
                    one.phase,
                    one.step,
                    one.kind == "folder" or os.path.dirname(os.path.abspath(one.name)) in failed_lookups.written,
                    into=one.into,
                )
            )
    user = next((frame for frame in reversed(frames) if frame is not None and frame.owner == "user"), None)
    names = {one.name for one in found}
    downloads = [one for one in found if one.kind == "address"]
    for download in downloads:  # neither the host nor the path there is a file here
        url = urlsplit(download.name)
        names |= {os.path.abspath(path) for path in (url.hostname or download.name, url.path, download.into) if path}
    phase, step = failed_lookups.moment()
    for path in argument_paths:
        if user is not None and not names & {path, os.path.abspath(path)}:
            found.insert(0, FailedLookup("file", path, user, user, user.line, True, phase, step, False, True))
    return found[:_MAX_RECORDED]


def _is_below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == one or path.startswith(one.rstrip(os.sep) + os.sep) for one in places)


def _match_running_frames(
    one: _UnansweredLookup, failing: list[tuple[FrameType, int]], places: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """Match the frames of a lookup that were still running at the failure. Yields the index in ``failing`` and the
    line of the lookup, outermost first.

    A frame's callee has to be the next frame both times; otherwise it is another call, whose frame may have reused
    the memory of one that had returned.
    """
    expected: int | None = None
    for identity, code, line in reversed(one.stack):
        number = places.get(identity)
        if number is not None and failing[number][0].f_code is not code:
            number = None
        if expected is None and number is None:
            continue  # outside the function that caught the exception
        if number is None or (expected is not None and number != expected):
            return
        yield number, line
        expected = number + 1


def _traceback_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _frame(path: str, line: int, function: str) -> Frame | None:
    """The frame without its source line, which would have to be read; None if it is gonogo's own or not in a file."""
    return None if path.startswith((OURS, "<")) else Frame(path, line, function, "", _owner(path))


_owner = functools.cache(owner_of)


def _is_raising_function(raising_frame: Frame, frame: Frame, kind: Kind) -> bool:
    """True if ``frame`` is the function that raised. For folders (files of other ranks, collected in one function and
    missed in another) the same package is enough."""
    if kind == "folder":
        return _package_of_frame(raising_frame) == _package_of_frame(frame)
    return (raising_frame.path, raising_frame.function) == (frame.path, frame.function)


def _package_of_frame(frame: Frame) -> str:
    if frame.owner != "library":
        return frame.owner
    for part in ("site-packages/", "dist-packages/"):
        if part in frame.path:
            return frame.path.rpartition(part)[2].partition("/")[0]
    return os.path.dirname(frame.path)


def _path_or_glob_exists(path: str) -> bool:
    return _is_found(os.path.expanduser(path)) or (glob.has_magic(path) and any(True for _ in glob.iglob(path)))


def _is_found(path: str) -> bool:
    try:
        _stat(path)
    except (OSError, ValueError):
        return False
    return True


def _is_recompilable(path: str) -> bool:
    """True for a ``.pyc`` file whose source exists, which an import can do without."""
    if not path.endswith(".pyc"):
        return False
    try:
        return _is_found(source_from_cache(path))
    except (NotImplementedError, ValueError):
        return False
