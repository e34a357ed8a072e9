"""Failures that may come of packages which a rehearsal has in another version than the run will, or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gonogo.evidence.rehearsal.failures import CALL_SIGNATURE_ERROR_PATTERN, class_of
from gonogo.evidence.rehearsal.record import Failure, Frame, RankRecord
from gonogo.finding import Text, translated

# How Python says that code and what it uses are not of one time.
_KINDS = re.compile(
    r"(?:.*\.)?(?:ImportError|ModuleNotFoundError|AttributeError|TypeError|NameError|RecursionError|NotImplementedError|"
    r"PackageNotFoundError|VersionConflict|KeyError|RuntimeError|ValueError|AssertionError|DeprecationWarning)"
)
_NOT_IN = re.compile(r"(?:cannot import name '\w+' from|^module) '(\w+)")
_PACKAGE = re.compile(r".*-packages/[^/]+(?=/)")
_NEAR = 6
"""Innermost frames in which a package's own file makes it the suspect."""
_DIFFERS_FROM_REQUIRED = translated(
    "{package} differs from what the environment file requires (see below), which may be the reason"
)
# Distributions whose module has another name.
_MODULES = {"pillow": "PIL", "scikit-learn": "sklearn", "opencv-python": "cv2", "pyyaml": "yaml"}


def explain_version_mismatch(rank: RankRecord, differing: Sequence[str]) -> Text | None:
    """Which package in ``differing`` (canonical names) a failure's words or frames lead to; None: none of them."""
    failure = rank.failure
    suspect = next((name for name in differing if failure is not None and _may_be_caused_by(name, failure)), None)
    return None if suspect is None else _DIFFERS_FROM_REQUIRED.format(package=suspect)


def _may_be_caused_by(name: str, failure: Failure) -> bool:
    if _KINDS.fullmatch(failure.type) is None:
        return False
    module = _MODULES.get(name, name.replace("-", "_"))
    named = re.compile(rf"(?<![\w/]){re.escape(module)}\b|(?<![\w/]){re.escape(name)}\b")
    if named.search(failure.message) or named.search(failure.cause):
        return True
    frames = [frame for frame in failure.frames if "/lib/python3" not in frame.path or "-packages/" in frame.path]
    near = frames[-_NEAR:]
    if name != "torch":
        return any(f"/{module}/" in frame.path for frame in near)
    other = _NOT_IN.search(failure.message)
    if other is not None and other[1] != module:  # what lacks the name is as the file says
        return False
    # A library that was made for another torch fails in its own lines, before anything is computed; what it finds wrong
    # with a value, it does not find wrong for torch's sake.
    if not near or near[-1].owner == "user":
        return False
    of_values = class_of(failure) in ("ValueError", "KeyError", "AssertionError")
    in_torch = near[-1].owner == "torch" or "-packages/torch/" in near[-1].path  # as an environment links to it
    return in_torch or (
        failure.phase == "load" and not of_values and not _is_internal_api_mismatch(failure.message, near[-1])
    )


def _is_internal_api_mismatch(message: str, caller: Frame) -> bool:
    """Whether a package calls what it defines itself otherwise than it defines it, in a file that knows no torch."""
    refused, package = CALL_SIGNATURE_ERROR_PATTERN.search(message), _PACKAGE.match(caller.path)
    if refused is None or package is None:
        return False
    defined = re.compile(rf"^\s*(?:class|def) {refused[1]}\b", re.MULTILINE)
    try:
        if "torch" in Path(caller.path).read_text(encoding="utf-8", errors="replace"):
            return False
        files = Path(package[0]).rglob("*.py")
        return any(defined.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)
    except OSError:
        return False
