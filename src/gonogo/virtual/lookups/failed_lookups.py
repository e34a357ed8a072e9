"""What a program asks for and does not get: files, modules, libraries, programs, addresses, each with who asked.

A failure may come of any of it, however it words that: pyarrow gives the bare path, torch says "Could not find any
NVRTC library", a program of the user's goes on with None. So it is taken down where it is asked for: by Python's audit
events, by what looks for files, by a finder that stands last in the importer, by the loader of libraries. Which of it
has to do with a failure is told by the functions that ran both times (:func:`lookups_before_failure`).
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

from gonogo.evidence.rehearsal.record import FailedLookup, Frame, Phase
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.protocol.plan import MODULE_LISTING_SUFFIX
from gonogo.virtual.stack import OURS, is_standard_library, owner_of

Kind = Literal["file", "folder", "module", "library", "program", "address", "made"]
_MAX_KEPT = 4096
_MAX_DEPTH = 150
_MAX_RECORDED = 200
_stat = posix.stat
_READING = {"open": 0, "os.scandir": 0, "os.listdir": 0, "os.chdir": 0, "sqlite3.connect": 0}
_IN_MEMORY_DATABASE_PATTERN = re.compile(r"^file:(?::memory:|.*[?&]mode=memory(?:&|$))")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_PROGRAM_NAME_PATTERN = re.compile(r"[\w./+-]+")
_SHELL_BUILTINS = frozenset(
    {"cd", "echo", "exit", "export", "set", "source", "test", "true", "false", "ulimit", "exec", "eval"}
)
_IGNORED_PATH_PREFIXES = ("/proc/self", "/proc/thread-self", "/sys/fs/cgroup", "/dev/null", "<")


_IGNORED_CALLER_MODULES = frozenset({"gettext", "locale", "mimetypes", "platform", "uuid", "zoneinfo"})
"""Modules of Python's that look in places of their own for what they can do without (a translation of argparse's
words, the system's types of files): no program names these."""


class _UnansweredLookup(NamedTuple):
    """One question without an answer, and the stack that asked it: (identity of a frame, its code, its line), innermost
    first. Frames are not kept, since they hold the program's values: the identity of one that has returned may be
    another's by the time that something fails."""

    kind: Kind
    name: str
    asked: Frame
    stack: tuple[tuple[int, CodeType, int], ...]
    phase: Phase
    step: int


class FailedLookups:
    """What one process has asked for in vain."""

    def __init__(self, scratch: str | None = None, made: Iterable[str] = ()) -> None:
        """``scratch``: the folder of this process's caches, which begin empty: what is not in them is nothing.

        ``made``: whole paths of what gonogo made in place of something that is not here.
        """
        self._made = tuple(made)
        of_gonogo = (*_IGNORED_PATH_PREFIXES, OURS)  # what its own stand-ins don't have is nothing of the program's
        self._not_taken = of_gonogo if scratch is None else (*of_gonogo, os.path.join(scratch, ""))
        self.written: set[str] = set()
        """The folders in which the program itself has written."""
        # Libraries look for thousands of things while they are imported: they don't push out what the program asked.
        self._by_user: dict[tuple[str, str, str, int], _UnansweredLookup] = {}
        self._by_libraries: dict[tuple[str, str, str, int], _UnansweredLookup] = {}
        self.moment: Callable[[], tuple[Phase, int]] = lambda: ("load", 0)
        self._busy = False

    def note(self, kind: Kind, name: str) -> None:
        """Take down what was asked for by the function that runs now."""
        if self._busy:
            return
        self._busy = True
        try:
            found = _asking(sys._getframe(1))
            if found is not None:
                asked, stack = found
                phase, step = self.moment()
                key = (kind, name, asked.path, asked.line)
                kept = self._by_user if asked.owner == "user" else self._by_libraries
                kept.pop(key, None)
                kept[key] = _UnansweredLookup(kind, name, asked, stack, phase, step)
                if len(kept) > _MAX_KEPT:
                    del kept[next(iter(kept))]
        finally:
            self._busy = False

    def latest_first(self) -> Iterator[_UnansweredLookup]:
        """What the user's code asked for, then what libraries did."""
        yield from reversed(list(self._by_user.values()))
        yield from reversed(list(self._by_libraries.values()))

    def look(self, path: str) -> None:
        """Take down a path that was looked for, if nothing is there, or what gonogo made."""
        if self._busy or path.startswith(self._not_taken):
            return
        if self._made and _is_below(os.path.abspath(path), self._made):
            self.note("made", path)
            return
        # An entry of Python's path that is not here, as pythonXY.zip is on most machines, is asked for by the importer
        # again and again; a module that lacks for it is taken down as such.
        if not _is_found(path) and not _is_recompilable(path) and path not in sys.path:
            self.note("file", path)

    def listed(self, path: str) -> None:
        """Take down a folder that was listed and was written to: other ranks may have written there, too."""
        if os.path.abspath(path) in self.written:
            self.note("folder", path)

    def wrote(self, path: str) -> None:
        """The program writes a file, or makes a folder's entry, of that path."""
        if len(self.written) < _MAX_KEPT:
            self.written.add(os.path.dirname(os.path.abspath(path)))


