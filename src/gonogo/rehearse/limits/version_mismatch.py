"""Failures due to packages that are missing in the rehearsal or have another version than in the run."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.version import InvalidVersion, Version

from gonogo.evidence.rehearsal.failures import CALL_SIGNATURE_ERROR_PATTERN, exception_class_name
from gonogo.evidence.rehearsal.record import Failure, Frame, RankRecord, RehearsalRecord
from gonogo.finding import translated
from gonogo.finding.remedy import Purpose, Reason, rehearse_again
from gonogo.prepare.packages.names import OLDEST_TORCH

# The exceptions that Python raises if code and its dependencies are of different versions.
_VERSION_ERROR_TYPES_PATTERN = re.compile(
    r"(?:.*\.)?(?:ImportError|ModuleNotFoundError|AttributeError|TypeError|NameError|RecursionError|NotImplementedError|"
    r"PackageNotFoundError|VersionConflict|KeyError|RuntimeError|ValueError|AssertionError|DeprecationWarning)"
)
_IMPORT_NAME_PATTERN = re.compile(r"(?:cannot import name '\w+' from|^module) '(\w+)")
_PACKAGE_PATH_PATTERN = re.compile(r".*-packages/[^/]+(?=/)")
_INNERMOST_FRAME_COUNT = 6
"""A package with a file among this many innermost frames is a suspect."""
_DIFFERS_FROM_REQUIRED = Reason(
    translated("{package} differs from what the environment file requires (see below), which may be the reason"),
    rehearse_again("--environment", "none", purpose=Purpose.OWN_ENVIRONMENT),
)
_DIFFERS_BY_DATE = Reason(
    translated(
        "the project's files allow the {package} of this rehearsal, but it is not the release of the day from which "
        "the other packages are: with today's releases (--as-of today) nothing is replaced"
    ),
    rehearse_again("--as-of", "today", purpose=Purpose.RELEASES_OF_TODAY),
)
# Distributions whose module has another name.
_MODULE_BY_PACKAGE = {"pillow": "PIL", "scikit-learn": "sklearn", "opencv-python": "cv2", "pyyaml": "yaml"}


def explain_version_mismatch(rank: RankRecord, record: RehearsalRecord) -> Reason | None:
    """The package that differs from the required one and to which a failure's message or frames point, or None."""
    failure = rank.failure
    suspect = next((one for one in record.differing if failure is not None and _may_be_caused_by(one, failure)), None)
    return None if suspect is None else with_remedy(_DIFFERS_FROM_REQUIRED, suspect, record)


def with_remedy(reason: Reason, package: str, record: RehearsalRecord) -> Reason:
    """A reason about a package that was replaced, with what brings the required one."""
    if package in record.differing_by_date:
        return _DIFFERS_BY_DATE.format(package=package)
    filled = reason.format(package=package)
    if package == "torch" and _may_have_build(record.torch_requested):
        after = rehearse_again(purpose=Purpose.AFTER_TORCH, subject=f"torch{record.torch_requested}")
        return Reason(filled.why, after)
    return filled


def _may_have_build(specifier: str) -> bool:
    """Whether rehearsals support a CPU build of the one release that a specifier allows."""
    try:
        return specifier.startswith("==") and Version(specifier.removeprefix("==").removesuffix(".*")) >= OLDEST_TORCH
    except InvalidVersion:
        return False


def _may_be_caused_by(name: str, failure: Failure) -> bool:
    if _VERSION_ERROR_TYPES_PATTERN.fullmatch(failure.type) is None:
        return False
    module = _MODULE_BY_PACKAGE.get(name, name.replace("-", "_"))
    named = re.compile(rf"(?<![\w/]){re.escape(module)}\b|(?<![\w/]){re.escape(name)}\b")
    if named.search(failure.message) or named.search(failure.cause):
        return True
    frames = [frame for frame in failure.frames if "/lib/python3" not in frame.path or "-packages/" in frame.path]
    near = frames[-_INNERMOST_FRAME_COUNT:]
    if name != "torch":
        return any(f"/{module}/" in frame.path for frame in near)
    other = _IMPORT_NAME_PATTERN.search(failure.message)
    if other is not None and other[1] != module:  # the package that lacks the name has the declared version
        return False
    # A library for another torch fails in its own code, before anything is computed. If it rejects a value instead,
    # torch's version isn't the reason.
    if not near or near[-1].owner == "user":
        return False
    of_values = exception_class_name(failure) in ("ValueError", "KeyError", "AssertionError")
    in_torch = near[-1].owner == "torch" or "-packages/torch/" in near[-1].path  # environments link to it
    return in_torch or (
        failure.phase == "load" and not of_values and not _is_internal_api_mismatch(failure.message, near[-1])
    )


def _is_internal_api_mismatch(message: str, caller: Frame) -> bool:
    """Whether a package calls its own function with wrong arguments, in a file that doesn't mention torch."""
    refused, package = CALL_SIGNATURE_ERROR_PATTERN.search(message), _PACKAGE_PATH_PATTERN.match(caller.path)
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
