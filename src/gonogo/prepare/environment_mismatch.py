"""Failures that may be due to packages that differ from those of the run: reported as a limit, never as certain.

A module that isn't installed on this machine may be installed on the one that trains, if the project's files require
it; and an API that is missing in another version than the project pins says nothing about the pinned one.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.reading import read_environment
from gonogo.evidence.paths import exists, is_file, iter_parent_folders, resolve_path
from gonogo.evidence.rehearsal.chain import ChainedException, exception_chain
from gonogo.evidence.rehearsal.failures import CALL_SIGNATURE_ERROR_PATTERN, last_frame_outside_torch
from gonogo.evidence.rehearsal.record import Failure, RankRecord, RehearsalRecord
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, UserError, translated
from gonogo.finding.remedy import Purpose, Reason, prepare_launch, rehearse_again
from gonogo.prepare.packages.installed import installed_version

_PIP_INSTALL_PATTERN = re.compile(r"\b(?:pip3?|uv pip) install (?P<words>[^\n`&|;]+)")
_TORCH_REQUIREMENT_PATTERN = re.compile(r"(?:^|\s)[\"']?torch(?![\w./-])")
_NIGHTLY_TORCH_PATTERN = re.compile(r"(?:^|\s)--pre(?![\w-])|/nightly\b")

_MAX_FILES = 24
_MAX_DEPTH = 4
_REQUIREMENT_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "environment.yml", "environment.yaml", "Pipfile")
DISTRIBUTION_BY_MODULE = {
    "yaml": "pyyaml", "PIL": "pillow", "sklearn": "scikit-learn", "cv2": "opencv-python", "skimage": "scikit-image",
    "bs4": "beautifulsoup4", "dotenv": "python-dotenv", "dateutil": "python-dateutil", "git": "gitpython",
    "docx": "python-docx", "fitz": "pymupdf", "hydra": "hydra-core", "pytorch_lightning": "pytorch-lightning",
    "google.protobuf": "protobuf", "Levenshtein": "levenshtein", "Crypto": "pycryptodome", "attr": "attrs",
    "open_clip": "open-clip-torch", "faiss": "faiss-cpu", "absl": "absl-py", "ruamel.yaml": "ruamel-yaml",
}  # fmt: skip
"""Distributions whose name differs from that of the module."""
_SHARED_NAMES = {"ruamel": 1, "zope": 1, "backports": 1, "jaraco": 1, "sphinxcontrib": 1, "google": 2, "azure": 2}
"""First names of modules that several distributions share, and how many of the parts after it name the one."""

_PIP_INSTALL = (
    r"\bpip3? install (?:(?:-U|--upgrade|-i https?:\S+) )*[`'\"]?([A-Za-z][\w-]*)(?=\.?(?:$|[\s,;`'\"\[(<>=!~]))"
)
_MISSING_PACKAGE_PATTERN = re.compile(
    r"No module named '([\w.]+)'|requires? (?:the )?[`']?(\w+)[`']? (?:to be installed|library)"
    r"|No package metadata was found for (?:The ')?([\w.-]+)"  # transformers' require_version, about a package
    r"|Requirement '([A-Za-z][\w-]*)[^'\n]*' not met"  # Lightning's
    r"|[Pp]lease (?:pip )?install [`'\"]?([A-Za-z][\w-]*)[`'\"]?(?=\.?(?:$|[\s,;]))"
    rf"|{_PIP_INSTALL}"
)
API_ERROR_PATTERN = re.compile(
    r"cannot import name|No module named|has no attribute|unexpected keyword argument|missing \d+ required"
    r"|positional arguments? but|object is not callable|not supported between"
)
_QUOTED_REQUIREMENT_PATTERN = re.compile(
    r"[\"']([A-Za-z][\w.-]*)(?:\[[\w,-]*\])?\s*((?:[<>=!~]=?=?\s*[\w.*]+\s*,?\s*)*)(?:;[^\"']*)?[\"']"
)

_MISSING_NAME_PATTERN = re.compile(r"cannot import name '\w+' from '([\w.]+)'|module '([\w.]+)' has no attribute")
_NOT_INSTALLED = Reason(
    translated(
        "{package} is not installed here, but {file} requires it: pip install {package}, or rehearse with "
        "--environment {file}"
    ),
    rehearse_again("--environment", "{file}", purpose=Purpose.BUILD_ENVIRONMENT),
)
_NO_VERSION_DECLARED = Reason(
    translated(
        "{package} is not installed here, and no file of the project lists the run's packages: pip install "
        "{package} (or its pip name), or rehearse with --environment FILE, a list of the run's packages"
    ),
    rehearse_again("--with", "{package}", purpose=Purpose.INSTALL_PACKAGE),
)
_PROJECT_NOT_INSTALLED = translated(
    "{package} is this project itself ({file}), which is not installed here: pip install -e {folder}, or "
    "run gonogo prepare -- COMMAND once"
)
_REQUIRES_OTHER_VERSION = Reason(
    translated(
        "{file} requires {wanted}, but {have} is installed here: rehearse with --environment {file}, or "
        "--with {name}==VERSION"
    ),
    rehearse_again("--environment", "{file}", purpose=Purpose.BUILD_ENVIRONMENT),
)
_NIGHTLY = Reason(
    translated(
        "{file} requires a nightly build of torch, but {have} is installed here: rehearse in an environment "
        "with that build, with --environment none"
    ),
    rehearse_again("--environment", "none", purpose=Purpose.OWN_ENVIRONMENT),
)
_VERSION_MISMATCH = Reason(
    translated(
        "{file} requires {wanted}, but {have} is installed here: this is not the run's Python, so its {package} may "
        "be a different version too; run gonogo prepare -- COMMAND, or rehearse with --environment {file}"
    ),
    rehearse_again("--environment", "{file}", purpose=Purpose.BUILD_ENVIRONMENT),
)
_LAID_OVER = Reason(
    translated(
        "{laid} was installed over this Python's other packages, which may be too new for it: pin those too "
        "(--with), or rehearse in the run's own environment"
    ),
    rehearse_again("--environment", "none", purpose=Purpose.OWN_ENVIRONMENT),
)


class Requirements(dict[str, tuple[SpecifierSet, str]]):
    """The versions that a project's files require, by canonical name, each with the file that requires them."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: dict[str, str] = {}
        """Of those that come from a repository or an archive."""
        self.extras: dict[str, str] = {}
        """``[signatures]``, of those that are asked for with extras."""


