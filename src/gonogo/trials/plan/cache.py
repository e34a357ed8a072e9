"""A cache of short rehearsals' results for later plans, valid while all their inputs are the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import gonogo
from gonogo.evidence.environment.hardware import Accelerator
from gonogo.prepare.user_cache import CacheFolder
from gonogo.virtual.measuring.jobs import Measured, MeasurementJob, ModelFacts

_CACHE_KEY_PACKAGES = (
    "torch",
    "deepspeed",
    "transformers",
    "accelerate",
    "peft",
    "bitsandbytes",
    "flash-attn",
    "trl",
    "datasets",
    "vllm",
)
_ROOT = Path(gonogo.__file__).resolve().parent
# The packages whose code measures: a change in them invalidates the cache.
_MEASURING_PACKAGES = ("evidence", "virtual")
_ENVIRONMENT_PREFIXES = ("PYTORCH_", "DEEPSPEED_", "DS_", "ACCELERATE_", "TRANSFORMERS_")
Answer = TypeVar("Answer", ModelFacts, Measured)


def measurement_key(job: MeasurementJob, accelerator: Accelerator, folder: Path) -> str:
    """The cache key: a digest of all inputs of a measurement, by the files' contents instead of their paths.

    ``folder``: the parent folder of the job's files.
    """
    place = Path(job.answer).parent
    contents = {
        str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(place.rglob("*"))
        if path.suffix in (".json", ".py", ".jinja") and path.name != "answer.json"
    }
    identity: dict[str, Any] = {
        "files": contents,
        "arguments": [argument.replace(str(place), "") for argument in job.arguments],
        "world": [job.world_size, job.local_world_size, job.describe, job.capacity, job.program],
        "accelerator": msgspec.to_builtins(accelerator),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT_PREFIXES)},
        "versions": _package_versions(),
    }
    text = json.dumps(identity, sort_keys=True).replace(str(folder), "")
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _package_versions() -> dict[str, str]:
    found = {"python": sys.version, "gonogo": gonogo.__version__, "source": _source_digest()}
    for name in _CACHE_KEY_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _source_digest() -> str:
    """Digest of the source code that measures."""
    digest = hashlib.sha256()
    for room in _MEASURING_PACKAGES:
        for path in sorted((_ROOT / room).rglob("*")):
            if path.suffix in (".py", ".json", ".sh"):
                digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def answer_cache() -> CacheFolder:
    """The store of cached answers, each as ``KEY.json``."""
    return CacheFolder("plan")


def read_cached_answer(key: str, kind: type[Answer]) -> Answer | None:
    """The cached answer, or None if there is none that can be read."""
    data = answer_cache().read(f"{key}.json")
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def cache_answer(key: str, data: bytes) -> None:
    """Store an answer atomically, safely against concurrent writers. Raises OSError if it can't be written."""
    answer_cache().write(f"{key}.json", data)
