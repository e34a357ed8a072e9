"""Builds wheels from sources that have none: confined, without network, kept in the cache.

Build requirements are fetched beforehand, as wheels. The sources' own code (``setup.py``, hooks of a build backend)
runs only in a world of :mod:`gonogo.confinement`, and only the wheel is taken from its output.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gonogo.confinement.confinement import Confinement
from gonogo.confinement.trees import remove_tree
from gonogo.confinement.untrusted_files import read_untrusted
from gonogo.confinement.world import World
from gonogo.finding import Text, translated
from gonogo.prepare.packages.installed import installed_version
from gonogo.prepare.packages.names import SETUPTOOLS_WITH_PKG_RESOURCES
from gonogo.prepare.packages.places import ReportProgress, cache_folder
from gonogo.prepare.packages.sources import PackageSource
from gonogo.prepare.packages.uv import WHEELS_ONLY_OPTIONS, UvFailed, run_uv

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_CACHE_FORMAT_VERSION = 1
_STEP_TIMEOUT = 1500.0
_REPORT_AFTER_SECONDS = 2.0
_MAX_WHEEL_BYTES = 2 << 30
_MAX_PYPROJECT_BYTES = 1 << 20
_MAX_OUTPUT_BYTES = 1 << 16
_BUILD_PROGRAM_PATH = str(Path(__file__).with_name("build_program.py"))
_LEGACY_BUILD_BACKEND = "setuptools.build_meta:__legacy__"
BUILD_REQUIRES_TORCH = ("deepspeed",)
"""Packages whose build imports torch, and therefore gets this Python's."""
BUILD_PACKAGES = (SETUPTOOLS_WITH_PKG_RESOURCES, "wheel", "packaging", "py-cpuinfo", "psutil", "ninja")
"""What such builds, and other old ones, import without declaring it."""
_MISSING_MODULE_PATTERN = re.compile(r"No module named '[\w.]+'")
_WHEEL_NAME_PATTERN = re.compile(r"[\w.!+]+-[\w.!+]+(?:-\w+)?-[\w.]+-[\w.]+-[\w.]+\.whl")
_BUILD_VARIABLES = {"DS_BUILD_OPS": "0"}
"""By default DeepSpeed then doesn't compile its operators."""


