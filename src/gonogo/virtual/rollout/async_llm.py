"""``vllm.v1.engine.async_llm.AsyncLLM``: an engine with its own workers, as used by a server in a Ray actor.

In vLLM the workers are processes; here they are objects in the actor, each with its memory on its GPU, and a CUDA
context in addition to the trainer's. What a framework adds to the workers (``worker_extension_cls``) runs as it is,
and so does what it calls there. Based on vLLM 0.12.0, 0.29.0 and 0.33.0 (vllm/v1/engine/async_llm.py,
vllm/v1/worker/worker_base.py, gpu_worker.py).
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.rollout import engine
from gonogo.virtual.rollout.llm import LLM, Weights

CONTEXT = "vLLM: CUDA context"
_NO_PROCESSES = translated(
    "outside of Ray, an asynchronous engine starts processes of its own, which have no "
    "stand-ins: rehearse with the engine in the trainer's process (vllm.LLM; ms-swift: "
    "--vllm_use_async_engine false) or as a server"
)


class _Engines(LLM):
    """``LLM``'s handling of prompts and completions, over one engine per GPU."""

    engines: list[engine.Engine]
    processes: list[Any]

    def _make_engine(self, engine_args: dict[str, Any]) -> engine.Engine:
        now = self.rehearsal
        for name in ("pipeline_parallel_size", "data_parallel_size"):
            if int(engine_args.get(name) or 1) > 1:
                raise now.unsupported(
                    f"vLLM {name}={engine_args[name]}",
                    translated("gonogo's stand-in for vLLM does not support this kind of parallelism"),
                )
        if engine_args.get("speculative_config"):
            raise now.unsupported(
                "vLLM speculative_config", translated("gonogo does not know how much memory a draft model takes")
            )
        tp = int(engine_args.get("tensor_parallel_size") or 1)
        backend = engine_args.get("distributed_executor_backend")
        found = now.workers(tp, backend, now.unsupported) if now.workers is not None else None
        if found is None:
            raise now.unsupported("vllm.AsyncLLM", _NO_PROCESSES)
        self.processes = found
        given = {name: value for name, value in engine_args.items() if name != "distributed_executor_backend"}
        self.engines = []
        self._contexts = []
        for process in found:
            with process.turn():
                self._contexts.append(self._allocate_cuda_context(process.device))
                self.engines.append(
                    engine.Engine(given, now.numbers, now.memory, now.unsupported, device=process.device)
                )
        return self.engines[0]

    def _allocate_cuda_context(self, device: torch.device) -> torch.Tensor:
        """Allocate a CUDA context, since a worker is a separate process from the trainer's."""
        memory = self.rehearsal.memory
        before, memory.module = memory.module, CONTEXT
        try:
            with memory.with_category("rollout"):
                return torch.empty(memory.device(device).allowance_bytes, dtype=torch.uint8, device=device)
        finally:
            memory.module = before

    def sleep(self, level: int = 1, **_: Any) -> None:
        """Put all workers to sleep."""
        for process, one in zip(self.processes, self.engines, strict=True):
            with process.turn():
                one.sleep(level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Wake up all workers."""
        self._writer.start_batch()
        for process, one in zip(self.processes, self.engines, strict=True):
            with process.turn():
                one.wake_up(tags)


class AsyncLLM:
    """Stand-in for vLLM's ``AsyncLLM``. ``of`` is the class of engines, set when the package is created."""

    of: type[_Engines]

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config
        requested = dict(vllm_config.asked)
        self._llm = self.of(requested.pop("model"), **requested)
        model = self._llm.engines[0].model
        self.model_config = vllm_config.model_config
        vars(self.model_config).update(max_model_len=model.max_model_len, hf_config=model.config, dtype=model.dtype)
        self.output_processor = SimpleNamespace(
            request_states={}, has_unfinished_requests=lambda: False, get_num_unfinished_requests=lambda: 0
        )  # requests are answered immediately
        self._adapters: set[int] = set()
        self._paused = False
        self._workers = [self._make_worker(rank, one) for rank, one in enumerate(self._llm.engines)]

    @classmethod
    def from_vllm_config(
        cls,
        vllm_config: Any,
        start_engine_loop: bool = True,
        usage_context: Any = None,
        stat_loggers: Any = None,
        enable_log_requests: bool = False,
        aggregate_engine_logging: bool = False,
        disable_log_stats: bool = False,
        client_addresses: Any = None,
        client_count: int = 1,
        client_index: int = 0,
    ) -> AsyncLLM:
        """``AsyncLLM.from_vllm_config``."""
        return cls(vllm_config)

    @classmethod
    def from_engine_args(cls, engine_args: Any, *_: Any, **__: Any) -> AsyncLLM:
        """``AsyncLLM.from_engine_args``."""
        return cls(engine_args.create_engine_config())

    def _make_worker(self, rank: int, engine_: engine.Engine) -> Any:
        extension = str(self.vllm_config.asked.get("worker_extension_cls") or "")
        bases: tuple[type, ...] = (Worker,)
        if extension:
            module, _, name = extension.rpartition(".")
            bases = (Worker, getattr(importlib.import_module(module), name))
        kind: Any = type("Worker", bases, {})
        with self._llm.processes[rank].turn(), _isolated_process_setup():
            made = kind(vllm_config=self.vllm_config)
        made.set_up(self, rank, engine_)
        return made

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, *, lora_request: Any = None, **_: Any
    ) -> AsyncIterator[Any]:
        """Yield only the final, complete output of the request."""
        yield self._llm.generate_one(prompt, sampling_params, request_id)

    async def collective_rpc(
        self,
        method: Any,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method on each worker."""
        answers = []
        for process, worker in zip(self._llm.processes, self._workers, strict=True):
            call = functools.partial(method, worker) if callable(method) else getattr(worker, method)
            with process.turn():
                answers.append(call(*args, **(kwargs or {})))
        return answers

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """``AsyncLLM.sleep``."""
        self._llm.sleep(level)

    async def wake_up(self, tags: list[str] | None = None) -> bool:
        """``AsyncLLM.wake_up``."""
        self._llm.wake_up(tags)
        return not self._llm.engines[0].asleep

    async def is_sleeping(self) -> bool:
        """``AsyncLLM.is_sleeping``."""
        return bool(self._llm.engines[0].asleep)

    async def reset_prefix_cache(self, *_: Any, **__: Any) -> bool:
        """Always True: the prefix cache is part of the KV cache."""
        return True

    async def nothing(self, *_: Any, **__: Any) -> None:
        """For methods without any effect in a rehearsal."""

    reset_mm_cache = reset_encoder_cache = check_health = start_profile = stop_profile = nothing
    wait_for_requests_to_drain = abort = do_log_stats = nothing

    async def pause_generation(self, **_: Any) -> None:
        """Set only the flag: no request is in progress during another one's turn."""
        self._paused = True

    async def resume_generation(self) -> None:
        """Clear the flag of :meth:`pause_generation`."""
        self._paused = False

    async def is_paused(self) -> bool:
        """``AsyncLLM.is_paused``."""
        return self._paused

    async def get_supported_tasks(self) -> tuple[str, ...]:
        """``AsyncLLM.get_supported_tasks``."""
        return ("generate",)

    async def list_loras(self) -> set[int]:
        """The ids of the adapters that were added."""
        return set(self._adapters)

    async def add_lora(self, lora_request: Any) -> bool:
        """Copy an adapter into one of the preallocated slots."""
        return all(worker.add_lora(lora_request) for worker in self._workers)

    async def remove_lora(self, lora_id: int) -> bool:
        """Free the adapter's slot."""
        return all(worker.remove_lora(lora_id) for worker in self._workers)

    def get_tokenizer(self) -> Any:
        """The model's tokenizer; a coroutine in older releases, whose callers await it."""
        return self._llm.get_tokenizer()

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._llm.get_tokenizer()

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Do nothing: memory is freed along with the object."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self.of.rehearsal.unsupported(
            f"vllm AsyncLLM.{name}", translated("gonogo's stand-in for the vLLM engine does not have this name")
        )


