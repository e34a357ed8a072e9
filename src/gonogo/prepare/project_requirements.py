"""Collects a project's environment in one requirements file: what its files list, and what they forget.

The nearest list counts, then the requirements of the project's own package. From its other lists (extras, further
requirements files) only what the launch imports is used: nobody installs all of them.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gonogo.evidence.environment.compatibility import releases_for_torch
from gonogo.evidence.environment.environment import ADDED_HEADING, Environment
from gonogo.evidence.environment.own_package import ProjectPackage, project_package, python_packages_in_folder
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.reading import read_environment
from gonogo.evidence.environment.stated import stated_releases
from gonogo.evidence.environment.version_range import parse_version
from gonogo.evidence.paths import is_file, is_folder, iter_parent_folders
from gonogo.evidence.run import Run
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError
from gonogo.prepare.environment_mismatch import DISTRIBUTION_BY_MODULE, declared_requirements, distribution_of
from gonogo.prepare.packages.installed import installed_version, satisfies_specifier
from gonogo.prepare.packages.names import STACK
from gonogo.prepare.packages.requested import index_option_lines

FILE = "environment.txt"
_REQUIREMENT_FILE_NAMES = (
    "requirements.txt",
    "environment.yml",
    "environment.yaml",
    "conda.yml",
    "conda.yaml",
    "Pipfile",
    "Dockerfile",
)
_PIP_INSTALL_PATTERN = re.compile(
    r"^[ \t]*(?:(?:[-*$>`]|\d+\.) ?)*(?:(?:python3?|uv)(?: -m)? )?pip3? install ([^\n`&|;]+)", re.MULTILINE
)
_CONDA_INSTALL_PATTERN = re.compile(
    r"^[ \t]*(?:(?:[-*$>`]|\d+\.) ?)*((?:conda|mamba|micromamba) install [^\n`&|;#]+)", re.MULTILINE
)
_LIST_NAMED_PATTERN = re.compile(
    r"(?:\bpip3? install|\b(?:conda|mamba|micromamba)(?: env)? (?:create|update|install))\b[^\n`&|;#]*?"
    r" (?:-r|--requirement|-f|--file)[ =]([\w./-]+)"
)
_OPTIONS_WITHOUT_VALUE = frozenset(
    {"-U", "--upgrade", "-q", "--quiet", "--no-build-isolation", "--no-cache-dir", "--no-deps", "--user"}
)
"""pip options that take no value."""
# Packages that a launch needs only because of its options, and that frameworks import only then.
COMMON_PACKAGES = frozenset({
    "deepspeed", "accelerate", "transformers", "datasets", "peft", "trl", "tokenizers", "sentencepiece", "protobuf",
    "tensorboard", "tensorboardx", "wandb", "swanlab", "einops", "tiktoken", "safetensors", "evaluate", "numpy",
    "pandas", "scipy", "scikit-learn", "pillow", "tqdm", "jsonlines", "timm", "bitsandbytes", "liger-kernel",
    "huggingface-hub", "triton", "qwen-vl-utils", "nltk", "rouge-chinese", "jieba", "loguru", "fire", "rich", "pyyaml",
    "json-repair", "ftfy", "sacrebleu", "rouge-score", "omegaconf", "hydra-core", "python-dotenv", "matplotlib",
    "openai", "aiohttp", "requests", "psutil", "pyarrow", "jinja2", "tabulate", "colorama", "termcolor",
    "math-verify", "latex2sympy2-extended", "torchvision", "torchaudio", "regex", "wget", "webdataset",
    "braceexpand", "librosa", "soundfile", "torchlibrosa", "resampy", "phonemizer", "unidecode", "inflect", "pyworld",
    "decord", "imageio", "imageio-ffmpeg", "lmdb", "h5py", "submitit", "torchmetrics", "kornia", "albumentations",
    "pycocotools", "fairscale", "fvcore", "iopath", "yacs", "easydict", "ml-collections", "gdown", "lpips", "ujson",
    "torchdiffeq", "vector-quantize-pytorch", "rotary-embedding-torch", "gymnasium", "networkx", "numba", "joblib",
    "seaborn", "sacremoses", "mlflow", "prettytable", "click", "typer", "torchinfo", "plyfile", "trimesh", "addict",
    "opt-einsum", "jaxtyping", "beartype", "more-itertools", "pytorch-msssim", "dill", "orjson", "zstandard",
    "sentence-transformers", "lightning", "xxhash", "msgpack", "pydantic", "diffusers", "editdistance", "jiwer",
    *DISTRIBUTION_BY_MODULE.values(),  # whoever imports cv2 needs opencv-python, whether a list names it or not
})  # fmt: skip


class ProjectPackages(msgspec.Struct):
    """A project's requirements by canonical name, each as a line of a requirements file."""

    lines: dict[str, str] = {}
    files: list[str] = []
    """The files that list them, relative to the folder."""
    added: list[str] = []
    """Packages that the launch needs but none of these files lists."""
    own: ProjectPackage | None = None
    asked: dict[str, str] = {}
    """Requirements from other lists of the project."""
    index_lines: list[str] = []
    """Lines of these files that name an index; they are not followed."""
    absent: tuple[str, ...] = ()
    """Packages for which rehearsals have a stand-in but that the run certainly doesn't have."""

    def add(self, name: str) -> bool:
        """Add a package that turned out to be missing; False if it is there or isn't known to be a package's name."""
        own = self.own.name if self.own is not None else ""
        name = f"python-{name}" if name not in self.asked and f"python-{name}" in self.asked else name
        if name in self.lines or name == own or not (name in COMMON_PACKAGES or name in self.asked):
            return False
        self.lines[name] = self.asked.get(name, name)
        self.added.append(name)
        return True

    def has(self, module: str) -> bool:
        """Whether the package that provides a module is installed or will be."""
        name = distribution_of(module)
        return name in self.lines or installed_version(name) is not None

    @property
    def differs_from_installed(self) -> bool:
        """Whether the Python that runs gonogo lacks one of them or has another version."""
        return any(
            not satisfies_specifier(installed_version(name), _specifier_of_line(line))
            for name, line in self.lines.items()
        )

    def requirements_file(self) -> bytes:
        """The content of the requirements file."""
        lines = [f"# What {', '.join(self.files) or 'the launch'} asks for, put together by gonogo prepare."]
        lines += [f"# Not followed: {line}" for line in self.index_lines]
        lines += [line for name, line in sorted(self.lines.items()) if name not in self.added]
        lines += [ADDED_HEADING] if self.added else []
        lines += [self._release_for_torch(name) for name in sorted(self.added)]
        return "\n".join([*lines, ""]).encode()

    def _release_for_torch(self, name: str) -> str:
        """The line of a package that no file lists, with the release that goes with the pinned torch."""
        line = self.lines[name]
        pinned = [one for one in _specifier_of_line(self.lines.get("torch", "")) if one.operator in ("==", "===")]
        version = parse_version(pinned[0].version.removesuffix(".*")) if pinned else None
        releases = releases_for_torch(name, version) if version is not None and line == name else None
        return f"{name}{releases or ''}" if line == name else line


