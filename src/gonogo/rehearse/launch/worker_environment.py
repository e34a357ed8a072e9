"""A worker's environment variables: the launch's own, with all writing redirected to scratch and networking off."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gonogo.prepare.provided_files import PATH_VARIABLE
from gonogo.rehearse.launch.launch import LaunchedProcess, ResolvedLaunch

# Values that make rehearsals reproducible and share the machine's cores among concurrent ranks.
_FIXED_VARIABLES = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # torch must not load installed backends of other accelerators: torch_npu would initialize CANN.
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}
# Nothing is downloaded, and nothing is reported to trackers.
_OFFLINE_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "WANDB_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
    "COMET_MODE": "DISABLED",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
}
# Caches that libraries write next to the program's files, some of them from native code.
_FOLDER_VARIABLES = {
    "HF_MODULES_CACHE": "hf_modules",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "torch_inductor",
    "TRITON_CACHE_DIR": "triton",
    "NUMBA_CACHE_DIR": "numba",
    "MPLCONFIGDIR": "matplotlib",
    "WANDB_DIR": "wandb",
    "TMPDIR": "tmp",
}


def worker_environment(
    launch: ResolvedLaunch, process: LaunchedProcess, *, packages: Sequence[Path], scratch: Path
) -> dict[str, str]:
    """The environment variables of a rank's worker; creates the folders in ``scratch`` that they name."""
    environment = {name: value for name, value in launch.environment.items() if name not in process.removed}
    environment.update(process.environment)
    return with_packages(reproducible_environment(environment, scratch), packages)


def reproducible_environment(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Environment variables that redirect writing to ``scratch``, prevent downloads and make runs reproducible."""
    own = environment
    environment = {**environment, **_FIXED_VARIABLES}
    environment.update(_OFFLINE_VARIABLES)
    for name, folder in _FOLDER_VARIABLES.items():
        path = scratch / folder
        path.mkdir(parents=True, exist_ok=True)
        environment[name] = str(path)
    environment["HF_DATASETS_CACHE"] = str(mirror_datasets_cache(own, scratch / "hf_datasets"))
    return environment


def with_packages(environment: Mapping[str, str], packages: Sequence[Path]) -> dict[str, str]:
    """Environment variables with which Python finds overlaid packages first and the project's own last."""
    changed = dict(environment)
    inherited = [path for path in (environment.get("PYTHONPATH"), environment.get(PATH_VARIABLE)) if path]
    if packages:
        changed["GONOGO_OVERLAYS"] = os.pathsep.join(str(path) for path in packages)  # marks frames of these packages
    if packages or PATH_VARIABLE in environment:
        changed["PYTHONPATH"] = os.pathsep.join([*(str(path) for path in packages), *inherited])
    return changed


def activated_environment(environment: Mapping[str, str], python: Path | None) -> dict[str, str]:
    """Environment variables that put an interpreter's programs first, as after ``activate``."""
    if python is None:
        return dict(environment)
    changed = {name: value for name, value in environment.items() if name not in ("PYTHONHOME", "CONDA_PREFIX")}
    changed["VIRTUAL_ENV"] = str(python.parent.parent)
    changed["PATH"] = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
    return changed


def mirror_datasets_cache(environment: Mapping[str, str], mirror: Path) -> Path:
    """Create a mirror of the user's cache for ``datasets``: real folders with links to the user's files.

    Cached datasets are found there, which they must be without a network. What ``map`` and ``load_dataset`` add is
    written to the mirror, even by native code.
    """
    home = environment.get("HF_HOME") or os.path.join(
        environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", ""), ".cache"), "huggingface"
    )
    cache = environment.get("HF_DATASETS_CACHE") or os.path.join(home, "datasets")
    mirror.mkdir(parents=True, exist_ok=True)
    for folder, _, names in os.walk(cache):
        target = mirror / os.path.relpath(folder, cache)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            # Locks are opened for writing, which would follow the link.
            if not name.endswith(".lock") and not os.path.lexists(target / name):
                os.symlink(os.path.join(folder, name), target / name)
    return mirror