class Worker:
    """A vLLM worker, with the attributes that frameworks' extensions use."""

    def __init__(self, vllm_config: Any) -> None:
        """Accept vLLM's configuration, which an extension's ``__new__`` may use."""

    def set_up(self, client: AsyncLLM, rank: int, one: engine.Engine) -> None:
        """Set the attributes that vLLM's ``__init__`` and ``init_device`` set."""
        self._client = client
        self._engine = one
        self.rank = self.local_rank = rank
        self.device = one.device
        self.vllm_config = client.vllm_config
        self.model_config = client.model_config
        self.model_runner = SimpleNamespace(
            model=Weights(one), vllm_config=self.vllm_config, device=one.device, model_config=client.model_config
        )

    def sleep(self, level: int = 1) -> None:
        """``Worker.sleep``."""
        self._engine.sleep(level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """``Worker.wake_up``."""
        self._engine.wake_up(tags)

    def add_lora(self, lora_request: Any) -> bool:
        """``Worker.add_lora``."""
        if not self._engine.asked.get("enable_lora"):
            raise RuntimeError("LoRA is not enabled.")
        self._client._adapters.add(lora_request.lora_int_id)
        return True

    def remove_lora(self, lora_id: int) -> bool:
        """``Worker.remove_lora``."""
        self._client._adapters.discard(lora_id)
        return True

    def list_loras(self) -> set[int]:
        """``Worker.list_loras``."""
        return set(self._client._adapters)

    def get_model(self) -> Any:
        """``Worker.get_model``."""
        return self.model_runner.model

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"vLLM's Worker has no {name!r} where it is stood in for", name=name, obj=self)


@contextmanager
def _isolated_process_setup() -> Iterator[None]:
    """Disable ``prctl`` and ``getppid`` checks, with which an extension makes its process end with its parent."""
    patches = Patches()
    patches.set(os, "getppid", os.getpid)
    patches.set(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(prctl=lambda *_: 0))
    try:
        yield
    finally:
        patches.undo()