_ACTIVE_LOOKUPS: list[FailedLookups] = []
_hooked = False


def install(failed_lookups: FailedLookups) -> Callable[[], None]:
    """Have this process take down what it asks for in vain; returns the undo."""
    global _hooked
    _ACTIVE_LOOKUPS.append(failed_lookups)
    if not _hooked:  # an audit hook can't be taken away
        _hooked = True
        sys.addaudithook(_audit)
    patches = Patches()
    loader: Any = ctypes
    if hasattr(loader, "_dlopen"):
        patches.set(loader, "_dlopen", _loading(loader._dlopen))
    patches.set(shutil, "which", _which(shutil.which))
    patches.set(glob, "glob", _record_empty_glob(glob.glob))
    patches.set(glob, "iglob", _record_empty_glob(glob.iglob))
    for name in ("glob", "rglob"):
        patches.set(pathlib.Path, name, _record_empty_path_glob(getattr(pathlib.Path, name)))
    finder = _LastFinder()
    sys.meta_path.append(finder)
    patches.on_undo(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)
    patches.on_undo(lambda: _ACTIVE_LOOKUPS.remove(failed_lookups))
    return patches.undo


def looked_for(path: str) -> None:
    """A path was looked for: ``os.stat`` and the like."""
    if _ACTIVE_LOOKUPS:
        _ACTIVE_LOOKUPS[-1].look(path)


def is_folder_here(path: str) -> bool:
    """Whether a folder lies there: asked by gonogo itself, which the program has not to do with."""
    return stat.S_ISDIR(_mode_of(path))


def is_file_here(path: str) -> bool:
    """Whether a file lies there: asked by gonogo itself."""
    return stat.S_ISREG(_mode_of(path))


def _mode_of(path: str) -> int:
    try:
        return _stat(path).st_mode
    except (OSError, ValueError):
        return 0


def record_unreachable_host(host: str) -> None:
    """A host was asked for, and the kernel, or the resolver, had no way to it."""
    _note("address", host)


