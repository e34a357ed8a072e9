"""A whole environment, out of a file that tells versions: its own Python packages, made by uv, kept for the next time.

Where a training's packages are of another time than this Python's, laying a few of them over does not do: old
``datasets`` breaks on a new ``pyarrow``. So all that the file lists, and what that requires, is installed beside, as of
the day that the project is from. Two things are different from the user's machine, and are said: torch is a CPU build
(the pinned one where it can be had, else this Python's own), and packages that are compiled for CUDA are left to their
stand-ins.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import gonogo
from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.rehearse.packages.cache import Say, cache_folder
from gonogo.rehearse.packages.installed import installed_version, link_torch, satisfied
from gonogo.rehearse.packages.laying import PackageOverlay
from gonogo.rehearse.packages.names import NEVER_BUILT, needs_cuda
from gonogo.rehearse.packages.torch_family import (
    BESIDE_TORCH,
    add_beside_torch,
    install_for_torch,
    install_torch,
    is_required,
    torch_of_the_day,
)
from gonogo.rehearse.packages.uv import UvFailed, python_of, run_uv
from gonogo.rehearse.packages.wanted import Wanted, wanted_by_file, wanted_by_options

_FORMAT = 9
"""Changes when environments are made in another way, so that older ones are not used."""
_KEPT = 12
"""Environments that are kept; the one that was not used for longest goes first."""
_MOST_REFUSED = 20
# What old packages import while they are built, without saying so.
_SETUPTOOLS = "setuptools<81"
"""Of those with pkg_resources, which old packages import: pip leaves the one that a Python brings."""
_TO_BUILD_WITH = (_SETUPTOOLS, "wheel", "packaging", "py-cpuinfo", "psutil", "ninja")
# What gonogo's own part of a rehearsal needs beside torch: records, and checkpoints made of a config alone.
_OF_GONOGO = ("msgspec", "safetensors")
_BUILT_WITH_TORCH = ("deepspeed",)


@dataclass
class _Made:
    """An environment's interpreter, and what of it is not as its file says: (what, what is there instead)."""

    python: Path
    differing: list[tuple[Text, Text]] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)
    names_differing: list[str] = field(default_factory=list)
    """Canonical names of packages of which another version is there, or none."""

    def differ(self, name: str, specifier: str, how: Text) -> None:
        """Note that a package is there otherwise than its file says, or not at all."""
        self.names_differing.append(name)
        self.differing.append((Text(f"{name}{specifier}", f"{name}{specifier}"), how))


@dataclass(frozen=True)
class _Asked:
    """What an environment is made of."""

    requirements: tuple[str, ...]
    pins: tuple[str, ...]
    """Of ``--with``: they win over what the file says."""
    python: str
    as_of: str | None
    built_for_cuda: tuple[str, ...]
    """Packages that gonogo has stand-ins for, or that can't be had."""
    torch: str | None
    """The torch that is pinned, where it isn't this Python's own: a CPU build of it is looked for."""

    @property
    def key(self) -> str:
        here = [str(installed_version("torch")), str(Path(gonogo.__file__).parent), _FORMAT]
        beside = [name for name in BESIDE_TORCH if name in self.built_for_cuda]
        text = json.dumps([self.requirements, self.pins, self.python, self.as_of, self.torch, *here, *beside])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def whole_environment(
    file: Path, with_packages: tuple[str, ...], as_of: str | None, say: Say = lambda _text: None
) -> PackageOverlay:
    """The environment that the file tells of, made now or before; this Python's own where that has all of it.

    ``with_packages`` (``NAME[==VERSION]``) win over the file. ``as_of`` is the day (``2023-11-02``) whose releases
    count where versions are loose; None: the last commit's. Raises UserError for a file or options that can't be read,
    where nothing can be made of them, or where the cache can't be written.
    """
    pins = wanted_by_options(with_packages, (wanted := wanted_by_file(file)).specifiers)
    needed = {**wanted.specifiers, **dict.fromkeys(wanted.without_version, SpecifierSet()), **pins}
    if all(satisfied(installed_version(name), specifier) for name, specifier in needed.items()):
        return PackageOverlay()
    asked, made = _asked(wanted, pins, _day(as_of) if as_of is not None else _last_commit(file))
    folder = cache_folder().parent / "environments" / f"{file.stem or 'environment'}-{asked.key}"
    made.python = python_of(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder, say):
            kept = _kept(folder)
            if kept is None:
                _make(folder, asked, file, say)
                kept = _kept(folder)
            assert kept is not None
            os.utime(folder)
        _drop_oldest(folder)
    except OSError as error:
        raise UserError(
            Text(
                "the environment of {file} can't be made in {path} ({why}): point XDG_CACHE_HOME to a folder that can "
                "be written",
                "无法在 {path} 中创建 {file} 的环境（{why}）：请用 XDG_CACHE_HOME 指向可写的目录",
            ).format(file=file, path=folder.parent, why=error.strerror or error)
        ) from None
    _tell(made, kept, asked, file, given=as_of is not None)
    return PackageOverlay(
        python=made.python,
        versions={n: Version(v) for n, v in kept["versions"].items() if n not in made.names_differing},
        differing=tuple(made.names_differing),
        skipped=tuple(made.differing),
        notes=tuple(made.notes),
    )


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise UserError(
            Text("--as-of {value}: write a day, as in 2023-11-02", "--as-of {value}：请写日期，例如 2023-11-02").format(
                value=text
            )
        ) from None


