"""What short rehearsals came to, kept for the next plan: found again while all that they hang on is the same."""

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
from gonogo.report.atomic import write_atomically
from gonogo.virtual.measuring.jobs import Facts, Job, Measured

_STACK = ("torch", "deepspeed", "transformers", "accelerate", "peft", "bitsandbytes", "flash-attn")
_MATTERS = ("PYTORCH_", "DEEPSPEED_", "DS_", "ACCELERATE_", "TRANSFORMERS_")
Answer = TypeVar("Answer", Facts, Measured)


def key_of(job: Job, accelerator: Accelerator, folder: Path) -> str:
    """The name of all that an answer hangs on: the files' contents, not their places.

    ``folder``: what the job's files lie below.
    """
    place = Path(job.answer).parent
    contents = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(place.iterdir())
        if path.suffix in (".json", ".py", ".jinja") and path.name != "answer.json"
    }
    identity: dict[str, Any] = {
        "files": contents,
        "arguments": [argument.replace(str(place), "") for argument in job.arguments],
        "world": [job.world_size, job.local_world_size, job.describe, job.capacity],
        "accelerator": msgspec.to_builtins(accelerator),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_MATTERS)},
        "versions": _versions(),
    }
    text = json.dumps(identity, sort_keys=True).replace(str(folder), "")
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _versions() -> dict[str, str]:
    found = {"python": sys.version, "gonogo": gonogo.__version__, "source": _source_stamp()}
    for name in _STACK:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _source_stamp() -> str:
    """Of the code that measures: a change in it makes what was kept worthless."""
    root = Path(gonogo.__file__).parent
    digest = hashlib.sha256()
    for folder in ("virtual", "evidence"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".json"):
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/gonogo/plan``, or the same below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gonogo" / "plan"


def cached(key: str, kind: type[Answer]) -> Answer | None:
    """The answer that was kept, or None where there is none that can be read."""
    try:
        return msgspec.json.decode((cache_folder() / f"{key}.json").read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def keep(key: str, data: bytes) -> None:
    """Keep an answer: whole or not at all, whoever else keeps the same. Raises OSError where it can't be written."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{key}.json", data)