def _note(kind: Kind, name: Any) -> None:
    if _ACTIVE_LOOKUPS:
        _ACTIVE_LOOKUPS[-1].note(kind, str(name))


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    lookups = _ACTIVE_LOOKUPS[-1:]  # another thread may end them meanwhile
    if not lookups:
        return
    current = lookups[0]
    position = _READING.get(event)
    if position is None:
        if event == "os.rename" and isinstance(arguments[1], (str, bytes, os.PathLike)):
            if not _is_gonogo_frame(sys._getframe(1)):
                current.wrote(os.fsdecode(arguments[1]))
        elif event == "subprocess.Popen":
            _program(arguments[0], arguments[1])
        elif event == "os.system":
            _program("/bin/sh", ["sh", "-c", arguments[0]])
        elif event == "os.posix_spawn":
            _program(arguments[0], arguments[1])
        return
    path = arguments[position]
    if event == "open" and not _is_read(arguments):
        if isinstance(path, (str, bytes, os.PathLike)) and not _is_gonogo_frame(sys._getframe(1)):
            current.wrote(os.fsdecode(path))
        return
    with contextlib.suppress(TypeError, ValueError):
        text = os.fsdecode("." if path is None else path)
        if event == "sqlite3.connect" and (text in ("", ":memory:") or _IN_MEMORY_DATABASE_PATTERN.search(text)):
            return  # a database of the process's own
        if text.startswith("file:"):
            text = text[5:].partition("?")[0]
        current.look(text.removesuffix(MODULE_LISTING_SUFFIX))
        if event in ("os.scandir", "os.listdir") and not text.endswith(MODULE_LISTING_SUFFIX):
            current.listed(text)


def _is_gonogo_frame(frame: FrameType | None) -> bool:
    """Whether gonogo itself writes, or has a library write (a model's stand-in): the program has not.

    What gonogo writes on the program's behalf, as ``torch.save`` does, is told by :meth:`FailedLookups.wrote`.
    """
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(OURS):
            return True
        if not path.startswith("<") and _owner(path) == "user":
            return False
        frame = frame.f_back
    return True


