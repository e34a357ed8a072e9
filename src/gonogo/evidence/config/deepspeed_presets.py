"""DeepSpeed configs shipped with a framework, which users name instead of a file: ``--deepspeed zero3``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gonogo.evidence.config.deepspeed import DeepSpeedConfig, read_deepspeed_config
from gonogo.evidence.config.deepspeed_auto import AccelerateSettings, ArgumentLookup
from gonogo.evidence.field import Field
from gonogo.evidence.paths import is_file
from gonogo.evidence.source_file import SourceFile
from gonogo.evidence.tables import TABLES

if TYPE_CHECKING:
    from packaging.version import Version

_PRESETS_FOLDER = TABLES / "presets"
_FRAMEWORK_TITLES = {"ms-swift": "ms-swift", "llamafactory": "LLaMA-Factory"}
# ms-swift 2's names for the presets that are now zero2, zero3 etc.
_OLDER_NAMES = {
    "default-zero2": "zero2",
    "default-zero3": "zero3",
    "zero2-offload": "zero2_offload",
    "zero3-offload": "zero3_offload",
}


def preset_config(
    framework: str,
    name: str,
    arguments: ArgumentLookup | None = None,
    *,
    version: Version | None = None,
    world_size: Field | None = None,
    hidden_size: Field | None = None,
    accelerate: AccelerateSettings | None = None,
) -> DeepSpeedConfig | None:
    """The config that a framework (``"ms-swift"``, ``"llamafactory"``) ships under a name; None if there is none.

    ``version`` is the framework's; the newest known release is assumed if it is None. LLaMA-Factory's presets are
    named by their path in its ``examples/deepspeed``. A preset is not in the user's files, so its source is not
    writable.
    """
    path = _preset_path(framework, name, version)
    if path is None:
        return None
    title = f"{_FRAMEWORK_TITLES[framework]}'s {path.stem if framework == 'ms-swift' else path.name}"
    source = SourceFile(title, path.read_bytes(), writable=False)
    return read_deepspeed_config(
        source,
        arguments,
        world_size=world_size,
        hidden_size=hidden_size,
        accelerate=accelerate,
        framework=framework,
        preset=path.stem,
    )


def _preset_path(framework: str, name: str, version: Version | None) -> Path | None:
    if framework == "llamafactory":
        stem = name.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".json")
    else:
        stem = _OLDER_NAMES.get(name, name) if version is None or version.major < 3 else name
    releases = _preset_folders(framework)
    if version is not None:
        releases = tuple(folder for folder in releases if _parse_version(folder.name) <= version)
    elif name in _OLDER_NAMES:
        releases = tuple(folder for folder in releases if _parse_version(folder.name).major < 3)
    if not releases or not stem.replace("_", "").isalnum():
        return None
    path = releases[-1] / f"{stem}.json"
    return path if is_file(path) else None


@cache
def _preset_folders(framework: str) -> tuple[Path, ...]:
    """A framework's preset folders, the oldest first."""
    if framework not in _FRAMEWORK_TITLES:
        return ()
    return tuple(sorted((_PRESETS_FOLDER / framework).iterdir(), key=lambda folder: _parse_version(folder.name)))


def _parse_version(text: str) -> Version:
    from packaging.version import Version

    return Version(text)