def project_packages(runs: Sequence[Run], folder: Path) -> ProjectPackages:
    """The requirements in a project's files for these runs. ``folder`` is the working directory of the launch."""
    starts = [Path(os.path.abspath(place)) for place in _folders_to_search(runs, folder)]
    found = ProjectPackages()
    for place in dict.fromkeys(place for start in starts for place in iter_parent_folders(start)):
        if found.own is None:
            found.own = project_package(place)
        if not found.files:
            usual = [place / name for name in _REQUIREMENT_FILE_NAMES]
            for path in (*usual, *(place / name for page in _pages(place) for name in _lists_named_on(page))):
                if is_file(path) and _add_packages(found, _requirement_lines(path, found)):
                    found.files.append(_display_path(path, folder))
                    break
    if found.own is None:
        found.own = _package_of_a_subfolder(runs, folder)
    own = found.own
    if own is not None:
        took = _add_packages(found, _named_requirements(own.requires))
        for path in own.files:
            took = _add_packages(found, _requirement_lines(path, found)) or took
        if took:
            found.files.append(_display_path(own.file, folder))
        found.lines.pop(own.name, None)
    for start in dict.fromkeys(starts):
        requested = declared_requirements(start)
        for name, (specifier, _) in requested.items():
            address, full_name = requested.addresses.get(name), f"{name}{requested.extras.get(name, '')}"
            found.asked.setdefault(name, f"{full_name} @ {address}" if address else f"{full_name}{specifier}")
    for place in dict.fromkeys(place for start in starts for place in iter_parent_folders(start)):
        for path in _pages(place):
            lines = [*_named_requirements(_pip_install_names(path)), *_conda_install_lines(path, found)]
            if lines and not found.files and _add_packages(found, lines):  # the project has no other list
                found.files.append(_display_path(path, folder))
            for name, line in lines:
                found.asked.setdefault(name, line)
    _add_stated(found, runs, starts, folder)
    if found.files:
        for name in _used_distributions(runs):
            if name in STACK or name in found.asked:
                found.add(name)
        for name in _trackers(runs):
            found.add(name)
    return found