def _is_read(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return not set(mode) & set("wax")
    return isinstance(flags, int) and not flags & (os.O_CREAT | os.O_WRONLY)


def _program(executable: Any, words: Any) -> None:
    """Take down a program that is started and is not here; of a shell's command, its first word."""
    with contextlib.suppress(TypeError, ValueError, OSError):
        name = os.fsdecode(executable)
        given = [os.fsdecode(word) for word in words] if isinstance(words, (list, tuple)) else []
        if os.path.basename(name) in _SHELLS and len(given) > 2 and given[1] == "-c":
            name = (shlex.split(given[2]) or [""])[0]
            if not name or not _PROGRAM_NAME_PATTERN.fullmatch(name) or name in _SHELL_BUILTINS:
                return
        found = os.access(name, os.X_OK) if os.sep in name else _original_which(name)
        if not found:
            _note("program", name)


_original_which = shutil.which


def _which(which: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(which)
    def looks(cmd: Any, *args: Any, **kwargs: Any) -> Any:
        found = which(cmd, *args, **kwargs)
        if found is None:
            _note("program", cmd)
        return found

    return looks


def _loading(dlopen: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(dlopen)
    def loads(name: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return dlopen(name, *args, **kwargs)
        except OSError:
            _note("library", name)
            raise

    return loads


def _record_empty_glob(find: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(find)
    def finds(pathname: Any, *args: Any, **kwargs: Any) -> Any:
        found = list(find(pathname, *args, **kwargs))
        if not found:
            _note("file", os.fsdecode(pathname))
        return iter(found) if find.__name__ == "iglob" else found

    return finds


def _record_empty_path_glob(find: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(find)
    def finds(self: Any, pattern: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        found = list(find(self, pattern, *args, **kwargs))
        if not found:
            _note("file", os.path.join(str(self), str(pattern)))
        return iter(found)

    return finds


class _LastFinder:
    """Stands last: what it is asked for, no other finder has."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """No module; that it was asked for is taken down."""
        _note("module", name)

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """No distribution; that one of a name was asked for is taken down."""
        if getattr(context, "name", None):
            _note("module", context.name)
        return iter(())


def _asking(frame: FrameType | None) -> tuple[Frame, tuple[tuple[int, CodeType, int], ...]] | None:
    """The innermost frame that is neither gonogo's nor Python's own, and the identities of the whole stack."""
    asked: Frame | None = None
    stack: list[tuple[int, CodeType, int]] = []
    while frame is not None and len(stack) < _MAX_DEPTH:
        code = frame.f_code
        if asked is None and not is_standard_library(code.co_filename):
            asked = _frame(code.co_filename, frame.f_lineno or 0, code.co_name)
        elif asked is None and str(frame.f_globals.get("__name__")).partition(".")[0] in _IGNORED_CALLER_MODULES:
            return None
        if asked is not None:
            stack.append((id(frame), code, frame.f_lineno or 0))
        frame = frame.f_back
    return (asked, tuple(stack)) if asked is not None else None


def lookups_before_failure(
    failed_lookups: FailedLookups, error: BaseException, argument_paths: list[str]
) -> list[FailedLookup]:
    """What was asked for in vain in a function that ran when it failed, or by the user's own code; the last first.

    What is there by now was only made later. ``argument_paths``: paths that what failed was given.
    """
    failing = list(_traceback_frames(error))
    places = {id(frame): number for number, (frame, _) in enumerate(failing)}
    frames = [_frame(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in failing]
    raising = next(
        (frame for frame in reversed(frames) if frame is not None and not is_standard_library(frame.path)), None
    )
    found: list[FailedLookup] = []
    for one in failed_lookups.latest_first():
        if one.kind == "file" and _is_there(one.name):
            continue
        shared: Frame | None = None
        failed_at = 0
        below = False
        for number, line in _still_running(one, failing, places):
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
                )
            )
    user = next((frame for frame in reversed(frames) if frame is not None and frame.owner == "user"), None)
    told = {one.name for one in found}
    phase, step = failed_lookups.moment()
    for path in argument_paths:
        if user is not None and path not in told:
            found.insert(0, FailedLookup("file", path, user, user, user.line, True, phase, step, False, True))
    return found[:_MAX_RECORDED]


def _is_below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == one or path.startswith(one.rstrip(os.sep) + os.sep) for one in places)


def _still_running(
    one: _UnansweredLookup, failing: list[tuple[FrameType, int]], places: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """The frames that asked and had not returned when it failed: their place among those that failed, and the line from
    which they asked, the outermost first.

    What runs within a frame is its callee both times, or it is another call, whose frame may have been given the memory
    of one that had returned.
    """
    expected: int | None = None
    for identity, code, line in reversed(one.stack):
        number = places.get(identity)
        if number is not None and failing[number][0].f_code is not code:
            number = None
        if expected is None and number is None:
            continue  # below what caught the exception
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
    """The frame without its text, which would have to be read; None for gonogo's own and for what is no file."""
    return None if path.startswith((OURS, "<")) else Frame(path, line, function, "", _owner(path))


_owner = functools.cache(owner_of)


def _is_raising_function(raising_frame: Frame, frame: Frame, kind: Kind) -> bool:
    """Whether a function is the one that raised. What ranks have written is gathered in one, and missed in another."""
    if kind == "folder":
        return _package(raising_frame) == _package(frame)
    return (raising_frame.path, raising_frame.function) == (frame.path, frame.function)


def _package(frame: Frame) -> str:
    if frame.owner != "library":
        return frame.owner
    for part in ("site-packages/", "dist-packages/"):
        if part in frame.path:
            return frame.path.rpartition(part)[2].partition("/")[0]
    return os.path.dirname(frame.path)


def _is_there(path: str) -> bool:
    return _is_found(os.path.expanduser(path)) or (glob.has_magic(path) and any(True for _ in glob.iglob(path)))


def _is_found(path: str) -> bool:
    try:
        _stat(path)
    except (OSError, ValueError):
        return False
    return True


def _is_recompilable(path: str) -> bool:
    """Whether a path is of Python's cache of a module whose source is here: an import does without it."""
    if not path.endswith(".pyc"):
        return False
    try:
        return _is_found(source_from_cache(path))
    except (NotImplementedError, ValueError):
        return False