def _asked(wanted: Wanted, pins: dict[str, SpecifierSet], day: str | None) -> tuple[_Asked, _Made]:
    made = _Made(Path())
    here = platform.python_version_tuple()[:2]
    python = ".".join(here)
    if wanted.python is not None and not _takes(wanted.python, python):
        made.differing.append(
            (
                Text(f"Python {wanted.python}", f"Python {wanted.python}"),
                Text("rehearsed with {here}, for which there is a torch", "使用 {here} 排练，它有可用的 torch").format(
                    here=python
                ),
            )
        )
    listed = [*wanted.specifiers, *wanted.without_version]
    for_cuda = [name for name in listed if needs_cuda(name)]
    installed_apart = {"torch", "gonogo", *for_cuda}
    requirements = [
        f"{name}{wanted.extras.get(name, '')}{pins.get(name, specifier)}"
        for name, specifier in wanted.specifiers.items()
        if name not in installed_apart
    ]
    requirements += [name for name in wanted.without_version if name not in installed_apart]
    listed_or_apart = {*wanted.specifiers, *wanted.without_version, *installed_apart}
    requirements += [f"{name}{specifier}" for name, specifier in pins.items() if name not in listed_or_apart]
    exact = [f"{name}{specifier}" for name, specifier in pins.items() if name not in installed_apart]
    torch = pins.get("torch", wanted.specifiers.get("torch", SpecifierSet()))
    own = installed_version("torch")
    fits = own is not None and torch.contains(Version(own.public), prereleases=True)
    asked = _Asked(
        requirements=tuple(sorted(requirements)),
        pins=tuple(sorted(exact)),
        python=python,
        as_of=day,
        built_for_cuda=tuple(sorted(for_cuda)),
        torch=None if fits else str(torch),
    )
    return asked, made


def _takes(wanted: str, python: str) -> bool:
    with contextlib.suppress(ValueError):
        return SpecifierSet(wanted if wanted[:1] in "<>=!~" else f"=={wanted}.*").contains(f"{python}.99")
    return wanted.split(".")[:2] == python.split(".")


