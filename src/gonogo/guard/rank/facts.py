"""Collects the facts about a rank and its training that are compared between the ranks."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gonogo._version import __version__
from gonogo.evidence.guarded.records import GpuRecord, JoinRecord, StartRecord
from gonogo.guard.common import nvml

PACKAGES = (
    "torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "datasets", "tokenizers", "safetensors",
    "flash-attn", "xformers", "bitsandbytes", "triton", "apex", "transformer-engine", "liger-kernel", "ms-swift",
    "llamafactory", "axolotl", "numpy", "torch-npu",
)  # fmt: skip
_PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "TORCH_DISTRIBUTED_", "UCX_", "HCCL_")
_SECRET_NAME_PARTS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")
_PER_RANK_VARIABLES = ("DEBUG_FILE", "TEMP", "TMPDIR", "FLIGHT_RECORDER_FILE")
_MAX_SETTINGS = 400


def make_start_record(rank: int, local_rank: int) -> StartRecord:
    """The record of a rank's identity and hardware; touches neither torch nor CUDA."""
    gpu = nvml.find_gpu(local_rank)
    return StartRecord(
        time=time.time(),
        rank=rank,
        local_rank=local_rank,
        world_size=int(os.environ.get("WORLD_SIZE", "1") or 1),
        host=socket.gethostname(),
        pid=os.getpid(),
        argv=tuple(sys.orig_argv),
        python=platform.python_version(),
        versions=package_versions(),
        driver=gpu.driver if gpu else "",
        gpu=gpu,
        nccl_environment=communication_environment(),
        gonogo=__version__,
        restarts=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") or 0),
    )


def package_versions() -> dict[str, str]:
    """Version by package: ``__version__`` of the imported module, else that of the installed package."""
    found = {}
    for name in PACKAGES:
        module = sys.modules.get(name.replace("-", "_"))
        found_version = getattr(module, "__version__", None)
        try:
            found[name] = str(found_version) if isinstance(found_version, str) else version(name)
        except PackageNotFoundError:
            continue
    return found


def communication_environment() -> dict[str, str]:
    """The environment variables that control communication between ranks."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIXES) and not any(word in name for word in (*_SECRET_NAME_PARTS, *_PER_RANK_VARIABLES))
    }


def make_join_record(model: Any, engine: Any, data: dict[str, str]) -> JoinRecord:
    """This rank's facts about its training. ``model`` and ``engine`` may be None; ``data`` are further facts."""
    torch: Any = sys.modules["torch"]
    distributed = torch.distributed
    ready = distributed.is_available() and distributed.is_initialized()
    facts = {f"version of {name}": found_version for name, found_version in package_versions().items()}
    facts["version of python"] = platform.python_version()
    if torch.version.cuda:
        facts["cuda"] = torch.version.cuda
    if gpu := gpu_in_use():
        facts |= {"gpu": gpu.name, "gpu memory": str(gpu.bytes), "driver": gpu.driver}
        if nccl := _nccl_version():
            facts["version of nccl"] = nccl
    facts |= communication_environment()
    details = {}
    settings = engine_settings(engine)
    if settings:
        facts["deepspeed config"] = _hash_settings(settings)
        details["deepspeed config"] = settings
    if model is not None:
        facts |= model_facts(model)
    facts |= data
    facts["torch seed"] = _torch_seed(torch)
    return JoinRecord(
        time=time.time(),
        facts={name: value for name, value in facts.items() if value},
        details=details,
        step=int(getattr(engine, "global_steps", 0) or 0),
        world_size=distributed.get_world_size() if ready else 1,
        backend=str(distributed.get_backend()) if ready else "",
    )


def _torch_seed(torch: Any) -> str:
    """The seed of torch's generator, or "not set": an unseeded generator starts from 64 random bits."""
    seed = torch.initial_seed()
    return str(seed) if seed < 1 << 32 else "not set"


def gpu_in_use() -> GpuRecord | None:
    """The GPU that this rank computes on, or None if it has not used one yet."""
    torch: Any = sys.modules["torch"]
    if not torch.cuda.is_initialized():
        return None
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    uuid = str(getattr(properties, "uuid", ""))
    return GpuRecord(properties.name, properties.total_memory, f"cuda:{index}", nvml.driver_version(), uuid)


def _nccl_version() -> str:
    torch: Any = sys.modules["torch"]
    try:
        found_version = torch.cuda.nccl.version()
    except Exception:  # torch was built without CUDA
        return ""
    return ".".join(str(part) for part in found_version) if isinstance(found_version, tuple) else str(found_version)


def engine_settings(engine: Any) -> dict[str, str]:
    """The settings of an engine's DeepSpeed config, flattened, as the engine parsed them."""
    config = getattr(getattr(engine, "_config", None), "_param_dict", None)
    return dict(sorted(_flatten_settings(config, ""))[:_MAX_SETTINGS]) if isinstance(config, dict) else {}


def _flatten_settings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flatten_settings(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, json.dumps(value, default=str, ensure_ascii=False)[:200]


def model_facts(model: Any) -> dict[str, str]:
    """A hash of the model's structure, its number of parameters, and their dtypes."""
    structure = hashlib.sha256()
    count = trainable = 0
    types: Counter[str] = Counter()
    for name, module in model.named_modules():
        structure.update(f"{name}:{type(module).__qualname__};".encode())
    for name, parameter in model.named_parameters():
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
        size = int(getattr(parameter, "ds_numel", parameter.numel()))
        structure.update(f"{name}{shape}{parameter.dtype}{parameter.requires_grad};".encode())
        count += size
        trainable += size if parameter.requires_grad else 0
        types[str(parameter.dtype).removeprefix("torch.")] += 1
    return {
        "model structure": structure.hexdigest()[:16],
        "parameters": str(count),
        "trainable parameters": str(trainable),
        "parameter types": ", ".join(f"{name} x {number}" for name, number in sorted(types.items())),
    }


def _hash_settings(settings: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
