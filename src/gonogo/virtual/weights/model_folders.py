"""Where a model lies, and whether its weights are there: a local folder, or a snapshot in the Hugging Face cache."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gonogo.finding import translated
from gonogo.finding.errors import UserError
from gonogo.virtual.lookups.failed_lookups import is_folder_here, looked_for

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
    "{name} --include '*.json' '*.txt' '*.model' '*.py' '*.jinja' --exclude '*.index.json'"
)
NO_FOLDER = translated(
    "the model folder {name} is not on this machine: gonogo prepare -- COMMAND generates it, or put its "
    "config.json and tokenizer files there (the weights are not needed)"
)
NO_CONFIG = translated(
    "the model folder {name} has no config.json; copy it there from the model (the weights are not needed)"
)
BAD_CONFIG = translated("{path} is not readable as JSON: {why}")


class ModelNotDownloaded(OSError):
    """A model of the hub that this machine doesn't have: the machine that trains may well fetch it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = NOT_CACHED.format(name=name)
        super().__init__(self.text.en)


class MissingModelError(UserError, OSError):
    """A model that can't be loaded on this machine. An OSError too, as transformers' own would be."""


def find_model_folder(name: str, **where: Any) -> str | None:
    """The folder of a model: the name itself, or the snapshot in the cache; None where there is neither."""
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
        except ValueError:  # not a name that the hub could have
            break
        if isinstance(found, str):
            return os.path.dirname(found)
    looked_for(name)  # now that the hub has nothing of that name, it is a folder that the program wants
    return None


def missing_model_error(name: str) -> OSError:
    """The error for a model of which this machine has nothing: of the user's to cure where it is a folder's path."""
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
    return MissingModelError(NO_FOLDER.format(name=name)) if is_path else ModelNotDownloaded(name)


def read_json(path: str) -> dict[str, Any]:
    """A JSON object from a file; ModelNotHere where it is none."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise MissingModelError(BAD_CONFIG.format(path=path, why=str(error))) from None
    if not isinstance(content, dict):
        raise MissingModelError(BAD_CONFIG.format(path=path, why="not an object"))
    return content


def is_there(path: str) -> bool:
    """Whether a file of weights is there, and not just git-lfs's pointer to it."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_LFS_POINTER_PREFIX)) != _LFS_POINTER_PREFIX
    except OSError:
        return False


def has_weights(folder: str, config: dict[str, Any], variant: str | None) -> bool:
    """Whether all the weights of a model are in its folder, shards included."""
    names = [with_variant(name, variant) for name in WEIGHT_FILE_NAMES]
    explicit = config.get("transformers_weights")
    for name in [explicit, *names] if explicit else names:
        path = os.path.join(folder, name)
        if not is_there(path):
            continue
        if not name.endswith(".index.json"):
            return True
        shards = set(read_json(path).get("weight_map", {}).values())
        if all(is_there(os.path.join(folder, shard)) for shard in shards):
            return True
    return False


def with_variant(name: str, variant: str | None) -> str:
    """The name that transformers looks for when ``variant=`` is given; shards keep theirs, which the index names."""
    if not variant or name not in WEIGHT_FILE_NAMES:
        return name
    stem, dot, rest = name.partition(".")
    if rest.endswith("index.json"):
        return name.replace(".index.json", f".index.{variant}.json")
    return f"{stem}.{variant}{dot}{rest}"
