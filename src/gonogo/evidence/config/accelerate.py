"""accelerate's YAML, written by ``accelerate config`` and read by ``accelerate launch``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from gonogo.evidence.document.yaml_file import YamlFile
from gonogo.evidence.field import Field
from gonogo.evidence.paths import is_file
from gonogo.evidence.source_file import SourceFile, display_path
from gonogo.finding import Text, UserError, translated

_DEFAULT_CONFIG = translated(
    "accelerate launch is given no --config_file, so it reads this machine's default config, {path}"
)
_FROM_DEFAULT_CONFIG = translated("this machine's default config")
_TRL_CONFIGS = frozenset({"fsdp1", "fsdp2", "multi_gpu", "single_gpu", "zero1", "zero2", "zero3"})


class AccelerateConfig(YamlFile):
    """A config file of Hugging Face accelerate."""

    @property
    def distributed_type(self) -> Field:
        """``DEEPSPEED``, ``MULTI_GPU``, ``FSDP``, ``NO`` …"""
        return self.get("distributed_type")

    @property
    def enables_deepspeed(self) -> bool | None:
        """Whether it enables DeepSpeed; None if unknown."""
        kind = self.distributed_type
        if kind.known:
            return str(kind.value).upper() == "DEEPSPEED"
        return False if kind.absent else None


def read_accelerate_config(source: SourceFile) -> AccelerateConfig:
    """Read an accelerate config. Never raises: problems are recorded."""
    return _parse_accelerate_config(source.path, source.data, source.writable)


# A launch script may start two hundred programs with one config.
@lru_cache(2)
def _parse_accelerate_config(path: str, data: bytes, writable: bool) -> AccelerateConfig:
    return AccelerateConfig(SourceFile(path, data, writable=writable))


def is_accelerate_config(config: YamlFile) -> bool:
    """Whether a YAML file is an accelerate config."""
    return not config.get("distributed_type").absent and not (
        config.get("num_processes").absent and config.get("compute_environment").absent
    )


def default_config_path() -> Path:
    """The file that ``accelerate config`` writes, and that ``accelerate launch`` reads by default."""
    cache = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "huggingface"
    )
    folder = Path(os.path.expanduser(cache)) / "accelerate"
    json_file = folder / "default_config.json"
    yaml_file = folder / "default_config.yaml"
    return json_file if is_file(json_file) and not is_file(yaml_file) else yaml_file


def resolve_accelerate_config(
    field: Field, cwd: Path, written_files: Mapping[str, SourceFile | None], *, launcher: str = "accelerate"
) -> tuple[Field, AccelerateConfig | None, tuple[Text, ...]]:
    """The config that a launch reads: the one that it names, or otherwise this machine's default, if any.

    ``written_files`` are files that the launch script itself writes, by absolute path.
    """
    if field.known:
        path = str(field.value)
        if launcher == "trl" and path in _TRL_CONFIGS:
            return field, None, ()
        whole = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
        if whole in written_files:
            source = written_files[whole]
            return field, read_accelerate_config(source) if source is not None else None, ()
        try:
            return field, read_accelerate_config(SourceFile.read(display_path(whole))), ()
        except UserError:
            return field, None, ()
    if field.unknown or launcher != "accelerate":
        return field, None, ()
    default = default_config_path()
    if not is_file(default):
        return field, None, ()
    try:
        config = read_accelerate_config(SourceFile.read(default))
    except UserError:
        return field, None, ()
    return Field.of(str(default), None, _FROM_DEFAULT_CONFIG), config, (_DEFAULT_CONFIG.format(path=str(default)),)