class BuildFailed(Exception):
    """The build made no wheel; the message is the line of its output that says why."""


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel that was built on this machine, now or earlier."""

    wheel: Path
    name: str
    version: str


def build_wheel(
    source: PackageSource, name: str, report_progress: ReportProgress, *, unconfined: bool = False
) -> BuiltWheel:
    """The wheel of these sources, built unless the cache has it. ``name`` is used in messages.

    Raises BuildFailed, and UserError if this machine has no means to confine the build.
    """
    kept = cache_folder().parent / "built" / _cache_key(source, name)
    if (found := _find_wheel(kept)) is not None:
        return found
    kept.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_folder(f".building-{name[:40]}-", kept.parent) as building:
        build = _WheelBuild(source, name, building, report_progress, unconfined=unconfined)
        result = build.run()
        filled = building / "kept"
        filled.mkdir()
        shutil.copyfile(result, filled / result.name)
        with contextlib.suppress(OSError):  # another process may have built it
            os.rename(filled, kept)
    found = _find_wheel(kept)
    if found is None:
        raise BuildFailed("its build made no wheel that can be read")
    return found


def _cache_key(source: PackageSource, name: str) -> str:
    torch = ""
    if name in BUILD_REQUIRES_TORCH:
        torch = str(installed_version("torch"))
    identity = [
        source.identity,
        source.subfolder,
        platform.python_version(),
        platform.machine(),
        torch,
        str(_CACHE_FORMAT_VERSION),
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]


@contextlib.contextmanager
def _temporary_folder(prefix: str, parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        remove_tree(folder)


def _find_wheel(folder: Path) -> BuiltWheel | None:
    """The wheel in a folder, with the name and version in its metadata; None if there is no readable one."""
    for file in sorted(folder.glob("*.whl")):
        try:
            with zipfile.ZipFile(file) as content:
                metadata = next(one for one in content.infolist() if _is_metadata(one))
                headers = HeaderParser().parsestr(content.read(metadata).decode("utf-8", "replace"))
        except Exception:  # zipfile may raise anything: the file is untrusted
            continue
        name, version = headers.get("Name", ""), headers.get("Version", "")
        if name and version:
            return BuiltWheel(file, canonicalize_name(name), version)
    return None


def _is_metadata(entry: zipfile.ZipInfo) -> bool:
    return bool(re.fullmatch(r"[^/]+\.dist-info/METADATA", entry.filename)) and entry.file_size <= _MAX_PYPROJECT_BYTES


class _WheelBuild:
    """One PEP 517 build: its environment, and its steps, each in a confined world that can't write to it."""

    def __init__(
        self, source: PackageSource, name: str, folder: Path, report_progress: ReportProgress, *, unconfined: bool
    ) -> None:
        self._source = source
        self._name = name
        self._folder = folder
        self._report_progress = report_progress
        self._unconfined = unconfined
        self._what = Text(
            "building {name} here, unconfined" if unconfined else "building {name} here, confined",
            "在本机构建 {name}（未受限制）" if unconfined else "在本机受限环境中构建 {name}",
        ).format(name=name)
        self._environment = folder / "environment"
        self._own_shown = False
        self._wheel_name = ""

    def run(self) -> Path:
        """Build the wheel, in the build's folder. Raises BuildFailed."""
        self._make_environment()
        table = self._run_backend_hook("system", "", [])
        system = _read_build_system(table)
        backend, backend_path = str(system["build-backend"]), list(system["backend-path"])
        with_own = self._name in BUILD_REQUIRES_TORCH
        if with_own:
            self._expose_own_packages()
        own_rules = [*BUILD_PACKAGES, *conflicting_requirements(self._source.path)] if with_own else []
        self._install_build_requirements([*system["requires"], *own_rules])
        try:
            return self._run_build_steps(backend, backend_path)
        except BuildFailed as error:
            if with_own or not _MISSING_MODULE_PATTERN.search(str(error)):
                raise
        # The build imports packages that it doesn't declare, as packages do whose installation instructions say
        # `pip install --no-build-isolation`.
        self._expose_own_packages()
        self._install_build_requirements(list(BUILD_PACKAGES))
        return self._run_build_steps(backend, backend_path)

    def _run_build_steps(self, backend: str, backend_path: list[str]) -> Path:
        requested = None if self._own_shown else self._run_backend_hook("requires", backend, backend_path)
        try:
            more = json.loads(requested or b"[]")
        except (ValueError, RecursionError):
            more = []
        self._install_build_requirements(
            [one for one in more if isinstance(one, str)] if isinstance(more, list) else []
        )
        content = self._run_backend_hook("wheel", backend, backend_path)
        if content is None:
            raise BuildFailed("its build made no wheel")
        file = self._folder / self._wheel_name
        file.write_bytes(content)
        return file

    # -- its environment

    def _make_environment(self) -> None:
        command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(self._environment)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env={}, cwd="/", check=False)
        if done.returncode != 0:
            raise BuildFailed(_last_error(f"{done.stdout}\n{done.stderr}"))

    def _site_packages(self) -> Path:
        return next((self._environment / "lib").glob("python3.*/site-packages"))

    def _expose_own_packages(self) -> None:
        """Make this Python's packages importable, after those of the environment."""
        self._own_shown = True  # as without build isolation, where the backend isn't asked for requirements
        own = [place for place in sys.path if place.endswith("-packages")]
        (self._site_packages() / "own.pth").write_text("\n".join([*own, ""]), encoding="utf-8")

    def _install_build_requirements(self, lines: Sequence[str]) -> None:
        """Install wheels. uv uses this Python, never the environment's, which would run code installed there."""
        wanted = []
        for line in lines:
            try:
                one = Requirement(line)
            except InvalidRequirement:
                raise BuildFailed(f"its build requires {line[:100]!r}, which is no requirement") from None
            if one.url is not None:
                raise BuildFailed(f"its build requires {one.name} from an address, which is not fetched")
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                wanted.append(line)
        if not wanted:
            return
        (self._folder / "build.in").write_text("\n".join([*wanted, ""]), encoding="utf-8")
        (self._folder / "old.txt").write_text(f"{SETUPTOOLS_WITH_PKG_RESOURCES}\n", encoding="utf-8")
        words = ["pip", "install", "--python", sys.executable, "--prefix", str(self._environment), *WHEELS_ONLY_OPTIONS]
        words += ["-r", "build.in"]
        try:
            with contextlib.suppress(UvFailed):
                run_uv(
                    [*words, "--constraints", "old.txt"],
                    cwd=self._folder,
                    what=self._what,
                    report_progress=self._report_progress,
                )
                return
            run_uv(words, cwd=self._folder, what=self._what, report_progress=self._report_progress)
        except UvFailed as error:
            raise BuildFailed(f"what its build requires can't be had: {error.reason}") from None

    # -- its steps

    def _run_backend_hook(self, step: str, backend: str, backend_path: list[str]) -> bytes | None:
        """Run one step in a confined world, and return what it wrote. Raises BuildFailed if it fails."""
        with _temporary_folder("gonogo-build-", Path(os.environ.get("TMPDIR") or tempfile.gettempdir())) as scratch:
            confinement = Confinement(scratch, unconfined=self._unconfined)
            shared = confinement.shared
            for name in ("home", "tmp", "out"):
                (shared / name).mkdir()
            source = confinement.readable / "source"
            if self._source.path.is_dir():
                shutil.copytree(self._source.path, source, symlinks=True)
            else:
                shutil.copyfile(self._source.path, source)
            result = shared / "out" if step == "wheel" else shared / "told"
            with confinement.world() as world:
                # With an overlay, writes are limited and vanish with the world.
                work = (self._folder if world.has_overlay else shared) / "work"
                python = str(self._environment / "bin" / "python")
                words = [
                    python,
                    "-I",
                    _BUILD_PROGRAM_PATH,
                    step,
                    str(source),
                    self._source.subfolder,
                    str(work),
                    backend,
                ]
                words += [json.dumps(backend_path), str(result)]
                status, output = self._run_in_world(world, words, shared)
                if world.limit is not None:
                    raise BuildFailed(world.limit.en)
            if status != 0:
                raise BuildFailed(_last_error(output))
            if step != "wheel":
                return read_untrusted(result, _MAX_PYPROJECT_BYTES)
            return self._read_wheel(result)

    def _read_wheel(self, folder: Path) -> bytes | None:
        with contextlib.suppress(OSError):  # the build may have deleted the folder
            for name in sorted(os.listdir(folder)):
                if _WHEEL_NAME_PATTERN.fullmatch(name):
                    self._wheel_name = name
                    return read_untrusted(folder / name, _MAX_WHEEL_BYTES)
        return None

    def _run_in_world(self, world: World, words: list[str], shared: Path) -> tuple[int, str]:
        environment = {
            "PATH": os.pathsep.join([str(self._environment / "bin"), os.environ.get("PATH", os.defpath)]),
            "HOME": str(shared / "home"), "TMPDIR": str(shared / "tmp"), "LANG": "C.UTF-8", **_BUILD_VARIABLES,
            **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        }  # fmt: skip
        process = subprocess.Popen(
            world.command(words),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=shared,
            env=world.environment(environment),
        )  # fmt: skip
        assert process.stdout is not None
        tail = _OutputTail(process.stdout)
        started = time.monotonic()
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(0.1)
                    break
                seconds = time.monotonic() - started
                if seconds > _STEP_TIMEOUT:
                    raise BuildFailed(f"its build had not ended after {_STEP_TIMEOUT:.0f} s")
                if seconds > _REPORT_AFTER_SECONDS:
                    self._report_progress(
                        translated("{what} ({seconds:.0f} s)").format(what=self._what, seconds=seconds)
                    )
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return status, tail.output_text()