def _add_stated(found: ProjectPackages, runs: Sequence[Run], starts: Sequence[Path], folder: Path) -> None:
    """Add the releases that pages state in prose, of packages that the launch imports and whose release is open."""
    places = dict.fromkeys(place for start in starts for place in iter_parent_folders(start))
    used = {"torch", *_used_distributions(runs)}
    for name, stated in stated_releases(places).items():
        known = found.lines.get(name)
        if name not in used or (known is not None and (_specifier_of_line(known) or " @ " in known)):
            continue
        found.lines[name] = f"{known or name}{stated.specifier}"
        if (page := _display_path(stated.page, folder)) not in found.files:
            found.files.append(page)


_MAX_FOLDERS = 400
_MAX_DEPTH = 2


def _package_of_a_subfolder(runs: Sequence[Run], folder: Path) -> ProjectPackage | None:
    """The one package in a subfolder that provides modules which the launches import and Python doesn't find.

    An example is act's ``detr``, which its users install in place (``cd detr && pip install -e .``): without that
    these imports fail for everybody.
    """
    *_, top = iter_parent_folders(folder)
    lacking: set[str] = set()
    for run in runs:
        beside = {Path(os.path.abspath(one.source.path)).parent for one in run.scripts[:1]}
        for module in {first for script in run.scripts for first in _imported_modules(script)}:
            places = (*beside, folder, top)
            if not any(is_file(place / f"{module}.py") or is_folder(place / module) for place in places):
                lacking.add(module)
    lacking -= sys.stdlib_module_names
    return find_package_providing({one for one in lacking if installed_version(distribution_of(one)) is None}, folder)


def find_package_providing(modules: set[str], folder: Path) -> ProjectPackage | None:
    """The package in a subfolder of a project that provides one of these modules, if it is the only one."""
    *_, top = iter_parent_folders(folder)
    found = [own for own in map(project_package, _subfolders(top)) if own is not None] if modules else []
    supplying = [own for own in found if python_packages_in_folder(own.source) & modules]
    return supplying[0] if len(supplying) == 1 else None


def _imported_modules(script: Script) -> Iterator[str]:
    for node in script.tree.body if script.tree is not None else ():
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _subfolders(root: Path) -> list[Path]:
    """The folders below one, as deep as a project's package may be."""
    found: list[Path] = []
    level = [root]
    for _ in range(_MAX_DEPTH):
        level = [one for place in level for one in _folders_in(place)][: _MAX_FOLDERS - len(found)]
        found += level
    return found


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.name[:1] not in "._" and one.is_dir())
    except OSError:
        return []


def _pages(place: Path) -> list[Path]:
    """The README and the setup scripts in a folder, which say how to install what the project needs."""
    return sorted((*place.glob("README*.md"), *place.glob("setup*.sh"), *place.glob("install*.sh")))


