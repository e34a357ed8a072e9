"""The torch of an environment and the packages built against it: as close to the run's as CPU builds allow."""

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
from gonogo.prepare.packages.places import ReportProgress
from gonogo.prepare.packages.uv import WHEELS_ONLY_OPTIONS, UvFailed, run_uv, uv_target_options

# Releases of torch that rehearsals support, oldest first.
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
"""torchaudio's minor version is torch's; its last release, 2.11, works with later ones too."""
TORCH_COMPANION_PACKAGES = ("torchvision", "torchaudio")


def torch_release_on_date(
    cutoff_date: str | None, filling: Path, what: Text, report_progress: ReportProgress
) -> str | None:
    """The torch release that an unpinned requirement resolved to on a date; None if it is this Python's own."""
    own = installed_version("torch")
    if cutoff_date is None or own is None:
        return None
    (filling / "torch.in").write_text("torch\n", encoding="utf-8")
    arguments = ["pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate", "torch.in"]
    try:
        # Wheels in a folder have no upload date, so they would be used for any date.
        dated = {"UV_FIND_LINKS": ""}
        found = run_uv(
            [*arguments, "--exclude-newer", cutoff_date],
            cwd=filling,
            what=what,
            report_progress=report_progress,
            environment=dated,
        )
        release = Version(found.strip().rpartition("==")[2])
    except (UvFailed, InvalidVersion):
        return None
    return None if release.release[:2] == own.release[:2] else f"=={release}"


def install_torch(
    venv: Path, torch: str | None, filling: Path, what: Text, report_progress: ReportProgress
) -> list[str] | None:
    """Install a CPU build of the run's torch, if it isn't this Python's, or of the nearest that rehearsals support.

    Returns its requirements, to be installed as of the environment's date; None if none is available, and this
    Python's own has to do.
    """

    def run_pip(*arguments: str) -> bool:
        only = WHEELS_ONLY_OPTIONS if arguments[0] == "install" else ()
        try:
            run_uv(
                ["pip", arguments[0], *uv_target_options(venv), *only, *arguments[1:]],
                cwd=filling, what=what, report_progress=report_progress, environment={"UV_HTTP_TIMEOUT": "15"},
            )  # fmt: skip
        except UvFailed:
            return False
        return True

    def install_from_local_wheels(requirement: str) -> bool:
        """Install it from pip's configured folder of wheels, in case PyTorch's index is unreachable."""
        if not run_pip("install", "--no-index", "--no-deps", requirement):
            return False
        if any((venv / "lib").glob("python3.*/site-packages/torch-*+cpu.dist-info")):
            return True
        run_pip("uninstall", "torch")
        return False

    wanted = [] if torch is None else [f"torch{one}" for one in _candidate_specifiers(SpecifierSet(torch))]
    if not any(
        install_from_local_wheels(one) or run_pip("install", "--no-deps", "--torch-backend", "cpu", one)
        for one in wanted
    ):
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
    base: list[str],
    requirements: list[str],
    exclude_newer_args: list[str],
    filling: Path,
    what: Text,
    report_progress: ReportProgress,
) -> None:
    """Install the requirements of this Python's torch, each as of the environment's date if possible.

    Installing the project's own packages later must not downgrade them. setuptools keeps ``pkg_resources``, which
    older releases import, if torch allows such a version.
    """
    for one in requirements:
        kept = [SETUPTOOLS_WITH_PKG_RESOURCES] if Requirement(one).name == "setuptools" else []
        for words in ([one, *exclude_newer_args], [one, *kept], [one]):
            try:
                run_uv([*base, *words], cwd=filling, what=what, report_progress=report_progress)
                break
            except UvFailed:
                if words == [one]:
                    raise


def _candidate_specifiers(torch: SpecifierSet) -> list[SpecifierSet]:
    """The specifiers to try: that torch, then another patch release; for unsupported old ones the oldest known."""
    if any(map(torch.contains, _OLDER_RELEASES)) and not any(map(torch.contains, _TORCH_RELEASES)):
        return [SpecifierSet(f"=={OLDEST_TORCH}.*")]
    minors = dict.fromkeys(one.release[:2] for one in reversed(_TORCH_RELEASES) if torch.contains(one))
    return [torch, *(SpecifierSet(f"=={major}.{minor}.*") for major, minor in list(minors)[:1])] if minors else []


def is_required_by_another(name: str, packages: Path) -> bool:
    """Whether a package installed in a folder requires that package without an extra."""
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
    """The specifier of the torchvision or torchaudio releases that PyTorch publishes for a torch."""
    minor = torch.minor
    return (
        f"==0.{minor + _TORCHVISION_MINOR_OFFSET}.*"
        if name == "torchvision"
        else f"==2.{min(minor, _LAST_TORCHAUDIO_MINOR)}.*"
    )


def companion_releases(name: str, requested_version: str, requested_specifier: str | None, torch: str) -> list[str]:
    """The torchvision or torchaudio releases to try: the requested one, then those for the requested and our torch.

    The requested one goes first, even with another torch, because the names in such a package depend on its release.
    """
    exact = [one for one in SpecifierSet(requested_specifier or "") if one.operator in ("==", "~=")]
    of_asked = [release_for_torch(name, Version(one.version.removesuffix(".*"))) for one in exact[:1]]
    return list(
        dict.fromkeys(
            [*([requested_version] if requested_version else []), *of_asked, release_for_torch(name, Version(torch))]
        )
    )


def install_torch_companion(
    venv: Path, name: str, releases: list[str], filling: Path, what: Text, report_progress: ReportProgress
) -> None:
    """Install the first available of these releases of torchvision or torchaudio, without dependencies.

    Their compiled operators need CUDA's libraries; everything else is Python (see virtual/kernels/torchvision.py).
    """
    install = ["pip", "install", *uv_target_options(venv), *WHEELS_ONLY_OPTIONS]
    for release in releases:
        with contextlib.suppress(UvFailed):
            run_uv([*install, "--no-deps", f"{name}{release}"], cwd=filling, what=what, report_progress=report_progress)
            break
    else:
        return
    with contextlib.suppress(UvFailed):
        run_uv([*install, "pillow", "numpy"], cwd=filling, what=what, report_progress=report_progress)
    for library in venv.glob("lib/python3.*/site-packages/torchaudio/lib/*.so"):
        library.unlink()  # torchaudio fails to load it if it exists, and works without it
