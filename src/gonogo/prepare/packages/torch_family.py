"""The torch of an environment, and what is built against it: as near to the run's as can be had for a CPU."""

from __future__ import annotations

import contextlib
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from gonogo.finding import Text
from gonogo.prepare.packages.installed import installed_version
from gonogo.prepare.packages.names import OLDEST_TORCH, SETUPTOOLS_WITH_PKG_RESOURCES
from gonogo.prepare.packages.places import Say
from gonogo.prepare.packages.uv import WHEELS_ONLY_OPTIONS, UvFailed, into, run_uv

# Releases of torch that can be rehearsed with, oldest first.
_TORCH_RELEASES = tuple(
    Version(f"{OLDEST_TORCH.major}.{minor}.{patch}") for minor in range(OLDEST_TORCH.minor, 40) for patch in range(3)
)
_OLDER_RELEASES = tuple(
    Version(f"{major}.{minor}.{patch}")
    for major, to in ((1, 14), (2, OLDEST_TORCH.minor))
    for minor in range(to)
    for patch in range(3)
)
_TORCHVISION_MINOR_OFFSET = 15
"""torchvision 0.15 goes with torch 2.0, 0.16 with 2.1, and so on."""
_LAST_TORCHAUDIO_MINOR = 11
"""torchaudio's minor is torch's; its last release, 2.11, goes with later ones as well."""
TORCH_COMPANION_PACKAGES = ("torchvision", "torchaudio")


def torch_release_on_date(cutoff_date: str | None, filling: Path, what: Text, say: Say) -> str | None:
    """The release of torch that a loose requirement came to on a day; None where that is this Python's own."""
    own = installed_version("torch")
    if cutoff_date is None or own is None:
        return None
    (filling / "torch.in").write_text("torch\n", encoding="utf-8")
    arguments = ["pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate", "torch.in"]
    try:
        # Wheels in a folder bear no date: they would be of any day.
        dated = {"UV_FIND_LINKS": ""}
        found = run_uv([*arguments, "--exclude-newer", cutoff_date], cwd=filling, what=what, say=say, environment=dated)
        release = Version(found.strip().rpartition("==")[2])
    except (UvFailed, InvalidVersion):
        return None
    return None if release.release[:2] == own.release[:2] else f"=={release}"


def install_torch(venv: Path, torch: str | None, filling: Path, what: Text, say: Say) -> list[str] | None:
    """Install a CPU build of the torch that was used, not this Python's, or of the nearest that can be rehearsed with.

    What it requires in turn, which is to be had as of the environment's day; None where none can be had, and this
    Python's own does.
    """

    def does(*arguments: str) -> bool:
        only = WHEELS_ONLY_OPTIONS if arguments[0] == "install" else ()
        try:
            run_uv(
                ["pip", arguments[0], *into(venv), *only, *arguments[1:]],
                cwd=filling, what=what, say=say, environment={"UV_HTTP_TIMEOUT": "15"},
            )  # fmt: skip
        except UvFailed:
            return False
        return True

    def lies_here(requirement: str) -> bool:
        """From a folder of wheels that pip is set to look in, where PyTorch's own index can't be reached."""
        if not does("install", "--no-index", "--no-deps", requirement):
            return False
        if any((venv / "lib").glob("python3.*/site-packages/torch-*+cpu.dist-info")):
            return True
        does("uninstall", "torch")
        return False

    wanted = [] if torch is None else [f"torch{one}" for one in _nearest(SpecifierSet(torch))]
    if not any(lies_here(one) or does("install", "--no-deps", "--torch-backend", "cpu", one) for one in wanted):
        return None
    packages = next((venv / "lib").glob("python3.*/site-packages"))
    of_torch = next(one for one in metadata.distributions(path=[str(packages)]) if one.name == "torch")
    required = [Requirement(text) for text in of_torch.requires or []]
    of_cuda = ("nvidia-", "triton", "cuda-")
    return [
        str(one)
        for one in required
        if not one.name.startswith(of_cuda) and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]


def install_for_torch(
    base: list[str], requirements: list[str], exclude_newer_args: list[str], filling: Path, what: Text, say: Say
) -> None:
    """Install what a torch of today requires, each of the environment's day where that will do.

    What is there is not made older when the project's own packages come to it. setuptools keeps ``pkg_resources``,
    which releases of an earlier day import, where torch is content with that.
    """
    for one in requirements:
        kept = [SETUPTOOLS_WITH_PKG_RESOURCES] if Requirement(one).name == "setuptools" else []
        for words in ([one, *exclude_newer_args], [one, *kept], [one]):
            try:
                run_uv([*base, *words], cwd=filling, what=what, say=say)
                break
            except UvFailed:
                if words == [one]:
                    raise


def _nearest(torch: SpecifierSet) -> list[SpecifierSet]:
    """What can be rehearsed with: that torch, another of its minor release; of older ones the oldest that can."""
    if any(map(torch.contains, _OLDER_RELEASES)) and not any(map(torch.contains, _TORCH_RELEASES)):
        return [SpecifierSet(f"=={OLDEST_TORCH}.*")]
    minors = dict.fromkeys(one.release[:2] for one in reversed(_TORCH_RELEASES) if torch.contains(one))
    return [torch, *(SpecifierSet(f"=={major}.{minor}.*") for major, minor in list(minors)[:1])] if minors else []


def is_required_by_installed(name: str, packages: Path) -> bool:
    """Whether a package that is installed in a folder requires one of that name, without an extra being asked for."""
    for one in metadata.distributions(path=[str(packages)]):
        for line in one.requires or ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            if requirement.name == name and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                return True
    return False


def release_for_torch(name: str, torch: Version) -> str:
    """The releases of torchvision or torchaudio that PyTorch publishes for a torch, as a specifier."""
    minor = torch.minor
    return (
        f"==0.{minor + _TORCHVISION_MINOR_OFFSET}.*"
        if name == "torchvision"
        else f"==2.{min(minor, _LAST_TORCHAUDIO_MINOR)}.*"
    )


def companion_releases(name: str, requested_version: str, requested_specifier: str | None, torch: str) -> list[str]:
    """Which releases of torchvision or torchaudio to try: the one asked for, those of the torch asked for and of ours.

    Which names such a package has is its release's own; its torch is another where that one can't be had.
    """
    exact = [one for one in SpecifierSet(requested_specifier or "") if one.operator in ("==", "~=")]
    of_asked = [release_for_torch(name, Version(one.version.removesuffix(".*"))) for one in exact[:1]]
    return list(
        dict.fromkeys(
            [*([requested_version] if requested_version else []), *of_asked, release_for_torch(name, Version(torch))]
        )
    )


def install_torch_companion(venv: Path, name: str, releases: list[str], filling: Path, what: Text, say: Say) -> None:
    """Install torchvision or torchaudio of the first release that can be had, without what it requires.

    Their compiled operators want CUDA's libraries; all else of them is Python (see virtual/kernels/torchvision.py).
    """
    install = ["pip", "install", *into(venv), *WHEELS_ONLY_OPTIONS]
    for release in releases:
        with contextlib.suppress(UvFailed):
            run_uv([*install, "--no-deps", f"{name}{release}"], cwd=filling, what=what, say=say)
            break
    else:
        return
    with contextlib.suppress(UvFailed):
        run_uv([*install, "pillow", "numpy"], cwd=filling, what=what, say=say)
    for library in venv.glob("lib/python3.*/site-packages/torchaudio/lib/*.so"):
        library.unlink()  # which it insists on loading where it is there, and does without where not