def _text_of(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    except OSError:
        return ""


def _lists_named_on(page: Path) -> Iterator[str]:
    """The files below the page's folder that it says to install from, such as ``conda env create -f FILE``."""
    for match in _LIST_NAMED_PATTERN.finditer(_text_of(page)):
        if not os.path.isabs(match[1]) and ".." not in match[1].split("/"):
            yield match[1]


def _conda_install_lines(page: Path, found: ProjectPackages) -> Iterator[tuple[str, str]]:
    """The requirements after ``conda install`` on a page."""
    commands = "\n".join(match[1] for match in _CONDA_INSTALL_PATTERN.finditer(_text_of(page)))
    if commands:
        yield from _requirements_in(read_environment(SourceFile("install.sh", commands.encode())), found)


def _pip_install_names(path: Path) -> Iterator[str]:
    """The names after ``pip install`` in a project's README or setup script."""
    for match in _PIP_INSTALL_PATTERN.finditer(_text_of(path)):
        words = re.findall(r"\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'`]+", match[1].partition(" #")[0])
        before = ""
        for word in words:
            if not before.startswith("-") or before in _OPTIONS_WITHOUT_VALUE:
                yield word.strip("\"'")
            before = word


def _folders_to_search(runs: Sequence[Run], folder: Path) -> Iterator[Path]:
    for run in runs:
        if run.launch is not None:
            program = run.launch.program.string
            if program and program.endswith(".py"):
                yield (run.launch.cwd / program).parent
            yield run.launch.cwd
    yield folder


def _used_distributions(runs: Sequence[Run]) -> list[str]:
    """Distributions that the launches' own scripts import, and those of their launchers."""
    names: list[str] = []
    for run in runs:
        if run.launch is not None and run.launch.launcher in ("deepspeed", "accelerate"):
            names.append(run.launch.launcher)
        if run.uses_deepspeed or run.arguments.get("deepspeed").string:
            names.append("deepspeed")
        # Not imports in functions or under conditions, nor those in other parts of a framework that is started as a
        # module: the launch may never run them, and a first worker shows those that it does.
        scripts = run.scripts if run.launch is None or run.launch.program_kind != "module" else run.scripts[:1]
        for script in scripts:
            for node in script.tree.body if script.tree is not None else ():
                if isinstance(node, ast.Import):
                    names += [distribution_of(one.name) for one in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.append(distribution_of(node.module))
    return list(dict.fromkeys(names))


def _trackers(runs: Sequence[Run]) -> list[str]:
    """The trackers in ``report_to``: without its package a Trainer can't be created."""
    values = [run.arguments.get("report_to").get(()) for run in runs]
    words = [value.replace(",", " ").split() if isinstance(value, str) else value for value in values]
    return [str(word) for several in words if isinstance(several, list | tuple) for word in several]


def _add_packages(packages: ProjectPackages, lines: Iterable[tuple[str, str]]) -> bool:
    """Add packages that are new, and versions that an earlier list left open; True if there are any lines."""
    there = list(lines)
    for name, line in there:
        known = packages.lines.setdefault(name, line)
        if not _specifier_of_line(known) and " @ " not in known and " @ " not in line:
            packages.lines[name] = f"{known}{_specifier_of_line(line)}"
    return bool(there)


def _requirement_lines(path: Path, found: ProjectPackages) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(UserError):
        yield from _requirements_in(read_environment(SourceFile.read(path)), found)


def _requirements_in(declared: Environment, found: ProjectPackages) -> Iterator[tuple[str, str]]:
    found.index_lines += [line for line in index_option_lines(declared) if line not in found.index_lines]
    for name, package in declared.packages.items():
        if not name[0].isalnum():  # conda's own package, such as _libgcc_mutex
            continue
        extras = f"[{package.extras}]" if package.extras else ""
        if package.address and not _has_spaces(package.address):
            yield name, f"{name}{extras} @ {package.address}"
        elif not package.address:
            yield name, f"{name}{extras}{_specifier_or_empty(package.specifier)}"


def _has_spaces(address: str) -> bool:
    """Whether a URL can't be written in a line of a requirements file."""
    return re.search(r"[\s\0]", address) is not None


def _specifier_or_empty(specifier: str) -> str:
    try:
        return str(SpecifierSet(specifier))
    except InvalidSpecifier:
        return ""


def _named_requirements(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        try:
            one = Requirement(text)
        except InvalidRequirement:
            continue
        extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
        of = f" @ {one.url}" if one.url and not _has_spaces(one.url) else str(one.specifier)
        yield canonical_package_name(one.name), f"{canonical_package_name(one.name)}{extras}{of}"


def _specifier_of_line(line: str) -> SpecifierSet:
    try:
        return Requirement(line).specifier
    except InvalidRequirement:  # its URL isn't valid for packaging, such as a path
        return SpecifierSet()


def _display_path(path: Path, folder: Path) -> str:
    shown = os.path.relpath(path, folder)
    return re.sub(r"^(\.\./){4,}.*", str(path), shown)