def _last_commit(file: Path) -> str | None:
    """The day of the last commit of the repository in which a file lies; None without one."""
    command = ["git", "-C", str(file.absolute().parent), "log", "-1", "--format=%cs"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@contextlib.contextmanager
def _alone(folder: Path, say: Say) -> Iterator[None]:
    """No other process makes this environment meanwhile."""
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                say(
                    Text(
                        "another gonogo is making this environment ({seconds:.0f} s)",
                        "另一个 gonogo 正在创建该环境（{seconds:.0f} 秒）",
                    ).format(seconds=time.monotonic() - started)
                )
                time.sleep(0.2)
        yield


def _kept(folder: Path) -> dict[str, Any] | None:
    """What was left out of an environment that is there whole, and its torch; None where there is none."""
    try:
        found: dict[str, Any] = json.loads((folder / "gonogo.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if python_of(folder).exists() else None


def _make(folder: Path, asked: _Asked, file: Path, say: Say) -> None:
    """Make the environment under another name, then give it its own: it is there whole or not at all."""
    what = Text("making the environment of {file}", "正在创建 {file} 的环境").format(file=file.name)
    filling = Path(tempfile.mkdtemp(prefix=".filling-", dir=folder.parent))
    try:
        venv = filling / "venv"
        run_uv(["venv", "--relocatable", "--python", sys.executable, str(venv)], cwd=filling, what=what, say=say)
        packages = next((venv / "lib").glob("python3.*/site-packages"))
        (packages / "gonogo").symlink_to(Path(gonogo.__file__).resolve().parent)
        torch = asked.torch or torch_of_the_day(asked.as_of, filling, what, say)
        of_the_day = install_torch(venv, torch, filling, what, say)
        of_today = link_torch(packages) if of_the_day is None else []
        refused = _install(venv, filling, asked, of_today, of_the_day or [], what, say)
        for name in BESIDE_TORCH:
            if name in asked.built_for_cuda or is_required(name, packages):
                add_beside_torch(venv, name, _versions_in(packages)["torch"], filling, what, say)
        made = {"refused": refused, "versions": _versions_in(packages), "torch": torch}
        (venv / "gonogo.json").write_text(json.dumps(made), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # one that is not whole
        os.rename(venv, folder)
    except UvFailed as error:
        raise UserError(
            Text("the environment of {file} can't be made: {why}", "无法创建 {file} 的环境：{why}").format(
                file=file, why=error.reason
            )
        ) from None
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _versions_in(packages: Path) -> dict[str, str]:
    return {canonicalize_name(one.name): one.version for one in metadata.distributions(path=[str(packages)])}


def _install(
    venv: Path, filling: Path, asked: _Asked, of_today: list[str], also: list[str], what: Text, say: Say
) -> dict[str, str]:
    """Install all that can be had; the rest, each with the reason why not.

    ``of_today`` is had whatever the day: this Python's torch requires it; ``also`` goes with what is asked for, and is
    there before, since what is built with torch imports it.
    """
    base = ["pip", "install", "--python", str(python_of(venv))]
    run_uv([*base, *_TO_BUILD_WITH, *_OF_GONOGO], cwd=filling, what=what, say=say)
    as_of = ["--exclude-newer", asked.as_of] if asked.as_of else []
    install_for_torch(base, of_today, as_of, filling, what, say)
    if also:
        with contextlib.suppress(UvFailed):  # it is asked for again below
            run_uv([*base, *also, *as_of], cwd=filling, what=what, say=say)
    loose: dict[str, str] = {}
    left_out: dict[str, str] = {}
    forced = list(asked.pins)
    if not any(Requirement(line).name == "setuptools" for line in (*asked.requirements, *forced)):
        forced.append(_SETUPTOOLS)
    newest = asked.as_of
    for _ in range(_MOST_REFUSED):
        asked_for = {Requirement(line).name: line for line in asked.requirements}
        lines = [_loosened(line) if name in loose else line for name, line in asked_for.items() if name not in left_out]
        lines += [line for line in also if Requirement(line).name not in (*asked_for, *left_out)]
        files = {
            "requirements.in": lines,
            "overrides.txt": forced,
            "excludes.txt": ["torch", *asked.built_for_cuda, *_CUDA_ALONE, *left_out],
        }
        for name, content in files.items():
            (filling / name).write_text("\n".join(content) + "\n", encoding="utf-8")
        arguments = [*base, "--upgrade", "-r", "requirements.in", "--overrides", "overrides.txt"]
        arguments += ["--excludes", "excludes.txt"]
        arguments += ["--exclude-newer", newest] if newest else []
        arguments += [word for name in _BUILT_WITH_TORCH for word in ("--no-build-isolation-package", name)]
        arguments += [word for name in NEVER_BUILT for word in ("--only-binary", name)]
        try:
            run_uv(arguments, cwd=filling, what=what, say=say, environment={"DS_BUILD_OPS": "0"})
            break
        except UvFailed as error:
            exact = {line for line in lines if "==" in line}
            refused = next((name for name in error.packages if name not in left_out), None)
            if newest and "exclude-newer" in error.text:
                newest = None  # the file pins something newer than the repository's last commit
            elif refused is not None:
                (left_out if refused in loose or refused not in asked_for else loose)[refused] = error.reason
                forced = [line for line in forced if Requirement(line).name != refused]
            elif not exact <= set(forced):
                forced = sorted({*exact, *forced})  # they contradict each other, and yet were all installed
            else:
                raise
    else:
        raise UvFailed(f"error: more than {_MOST_REFUSED} packages can't be had")
    install_for_torch(base, of_today, as_of, filling, what, say)  # the project may pin older ones
    return {name: why for name, why in {**loose, **left_out}.items() if name in asked_for}


def _loosened(line: str) -> str:
    """A requirement of any version."""
    requirement = Requirement(line)
    return f"{requirement.name}[{','.join(sorted(requirement.extras))}]" if requirement.extras else requirement.name


_CUDA_ALONE = (
    *("flash-attn", "apex", "xformers", "torchvision", "torchaudio", "deepspeed-kernels", "pytorch-triton"),
    *("flashinfer-python", "sgl-kernel", "transformer-engine", "mamba-ssm", "causal-conv1d", "vllm", "sglang"),
)
"""Left out also where another package requires them: their builds on PyPI want CUDA's libraries, or nvcc."""


def _drop_oldest(folder: Path) -> None:
    """Let only so many environments be; who else uses one holds no lock, so that only old ones go."""
    others = sorted(
        (one for one in folder.parent.iterdir() if one.is_dir() and not one.name.startswith(".")),
        key=lambda one: one.stat().st_mtime,
        reverse=True,
    )
    for old in others[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _tell(made: _Made, kept: dict[str, Any], asked: _Asked, file: Path, *, given: bool) -> None:
    """What stands in the report of it."""
    versions, torch = kept["versions"], kept.get("torch")
    if torch is not None and not SpecifierSet(torch).contains(Version(versions["torch"]).public):
        made.differ("torch", torch, _OTHER.format(name="torch", version=versions["torch"]))
    for name in asked.built_for_cuda:
        if name in versions:  # torchvision or torchaudio, beside a torch without CUDA
            made.differ(name, "", _WITHOUT_OPERATORS.format(name=name, version=versions[name]))
        else:
            made.differ(name, "", _BUILT_FOR_CUDA)
    for name, why in kept["refused"].items():
        specifier = next((line for line in asked.requirements if Requirement(line).name == name), name)[len(name) :]
        how = Text("could not be installed: {why}", "无法安装：{why}").format(why=why)
        if name in versions:
            other = _OTHER.format(name=name, version=versions[name])
            how = Text("{other}; it {how}", "{other}；它{how}").format(other=other, how=how)
        made.differ(name, specifier, how)
    of_day = Text("", "")
    if asked.as_of is not None:
        of_day = Text(", with the releases of {day}", "，版本以 {day} 为准").format(day=asked.as_of)
    if asked.as_of is not None and not given:
        of_day = Text(
            "{of_day} (the repository's last commit; --as-of DATE takes another)",
            "{of_day}（仓库的最后一次提交；可用 --as-of DATE 另行指定）",
        ).format(of_day=of_day)
    made.notes.append(
        Text("rehearsed in the environment of {file}{of_day}", "在 {file} 的环境中排练{of_day}").format(
            file=file, of_day=of_day
        )
    )


_OTHER = Text("rehearsed with {name} {version}", "使用 {name} {version} 排练")
_WITHOUT_OPERATORS = Text(
    "rehearsed with {name} {version}, without its compiled operators, which want CUDA's libraries",
    "使用 {name} {version} 排练，不含需要 CUDA 库的编译算子",
)
_BUILT_FOR_CUDA = Text(
    "built for CUDA: not installed, its stand-in takes its place where gonogo has one",
    "针对 CUDA 编译：未安装，gonogo 有替身时由替身代替",
)
