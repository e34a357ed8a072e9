"""The tables of an environment, made from :attr:`Report.environment`; a renderer only draws them."""

from __future__ import annotations

import re

from gonogo.finding import Text
from gonogo.finding.environment import Card, EnvironmentFacts
from gonogo.finding.words import size
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_ALWAYS = ("torch", "deepspeed", "transformers", "accelerate", "peft", "flash-attn", "bitsandbytes")
"""Packages that are shown also where they are known not to be there."""
_OFTEN = (
    *("trl", "ms-swift", "llamafactory", "axolotl", "datasets", "tokenizers", "safetensors", "huggingface-hub"),
    *("torchvision", "torchaudio", "torch-npu", "triton", "xformers", "liger-kernel", "vllm", "sentence-transformers"),
    *("diffusers", "numpy", "pydantic", "mpi4py", "ninja", "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
_MACHINE: tuple[tuple[str, Text], ...] = (
    ("python", Text("Python", "Python")),
    ("cuda", Text("CUDA of torch", "torch 的 CUDA 版本")),
    ("toolkit", Text("CUDA toolkit (nvcc)", "CUDA toolkit（nvcc）")),
    ("driver", Text("NVIDIA driver", "NVIDIA 驱动")),
    ("cann", Text("CANN", "CANN")),
    ("nccl", Text("NCCL", "NCCL")),
    ("gpus", Text("GPUs", "GPU")),
    ("cpus", Text("CPUs", "CPU 数")),
    ("host_memory", Text("host memory", "主机内存")),
    ("dev_shm", Text("/dev/shm", "/dev/shm")),
    ("disk_free", Text("free disk space", "磁盘可用")),
    ("cache_disk_free", Text("free disk space for the Hugging Face cache", "Hugging Face 缓存所在磁盘可用")),
    ("gcc", Text("gcc", "gcc")),
    ("gxx", Text("g++", "g++")),
    ("ninja", Text("ninja", "ninja")),
    ("python_headers", Text("Python.h", "Python.h")),
    ("libaio", Text("libaio", "libaio")),
    ("memlock", Text("locked memory limit (ulimit -l)", "可锁定内存上限（ulimit -l）")),
    ("open_files", Text("open files limit (ulimit -n)", "可打开文件数上限（ulimit -n）")),
    ("extension_lock", Text("stale lock of an extension build", "扩展编译的失效锁")),
    ("platform", Text("system", "系统")),
)
_BYTES = frozenset({"host_memory", "dev_shm", "disk_free", "cache_disk_free", "memlock"})
_FREE = {"host_memory": "host_memory_available", "dev_shm": "dev_shm_free"}
_NONE = Text("none", "无")
_UNKNOWN = Text("", "")
_NOT_THERE = Text("not installed", "未安装")
_ANY = Text("any version", "任意版本")
_UNLIMITED = Text("no limit", "无限制")
_OTHERS = Text("{count} more packages are in the JSON", "另有 {count} 个软件包，见 JSON 输出")
_TITLES = (Text("Packages", "软件包"), Text("Machine", "机器"), Text("Environment variables", "环境变量"))
_COLUMNS = (
    (Text("package", "软件包"), Text("version", "版本")),
    (Text("what", "项目"), Text("value", "值")),
    (Text("variable", "变量"), Text("value", "值")),
)


def environment_tables(environment: EnvironmentFacts, language: str) -> list[Table]:
    """All tables that the environment has rows for."""
    packages = environment.packages
    shown = [name for name in (*_ALWAYS, *_OFTEN) if name in packages]
    rows = [(name, clean_line(packages[name]) or _ANY.in_language(language)) for name in shown]
    if environment.complete:
        rows += [(name, _NOT_THERE.in_language(language)) for name in _ALWAYS if name not in packages]
    more = len(packages) - len(shown)
    note = _OTHERS.format(count=more).in_language(language) if more else ""
    found = (
        rows,
        [
            (text.in_language(language), value)
            for key, text in _MACHINE
            if (value := _value(environment, key, language))
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


def _value(environment: EnvironmentFacts, key: str, language: str) -> str:
    """The value as text; empty where it is not known."""
    if key == "gpus":
        return _gpus(environment.gpus, language) if environment.gpus is not None else ""
    value = environment.machine.get(key, _UNKNOWN)
    if isinstance(value, Text):
        return ""
    if value is None:
        return _NONE.in_language(language)
    if key in ("memlock", "open_files") and value == -1:
        return _UNLIMITED.in_language(language)
    if isinstance(value, int) and key in _BYTES:
        free = environment.machine.get(_FREE.get(key, ""))
        text = size(value)
        if isinstance(free, int):
            text += f"，可用 {size(free)}" if language == "zh" else f", {size(free)} available"
        return text
    return clean_line(str(value))


def _gpus(gpus: tuple[Card, ...], language: str) -> str:
    """``8 x NVIDIA A100-SXM4-80GB, 80.0 GiB``: alike cards are one."""
    counts: dict[str, int] = {}
    for gpu in gpus:
        name = clean_line(re.sub(r"^NVIDIA (?=NVIDIA)", "", gpu.name))
        memory = f", {size(gpu.memory_bytes)}" if gpu.memory_bytes else ""
        capability = gpu.compute_capability
        compute = f", sm_{capability[0]}{capability[1]}" if capability else ""
        text = f"{name}{memory}{compute}"
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(f"{count} x {text}" for text, count in counts.items()) or _NONE.in_language(language)