class _OutputTail:
    """The end of a program's output, read continuously: it may be endless, and others may keep the pipe open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = b""
        self._thread = threading.Thread(target=self._read_output, daemon=True)
        self._thread.start()

    def _read_output(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._kept = (self._kept + block)[-_MAX_OUTPUT_BYTES:]

    def output_text(self) -> str:
        self._thread.join(2)
        return self._kept.decode(errors="replace")


def conflicting_requirements(archive: Path) -> list[str]:
    """The requirements in the sources' metadata that this Python's installed versions don't satisfy.

    A build that imports this Python's packages imports the package itself too, and so what the package needs: an
    older DeepSpeed asks for pydantic below 2.
    """
    found = []
    for line in _declared_requirements(archive):
        with contextlib.suppress(InvalidRequirement):
            one = Requirement(line)
            have = installed_version(one.name)
            applies = one.marker is None or one.marker.evaluate({"extra": ""})
            if have is not None and applies and one.url is None and one.name not in ("torch", "numpy"):
                found += [] if one.specifier.contains(have, prereleases=True) else [line]
    return found


def _declared_requirements(archive: Path) -> list[str]:
    """The ``Requires-Dist`` of the sources' own metadata, or its ``requires.txt``; none if it can't be read."""
    try:
        with tarfile.open(archive) as content:
            for member in content:
                if member.isfile() and member.size <= _MAX_PYPROJECT_BYTES and member.name.endswith("/requires.txt"):
                    file = content.extractfile(member)
                    text = file.read(_MAX_PYPROJECT_BYTES).decode("utf-8", "replace") if file is not None else ""
                    return [line for line in text.partition("\n[")[0].splitlines() if line.strip()]
    except Exception:  # tarfile may raise anything: the file is untrusted
        return []
    return []


def _read_build_system(table: bytes | None) -> dict[str, Any]:
    """The ``[build-system]`` of the sources, which defaults to setuptools."""
    try:
        build_system = tomllib.loads((table or b"").decode("utf-8")).get("build-system")
    except (ValueError, RecursionError):
        raise BuildFailed("its pyproject.toml can't be read") from None
    build_system = build_system if isinstance(build_system, dict) else {"requires": ["setuptools", "wheel"]}
    requires, path = build_system.get("requires", []), build_system.get("backend-path", [])
    found = {
        "requires": [one for one in requires if isinstance(one, str)] if isinstance(requires, list) else [],
        "build-backend": build_system.get("build-backend", _LEGACY_BUILD_BACKEND),
        "backend-path": [one for one in path if isinstance(one, str)] if isinstance(path, list) else [],
    }
    if not isinstance(found["build-backend"], str):
        raise BuildFailed("its pyproject.toml names no build backend")
    return found


def _last_error(build_output: str) -> str:
    lines = [line.strip() for line in build_output.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"(?:[A-Za-z_.]*(?:Error|Exception|Exit)\b|error:)", line)]
    last = (raised or lines or ["its build said nothing"])[-1]
    return "".join(letter for letter in last if letter.isprintable())[:300]
