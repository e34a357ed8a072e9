"""The chain of exceptions that led to a failure, root cause first, each with its frames.

The exception that another was raised from, or during whose handling it was raised, often reveals the cause: for any
exception during an import, transformers raises "Failed to import … because of the following error".
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.traceback import RaisedError, parse_tracebacks
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.rehearsal.record import Failure
from gonogo.finding.frame import Frame, Owner

_OVERLAY_PACKAGES_PATH = "/gonogo/packages/"
_PACKAGE_PATH_PATTERN = lazy_compile(r"(?:(?:site|dist)-packages|/gonogo/packages/[^/]+)[/\\]([\w-]+)")
_DISTRIBUTION_NAMES = {"yaml": "pyyaml", "PIL": "pillow", "sklearn": "scikit-learn", "cv2": "opencv-python"}
"""Packages whose import name differs from the name by which they are installed."""


class ChainedException(msgspec.Struct, frozen=True):
    """One exception of a chain; ``frames`` go from the outermost call to the innermost.

    For ranks that diverged without an exception, ``type`` and ``message`` are empty.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]

    @property
    def last_user_frame(self) -> Frame | None:
        """The innermost frame of the user's own code, or None."""
        return next((frame for frame in reversed(self.frames) if frame.owner == "user"), None)


def exception_chain(failure: Failure) -> tuple[ChainedException, ...]:
    """The exceptions that led to a failure, root cause first, the one that ended the rank last."""
    own = ChainedException(failure.type, failure.message, failure.frames)
    lines = [LogLine("", number, line) for number, line in enumerate(failure.traceback.splitlines(), 1)]
    raised = list(parse_tracebacks(lines))
    if not raised or raised[-1].cause is None:
        return (own,)
    owners = {frame.path: frame.owner for frame in failure.frames}
    return (*logged_exception_chain(raised[-1].cause, owners), own)


def first_cause(failure: Failure) -> ChainedException | None:
    """The root of a failure's ``raise … from`` chain, if its traceback shows one."""
    if not failure.cause:
        return None
    return next(
        (
            exception
            for exception in exception_chain(failure)[:-1]
            if exception.type and exception.type in failure.cause
        ),
        None,
    )


def package_of_file(path: str) -> str | None:
    """The package (canonical name) that a frame's file belongs to; None for the user's own code and Python's."""
    found = _PACKAGE_PATH_PATTERN.search(path)
    return canonical_package_name(_DISTRIBUTION_NAMES.get(found[1], found[1])) if found is not None else None


def logged_exception_chain(
    exception: RaisedError, owners: dict[str, Owner] | None = None
) -> tuple[ChainedException, ...]:
    """The exceptions that led to one in a log; ``owners`` maps files to their owners, if known."""
    chain: list[ChainedException] = []
    one: RaisedError | None = exception
    while one is not None:
        chain.append(ChainedException(one.type, one.message, tuple(_classified_frames(one, owners or {}))))
        one = one.cause
    return tuple(reversed(chain))


def _classified_frames(exception: RaisedError, owners: dict[str, Owner]) -> Iterable[Frame]:
    for frame in exception.frames:
        owner = owners.get(frame.path) or _owner_of_path(frame.path)
        yield Frame(frame.path, frame.line, frame.function, frame.code, owner)


def _owner_of_path(path: str) -> Owner:
    if package_of_file(path) == "torch":
        return "torch"
    return "library" if is_library_path(path) or _OVERLAY_PACKAGES_PATH in path.replace(os.sep, "/") else "user"