def declared_requirements(folder: Path, environment: Path | None = None) -> Requirements:
    """The requirements in a project's files, from its folder up to the root of its repository.

    ``environment`` is a file that the user named; it takes precedence. A file that can't be read requires nothing.
    """
    requested = Requirements()
    for path in ([environment] if environment is not None else []) + list(project_files(folder)):
        for name, specifier, address, extras in _read_requirements(path):
            if address and name not in requested:
                requested.addresses[name] = address
            if extras and name not in requested:
                requested.extras[name] = f"[{extras}]"
            requested.setdefault(name, (specifier, display_path(path)))
    return requested


def project_files(folder: Path) -> Iterator[Path]:
    """The files that declare a project's dependencies, from its folder up to the root of its repository."""
    found = 0
    for place in iter_parent_folders(folder, outside=True):
        named = [place / name for name in _REQUIREMENT_FILES]
        for path in [*sorted(place.glob("requirements*.txt")), *sorted(place.glob("requirements/*.txt")), *named]:
            if is_file(path) and found < _MAX_FILES:
                found += 1
                yield path


def display_path(path: Path) -> str:
    """The path relative to the current folder if it is below it."""
    try:
        return str(resolve_path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _read_requirements(path: Path) -> Iterator[tuple[str, SpecifierSet, str, str]]:
    try:
        if path.name in ("setup.py", "setup.cfg"):
            text = path.read_text(encoding="utf-8", errors="replace")
            found = [(name, specifier, "", "") for name, specifier in _QUOTED_REQUIREMENT_PATTERN.findall(text)]
        else:
            packages = read_environment(SourceFile.read(path)).packages
            found = [(name, one.specifier, one.address, one.extras) for name, one in packages.items()]
    except (OSError, UserError):
        return
    for name, specifier, address, extras in found:
        yield canonical_package_name(name), _parse_specifier(specifier), address, extras


def _parse_specifier(text: str) -> SpecifierSet:
    """The versions that a text allows; any version if it isn't a valid specifier."""
    try:
        return SpecifierSet(text.strip().rstrip(","))
    except InvalidSpecifier:
        return SpecifierSet()


def explain_package_mismatch(rank: RankRecord, requirements: Requirements, record: RehearsalRecord) -> Reason | None:
    """The mismatch between these packages and the run's that explains the failure; None if there is none."""
    return None if rank.failure is None else _explain_mismatch(rank.failure, requirements, rank.versions, record)


def missing_packages(failure: Failure) -> list[str]:
    """The distributions (canonical names) that the failure reports as missing."""
    return [name for exception in exception_chain(failure) for _, name in _reported_missing(exception)]


def _reported_missing(exception: ChainedException) -> Iterator[tuple[re.Match[str], str]]:
    """Each place of a message that reports a missing module or package, and the distribution."""
    for match in _MISSING_PACKAGE_PATTERN.finditer(f"{exception.type}: {exception.message}"):
        name = match[match.lastindex or 0]
        yield match, distribution_of(imported_name(name, exception) if match[1] else name)


def imported_name(module: str, failed: ChainedException) -> str:
    """The module that the failed statement imports: Python's message has only the first part that it did not find."""
    line = failed.frames[-1].text if failed.frames else ""
    whole = re.search(rf"(?:import|from)\s+({re.escape(module)}(?:\.\w+)+)", line)
    return whole[1] if whole is not None else module


def suggested_packages(failure: Failure, record: RehearsalRecord) -> list[str]:
    """The distributions that the failure's message says to install and that the rehearsal did not have."""
    distributions = [distribution_of(match[1]) for match in re.finditer(_PIP_INSTALL, failure.message)]
    return [name for name in distributions if not _rehearsed_version(name, record)]


def unavailable_packages(failure: Failure, record: RehearsalRecord) -> list[str]:
    """Those of :func:`missing_packages` that the rehearsal did not have."""
    return [name for name in missing_packages(failure) if not _rehearsed_version(name, record)]


def _explain_mismatch(
    failure: Failure, requirements: Requirements, versions: Mapping[str, str], record: RehearsalRecord
) -> Reason | None:
    """The mismatch that explains the failure, or None."""
    text = "\n".join(f"{exception.type}: {exception.message}" for exception in exception_chain(failure))
    for match, name in (found for exception in exception_chain(failure) for found in _reported_missing(exception)):
        if _rehearsed_version(name, record):
            continue
        if (project := find_project_file(match[1] or match[3] or "", Path(record.cwd))) is not None:
            return Reason(project_not_installed_text(match[1] or match[3], project), prepare_launch())
        if name in requirements:
            return _NOT_INSTALLED.format(package=name, file=requirements[name][1])
        if (
            match[1]
            and not requirements
            and not record.whole_environment
            and not is_project_module(match[1], Path(record.cwd))
        ):
            return _NO_VERSION_DECLARED.format(package=name)
    if _involves_package("torch", failure, text) and (page := find_nightly_torch_page(Path(record.cwd))) is not None:
        return _NIGHTLY.format(file=display_path(page), have=f"torch {versions.get('torch', '')}".rstrip())
    if not API_ERROR_PATTERN.search(text):
        return None
    others = []
    for name, (specifier, file) in requirements.items():
        have = versions.get(name) or _rehearsed_version(name, record)
        if have and is_excluded_by(have, specifier):
            others.append({"file": file, "wanted": f"{name}{specifier}", "have": have})
            if _involves_package(name, failure, text):
                return _REQUIRES_OTHER_VERSION.format(**others[-1], name=name)
    unlisted = _unlisted_package(text, requirements, Path(record.cwd))
    if others and unlisted is not None and not record.whole_environment:
        return _VERSION_MISMATCH.format(**others[0], package=unlisted)
    frame = last_frame_outside_torch(failure)
    if record.laid_over and not record.whole_environment and frame is not None and frame.owner == "library":
        laid = ", ".join(f"{name} {version}" for name, version in record.laid_over.items())
        return _LAID_OVER.format(laid=laid)
    return None


def _unlisted_package(error_text: str, requirements: Requirements, folder: Path) -> str | None:
    """The package that lacks an attribute and for which no file of the project requires a version."""
    for match in _MISSING_NAME_PATTERN.finditer(error_text):
        module = (match[1] or match[2]).partition(".")[0]
        name = distribution_of(module)
        if name not in requirements and module not in sys.stdlib_module_names and not is_project_module(module, folder):
            return name
    return None


def project_not_installed_text(package: str, file: Path) -> Text:
    """The sentence that says how to install the project itself."""
    return _PROJECT_NOT_INSTALLED.format(package=package, file=display_path(file), folder=display_path(file.parent))


def is_project_module(module: str, folder: Path) -> bool:
    """Whether the project has a module of that name, up to some folders deep: it exists but isn't importable."""
    first = module.partition(".")[0]
    *_, top = iter_parent_folders(folder)
    for place in (top, *(one for depth in range(1, _MAX_DEPTH) for one in top.glob("*/" * depth))):
        if is_file(place / f"{first}.py") or is_file(place / first / "__init__.py"):
            return True
    return False


def find_project_file(name: str, folder: Path) -> Path | None:
    """The project file that would install the module or distribution of that name; None if there is none."""
    first = name.partition(".")[0]
    own_name = re.compile(r"(?:^|[(,])\s*name\s*=\s*[\"']?([\w.-]+)", re.MULTILINE)
    for path in project_files(folder) if first else ():
        if path.name in ("pyproject.toml", "setup.py", "setup.cfg"):
            if any(exists(path.parent / below / first / "__init__.py") for below in ("", "src")):
                return path
            with contextlib.suppress(OSError):
                text = path.read_text(encoding="utf-8", errors="replace")
                if any(
                    canonical_package_name(found) == canonical_package_name(name) for found in own_name.findall(text)
                ):
                    return path
    return None


def _rehearsed_version(name: str, record: RehearsalRecord) -> str:
    """The version of a package in the rehearsal's Python; empty if it has none."""
    laid = record.laid_over.get(name, "")
    return laid if laid or record.whole_environment else str(installed_version(name) or "")


def distribution_of(module: str) -> str:
    """The canonical name of the distribution that provides a module, guessed from the module's name."""
    first, *rest = module.split(".")
    if rest and first in _SHARED_NAMES and module not in DISTRIBUTION_BY_MODULE:
        return canonical_package_name("-".join([first, *rest[: _SHARED_NAMES[first]]]))
    return canonical_package_name(DISTRIBUTION_BY_MODULE.get(module) or DISTRIBUTION_BY_MODULE.get(first) or first)


def is_excluded_by(version_text: str, specifier: SpecifierSet) -> bool:
    """Whether a version is certainly outside of a specifier."""
    try:
        return not specifier.contains(Version(version_text).public, prereleases=True)
    except InvalidVersion:
        return False


def _involves_package(name: str, failure: Failure, error_text: str) -> bool:
    """Whether the message names the package, or its code was called before the failure."""
    module = name.replace("-", "[-_]")
    if re.search(rf"\b{module}\b", error_text, re.IGNORECASE):
        return True
    if any(
        _is_call_imported_from(module, match[1], failure) for match in CALL_SIGNATURE_ERROR_PATTERN.finditer(error_text)
    ):
        return True
    folders = re.compile(rf"[/\\]{module}[/\\]", re.IGNORECASE)
    return any(frame.owner != "user" and folders.search(frame.path) for frame in failure.frames)


def _is_call_imported_from(module: str, callee: str, failure: Failure) -> bool:
    """Whether the failing file imports the called function from that module: a rejected call has no frame."""
    frame = failure.innermost("user")
    try:
        text = Path(frame.path).read_text(encoding="utf-8", errors="replace") if frame is not None else ""
    except OSError:
        return False
    imported = rf"^\s*from {module}[\w.]* import (?:\([^)]*|[^\n]*)\b{callee}\b"
    return re.search(rf"{imported}|\b{module}\.(?:\w+\.)*{callee}\(", text, re.MULTILINE) is not None


def find_nightly_torch_page(folder: Path) -> Path | None:
    """The README whose install commands take torch only from nightly builds; None if there is none.

    READMEs are searched from the folder up to the root of its repository.
    """
    for place in iter_parent_folders(folder, outside=True):
        for page in sorted(place.glob("README*.md")):
            if is_file(page) and _installs_only_nightly(page):
                return page
    return None


def _installs_only_nightly(page: Path) -> bool:
    try:
        text = page.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    except OSError:
        return False
    lines = [
        match["words"]
        for match in _PIP_INSTALL_PATTERN.finditer(text)
        if _TORCH_REQUIREMENT_PATTERN.search(match["words"])
    ]
    return bool(lines) and all(_NIGHTLY_TORCH_PATTERN.search(line) for line in lines)
