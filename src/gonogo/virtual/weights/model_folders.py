"""Locates a model and checks for its weights: in a local folder, or in a snapshot of the Hugging Face cache."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gonogo.evidence.published.models import published_model
from gonogo.finding import UserError, translated
from gonogo.finding.remedy import Reason, prepare_launch, run_command
from gonogo.virtual.lookups.failed_lookups import is_folder_here, record_probe

WEIGHT_FILE_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHT_FILE_NAMES = ("adapter_model.safetensors", "adapter_model.bin")
_LFS_POINTER_PREFIX = b"version https://git-lfs"

NOT_CACHED = translated(
    "the model {name} is not in the Hugging Face cache, and a rehearsal does not use the network: gonogo prepare "
    "-- COMMAND generates it without weights if it is a published one; otherwise get its config: hf download "
    "{name} --include '*.json' --include '*.txt' --include '*.model' --include '*.py' --include '*.jinja' --exclude "
    "'*.index.json'"
)
NO_FOLDER = translated(
    "the model folder {name} is not on this machine: gonogo prepare -- COMMAND generates it, or put its "
    "config.json and tokenizer files there (the weights are not needed)"
)
NO_CONFIG = translated(
    "the model folder {name} has no config.json; copy it there from the model (the weights are not needed)"
)
INVALID_CONFIG = translated("{path} is not readable as JSON: {why}")


_CONFIG_FILES = "--include '*.json' --include '*.txt' --include '*.model' --include '*.py' --include '*.jinja'"


def model_not_cached(name: str) -> Reason:
    """Why a model of the Hub can't be loaded, and how to get what a rehearsal needs of it."""
    if published_model(name) is not None:
        return Reason(NOT_CACHED.format(name=name), prepare_launch())
    download = run_command(f"hf download {{name}} {_CONFIG_FILES} --exclude '*.index.json'")
    return Reason(NOT_CACHED.format(name=name), download.format(name=name))


class ModelNotDownloaded(OSError):
    """A model on the hub that is not on this machine; the training machine may be able to download it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(NOT_CACHED.format(name=name).en)


class MissingModelError(UserError, OSError):
    """A model that can't be loaded on this machine. Also an OSError, like transformers' own error."""


def find_model_folder(name: str, **where: Any) -> str | None:
    """The folder of a model: the name itself, or its snapshot in the cache; None if neither exists."""
    if is_folder_here(name):
        return os.path.join(name, where.get("subfolder") or "")
    from huggingface_hub import try_to_load_from_cache

    for file in ("config.json", ADAPTER_CONFIG):
        try:
            found = try_to_load_from_cache(
                name,
                os.path.join(where.get("subfolder") or "", file),
                cache_dir=where.get("cache_dir"),
                revision=where.get("revision"),
            )
        except ValueError:  # not a valid name on the hub
            break
        if isinstance(found, str):
            return os.path.dirname(found)
    record_probe(name)  # not found on the hub, so record it as a missing folder
    return None


def missing_model_error(name: str) -> OSError:
    """The error for a missing model: the user's mistake if the name is a path, otherwise possibly just not
    downloaded."""
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
    return MissingModelError(NO_FOLDER.format(name=name)) if is_path else ModelNotDownloaded(name)


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON object from a file. Raises MissingModelError if it is none."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise MissingModelError(INVALID_CONFIG.format(path=path, why=str(error))) from None
    if not isinstance(content, dict):
        raise MissingModelError(INVALID_CONFIG.format(path=path, why="not an object"))
    return content


def is_weight_file_present(path: str) -> bool:
    """True if the weight file exists and is not just a git-lfs pointer."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_LFS_POINTER_PREFIX)) != _LFS_POINTER_PREFIX
    except OSError:
        return False


def has_weights(folder: str, config: dict[str, Any], variant: str | None) -> bool:
    """True if all weights of a model are in its folder, including all shards."""
    names = [variant_file_name(name, variant) for name in WEIGHT_FILE_NAMES]
    explicit = config.get("transformers_weights")
    for name in [explicit, *names] if explicit else names:
        path = os.path.join(folder, name)
        if not is_weight_file_present(path):
            continue
        if not name.endswith(".index.json"):
            return True
        shards = set(read_json(path).get("weight_map", {}).values())
        if all(is_weight_file_present(os.path.join(folder, shard)) for shard in shards):
            return True
    return False


def variant_file_name(name: str, variant: str | None) -> str:
    """The file name for ``variant=``; shards keep the name that is in the index."""
    if not variant or name not in WEIGHT_FILE_NAMES:
        return name
    stem, dot, rest = name.partition(".")
    if rest.endswith("index.json"):
        return name.replace(".index.json", f".index.{variant}.json")
    return f"{stem}.{variant}{dot}{rest}"
