"""The tables of an environment, made from :attr:`Report.environment`; a renderer only draws them."""

from __future__ import annotations

import re

from gonogo.finding import Text, translated
from gonogo.finding.environment import Card, EnvironmentFacts
from gonogo.finding.words import size
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_ALWAYS_LISTED_PACKAGES = ("torch", "deepspeed", "transformers", "accelerate", "peft", "flash-attn", "bitsandbytes")
"""Packages that are listed even if they are known not to be installed."""
_OPTIONAL_PACKAGES = (
    *("trl", "ms-swift", "llamafactory", "axolotl", "datasets", "tokenizers", "safetensors", "huggingface-hub"),
    *("torchvision", "torchaudio", "torch-npu", "triton", "xformers", "liger-kernel", "vllm", "sentence-transformers"),
    *("diffusers", "numpy", "pydantic", "mpi4py", "ninja", "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
_MACHINE: tuple[tuple[str, Text], ...] = (
    ("python", translated("Python")),
    ("cuda", translated("CUDA of torch")),
    ("toolkit", translated("CUDA toolkit (nvcc)")),
    ("driver", translated("NVIDIA driver")),
    ("cann", translated("CANN")),
    ("nccl", translated("NCCL")),
    ("gpus", translated("GPUs")),
    ("cpus", translated("CPUs")),
    ("host_memory", translated("host memory")),
    ("dev_shm", translated("/dev/shm")),
    ("disk_free", translated("free disk space")),
    ("cache_disk_free", translated("free disk space for the Hugging Face cache")),
    ("gcc", translated("gcc")),
    ("gxx", translated("g++")),
    ("ninja", translated("ninja")),
    ("python_headers", translated("Python.h")),
    ("libaio", translated("libaio")),
    ("memlock", translated("locked memory limit (ulimit -l)")),
    ("open_files", translated("open files limit (ulimit -n)")),
    ("extension_lock", translated("stale lock of an extension build")),
    ("platform", translated("system")),
)
_BYTE_VALUED_KEYS = frozenset({"host_memory", "dev_shm", "disk_free", "cache_disk_free", "memlock"})
_FREE = {"host_memory": "host_memory_available", "dev_shm": "dev_shm_free"}
_NONE_TEXT = translated("none")
_EMPTY_TEXT = Text("", "")
_NOT_INSTALLED = translated("not installed")
_ANY_VERSION = translated("any version")
_UNLIMITED = translated("no limit")
_MORE_PACKAGES_NOTE = translated("{count} more packages are in the JSON")
_TITLES = (translated("Packages"), translated("Machine"), translated("Environment variables"))
_COLUMNS = (
    (translated("package"), translated("version")),
    (translated("what"), translated("value")),
    (translated("variable"), translated("value")),
)


def environment_tables(environment: EnvironmentFacts, language: str) -> list[Table]:
    """All tables for which the environment has rows."""
    packages = environment.packages
    shown = [name for name in (*_ALWAYS_LISTED_PACKAGES, *_OPTIONAL_PACKAGES) if name in packages]
    rows = [(name, clean_line(packages[name]) or _ANY_VERSION.in_language(language)) for name in shown]
    if environment.complete:
        rows += [
            (name, _NOT_INSTALLED.in_language(language)) for name in _ALWAYS_LISTED_PACKAGES if name not in packages
        ]
    more = len(packages) - len(shown)
    note = _MORE_PACKAGES_NOTE.format(count=more).in_language(language) if more else ""
    found = (
        rows,
        [
            (text.in_language(language), value)
            for key, text in _MACHINE
            if (value := _format_value(environment, key, language))
        ],
        [(clean_line(name), clean_line(value)) for name, value in sorted((environment.variables or {}).items())],
    )
    tables = []
    for title, columns, lines in zip(_TITLES, _COLUMNS, found, strict=True):
        names = tuple(column.in_language(language) for column in columns)
        tables.append(Table(title.in_language(language), names, tuple(lines)))
    if note:
        tables[0] = Table(tables[0].title, tables[0].columns, tables[0].rows, note=note)
    return [table for table in tables if table.rows or table.note]


def _format_value(environment: EnvironmentFacts, key: str, language: str) -> str:
    """The value as text; empty if it is unknown."""
    if key == "gpus":
        return _gpus_text(environment.gpus, language) if environment.gpus is not None else ""
    value = environment.machine.get(key, _EMPTY_TEXT)
    if isinstance(value, Text):
        return ""
    if value is None:
        return _NONE_TEXT.in_language(language)
    if key in ("memlock", "open_files") and value == -1:
        return _UNLIMITED.in_language(language)
    if isinstance(value, int) and key in _BYTE_VALUED_KEYS:
        free = environment.machine.get(_FREE.get(key, ""))
        text = size(value)
        if isinstance(free, int):
            text += f"，可用 {size(free)}" if language == "zh" else f", {size(free)} available"
        return text
    return clean_line(str(value))


def _gpus_text(gpus: tuple[Card, ...], language: str) -> str:
    """The GPUs as text, identical ones grouped: ``8 x NVIDIA A100-SXM4-80GB, 80.0 GiB``."""
    counts: dict[str, int] = {}
    for gpu in gpus:
        name = clean_line(re.sub(r"^NVIDIA (?=NVIDIA)", "", gpu.name))
        memory = f", {size(gpu.memory_bytes)}" if gpu.memory_bytes else ""
        capability = gpu.compute_capability
        compute = f", sm_{capability[0]}{capability[1]}" if capability else ""
        text = f"{name}{memory}{compute}"
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(f"{count} x {text}" for text, count in counts.items()) or _NONE_TEXT.in_language(language)
