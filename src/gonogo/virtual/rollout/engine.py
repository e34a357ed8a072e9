"""vLLM's V1 engine in the trainer's process: its allocations in order, and its errors if memory doesn't suffice.

Follows ``vllm/v1/worker/gpu_worker.py`` (``init_device``, ``load_model``, ``determine_available_memory``,
``initialize_from_config``, ``compile_or_warm_up_model``), with the checks of ``vllm/v1/core/kv_cache_utils.py``;
sleep and wake-up follow ``vllm/device_allocator/cumem.py``. Based on
vllm-project/vllm 0012cf69 (0.8), 35d5cda1 and 010c2112.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.rollout.model import EngineModel
from gonogo.virtual.rollout.ranks import EngineRanks
from gonogo.virtual.rollout.uncertainty import CONTEXT_UNCERTAINTY_BYTES, KV_BLOCK_TOKENS, PEAK_UNCERTAINTY

_GIB = 1 << 30
_SLEEPS = translated("the engine is asleep ({parts})")
_TOO_CLOSE = translated("the memory margin is too small to tell whether the engine starts: {what}")
_REQUESTED_AND_FREE = translated("{asked} GiB requested, {free} GiB free")
_CACHE_SHORTAGE = translated("{needed} GiB of cache needed, {left} GiB left")
CUDA_GRAPH_BYTES_PER_LAYER = 10 << 20
MIN_CUDA_GRAPH_BYTES = 200 << 20
"""CUDA graphs: "Graph capturing finished in 20 secs, took 0.54 GiB" of a model with 28 layers; 0.2 to 1.5 GiB."""
GRAPHS_IN_BUDGET_SINCE = (0, 21)
"""Since this release (vllm/envs.py, VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS) the cache leaves room for CUDA
graphs."""
EXPANDABLE_POOL_SINCE = (0, 20)
"""Since this release (vllm-project/vllm#40812) the memory pool disables expandable segments itself."""
WEIGHTS, CACHE, GRAPHS = "vLLM: weights", "vLLM: KV cache", "vLLM: CUDA graphs"
_TAGS = {"weights": WEIGHTS, "kv_cache": CACHE}


def engine_assumptions(version: str) -> Text:
    """The assumptions about an engine that runs on the trainer's GPU."""
    return translated(
        "vLLM {version} uses on this GPU: weights by the model's shapes, cache up to gpu_memory_utilization, "
        "CUDA graphs of 0.2 to 1.5 GiB, activations as its profiling would measure them (within 30 %)"
    ).format(version=version)


class Engine:
    """One rank of an engine. ``engine_args`` are ``LLM``'s arguments; sizes are in bytes."""

    def __init__(
        self,
        engine_args: dict[str, Any],
        version: tuple[int, ...],
        memory: MemoryRecord,
        unsupported_error: Callable[[str, Text], BaseException],
        ranks: EngineRanks | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.asked = engine_args
        self._ranks = ranks
        self.version = version
        self.memory = memory
        self._unsupported = unsupported_error
        self._held: dict[str, torch.Tensor] = {}
        self._sizes: dict[str, int] = {}
        """Bytes allocated while awake, by tag."""
        self._on_host: torch.Tensor | None = None
        self.asleep: set[str] = set()
        self.sleeps = bool(engine_args.get("enable_sleep_mode"))
        self.tp = int(engine_args.get("tensor_parallel_size") or 1)
        self.device = self._choose_device() if device is None else device  # given for a worker with its own process
        self._check_requested_memory()
        self.model = EngineModel(
            str(engine_args["model"]),
            engine_args.get("dtype") or "auto",
            self.tp,
            engine_args.get("max_model_len"),
            bool(engine_args.get("trust_remote_code")),
            unsupported_error,
            engine_args.get("quantization"),
        )
        large = self._total_device_bytes() >= 70 * _GIB  # the defaults of vllm/engine/arg_utils.py for an LLM
        self.batched = int(engine_args.get("max_num_batched_tokens") or (16384 if large else 8192))
        self.sequences = int(engine_args.get("max_num_seqs") or (1024 if large else 256))
        self._allocate_at_start()

    def _choose_device(self) -> torch.device:
        backend = self.asked.get("distributed_executor_backend")
        if backend != "external_launcher":
            raise self._unsupported(
                f"vllm.LLM(distributed_executor_backend={backend!r})",
                translated("this engine would start processes of its own, which are not rehearsed"),
            )
        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        if world % self.tp:
            raise self._unsupported(
                f"vllm.LLM(tensor_parallel_size={self.tp})", Text(f"of {world} processes", f"共有 {world} 个进程")
            )
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    def _check_requested_memory(self) -> None:
        conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        if self.sleeps and "expandable_segments:True" in conf and self.version < EXPANDABLE_POOL_SINCE:
            raise AssertionError(
                "Expandable segments are not compatible with memory pool. Please track "
                "https://github.com/pytorch/pytorch/issues/147851 for the latest updates."
            )

    def _total_device_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self.device)[1])

    def _allocate_at_start(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self.device)
        share = float(self.asked.get("gpu_memory_utilization") or 0.9)
        requested = total * share
        self._require_clear_margin(
            free - requested,
            CONTEXT_UNCERTAINTY_BYTES,
            _REQUESTED_AND_FREE.format(asked=_gib(requested), free=_gib(free)),
        )
        if free < requested:
            raise ValueError(
                f"Free memory on device {self.device} ({_gib(free)}/{_gib(total)} GiB) on startup is less than desired "
                f"GPU memory utilization ({share}, {_gib(requested)} GiB). Decrease GPU memory utilization or reduce "
                "GPU memory used by other processes."
            )
        held_before = torch.cuda.memory_allocated(self.device)
        weights = self.model.weights + self._lora_slot_bytes()
        self._allocate_tagged("weights", weights)
        peak = self._profiled_peak_bytes()
        graphs = self._cuda_graph_bytes()
        given = self.asked.get("kv_cache_memory_bytes")
        available = int(given) if given else int(requested - weights - peak)
        if not given and self.version >= GRAPHS_IN_BUDGET_SINCE:
            available -= graphs
        if not given and self.version < (0, 9):  # it also counted what torch held before
            available -= held_before
        available = available if self._ranks is None else self._ranks.agree_on_free_bytes(available)
        self._check_cache_fits(available, 0 if given else int(PEAK_UNCERTAINTY * peak) + graphs)
        self._allocate_tagged(
            "kv_cache", available - available % max(self.model.cache_bytes_per_token() * KV_BLOCK_TOKENS, 1)
        )
        if graphs:
            with self._with_owner(GRAPHS):
                self._held[GRAPHS] = torch.empty(graphs, dtype=torch.uint8, device=self.device)
        self._profiled_peak_bytes()  # the sampler's warm-up, whose memory the caching allocator keeps

    def _check_cache_fits(self, available: int, uncertainty_bytes: int) -> None:
        more = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
        length = self.model.max_model_len
        needed = self.model.cache_bytes_per_request(length, KV_BLOCK_TOKENS, self.batched)
        self._require_clear_margin(
            available - needed, uncertainty_bytes, _CACHE_SHORTAGE.format(needed=_gib(needed), left=_gib(available))
        )
        if available <= 0:
            raise ValueError(
                "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
                f"the engine. {more}"
            )
        if needed > available:
            fits = int(length * available / needed) // KV_BLOCK_TOKENS * KV_BLOCK_TOKENS
            raise ValueError(
                f"To serve at least one request with the models's max seq len ({length}), ({_gib(needed)} GiB KV cache "
                f"is needed, which is larger than the available KV cache memory ({_gib(available)} GiB). Based on the "
                f"available memory, the estimated maximum model length is {fits}. Try increasing "
                "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine. " + more
            )

    def _require_clear_margin(self, margin_bytes: float, uncertainty_bytes: int, quantity: Text) -> None:
        """Raise CANNOT-TELL if the margin is smaller than its uncertainty."""
        if abs(margin_bytes) < uncertainty_bytes:
            raise self._unsupported("vllm.LLM", _TOO_CLOSE.format(what=quantity))

    def _profiled_peak_bytes(self) -> int:
        """``profile_run``: one forward of a full batch, then the sampler; returns the peak in addition to the
        weights."""
        forward = forward_bytes(self.model, self.batched)
        sampler = min(self.sequences, self.batched) * sampler_bytes(self.model)
        with self._with_owner("vLLM: activations"):
            for nbytes in (forward, sampler):
                torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        return max(forward, sampler)

    def _lora_slot_bytes(self) -> int:
        """Bytes of LoRA slots: each linear layer has ``max_loras`` pairs of rank ``max_lora_rank``
        (vllm/lora/layers)."""
        if not self.asked.get("enable_lora"):
            return 0
        rank = int(self.asked.get("max_lora_rank") or 16) * int(self.asked.get("max_loras") or 1)
        linear = (shape for name, shape in self.model.shapes.items() if len(shape) == 2 and "embed" not in name)
        return sum(rank * sum(shape) * self.model.dtype.itemsize for shape in linear) // self.tp

    def _cuda_graph_bytes(self) -> int:
        return 0 if self.asked.get("enforce_eager") else cuda_graph_bytes(self.model)

    def _allocate_tagged(self, tag: str, nbytes: int) -> None:
        self._sizes[tag] = nbytes
        with self._with_owner(_TAGS[tag]):
            self._held[tag] = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        self.asleep.discard(tag)

    @contextmanager
    def _with_owner(self, owner: str) -> Iterator[None]:
        before, self.memory.module = self.memory.module, owner
        try:
            with self.memory.with_category("rollout"):
                yield
        finally:
            self.memory.module = before

    def sleep(self, level: int) -> None:
        """``Worker.sleep``: weights are offloaded to the host at level 1 and dropped at level 2; the cache is always
        dropped."""
        if not self.sleeps:
            return
        if level == 1 and "weights" not in self.asleep:
            with self._with_owner(WEIGHTS):
                self._on_host = torch.empty(self._sizes["weights"], dtype=torch.uint8, pin_memory=True)
        for tag in _TAGS:
            self._held.pop(tag, None)
            self.asleep.add(tag)
        gc.collect()
        torch.cuda.empty_cache()

    def wake_up(self, tags: list[str] | None) -> None:
        """``Worker.wake_up``: reallocate what is asleep with these tags."""
        for tag in _TAGS:
            if tag in self.asleep and (tags is None or tag in tags):
                self._allocate_tagged(tag, self._sizes[tag])
        if "weights" not in self.asleep:
            self._on_host = None

    def check_awake(self) -> None:
        """Raise an error if weights or cache are asleep; called before generation."""
        if self.asleep:
            raise self._unsupported("vllm.LLM.generate", _SLEEPS.format(parts=", ".join(sorted(self.asleep))))


def forward_bytes(model: EngineModel, tokens: int) -> int:
    """Bytes that a forward of ``tokens`` tokens takes in addition to the weights, on one rank."""
    width = getattr(model.text, "hidden_size", 0) or 0
    inner = getattr(model.text, "intermediate_size", None) or 4 * width
    return int(tokens * model.dtype.itemsize * (3 * width + 3 * inner // model.tp)) + model.unpacked


def sampler_bytes(model: EngineModel) -> int:
    """Bytes per sequence: logits, their float32 copy, sorted values with indices, and probabilities."""
    return int(getattr(model.text, "vocab_size", 0) or 0) * (model.dtype.itemsize + 4 + 4 + 8 + 4)


def cuda_graph_bytes(model: EngineModel) -> int:
    """Estimated bytes of the CUDA graphs."""
    layers = getattr(model.text, "num_hidden_layers", 0) or 0
    return int(MIN_CUDA_GRAPH_BYTES + layers * CUDA_GRAPH_BYTES_PER_LAYER)


def _gib(nbytes: float) -> float:
    return round(nbytes / _GIB, 2)
