"""``vllm.LLM``: the engine in the trainer's process, with the methods that trainers call
(vllm/entrypoints/llm.py)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.collectives.peers import Peers
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.rollout import engine, generation
from gonogo.virtual.rollout.arguments import ENGINE, SamplingParamsStandIn
from gonogo.virtual.rollout.outputs import CompletionOutput, RequestOutput, SyntheticLogprobs
from gonogo.virtual.rollout.ranks import EngineRanks
from gonogo.virtual.unsupported import Unsupported

WorkerFactory = Callable[[int, Any, Unsupported], "list[Any] | None"]
"""Starts the given number of worker processes for an executor; returns None if the engine can't have any."""


class EngineContext:
    """What an engine needs from the rehearsal."""

    def __init__(
        self,
        version: str,
        memory: MemoryRecord,
        lifecycle: Lifecycle,
        assume: Callable[[Text], object],
        unsupported_error: Unsupported,
        peers: Peers | None = None,
        workers: WorkerFactory | None = None,
    ) -> None:
        self.workers = workers
        self.peers = peers
        self.version = version
        self.numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
        self.memory = memory
        self.life = lifecycle
        self.assume = assume
        self.unsupported = unsupported_error


class LLM:
    """Stand-in for ``vllm.LLM``. ``rehearsal`` is set when the package is created."""

    rehearsal: EngineContext

    def __init__(self, model: str, **requested: Any) -> None:
        now = self.rehearsal
        for name in requested:
            if name not in ENGINE:
                raise now.unsupported(
                    f"vllm.LLM({name}=…)", translated("no vLLM release known to gonogo has this argument")
                )
        with now.life.during("init", "vllm.LLM"):
            self._ranks = EngineRanks(now.peers, int(requested.get("tensor_parallel_size") or 1))
            self._engine = self._make_engine({"model": model, **requested})
        now.assume(engine.engine_assumptions(now.version))
        self._numbers = itertools.count()
        self._name = str(requested.get("tokenizer") or self._engine.model.folder)
        self._tokenizer: Any = None
        tokens, eos = generation.ordinary_token_ids(
            self.get_tokenizer(), getattr(self._engine.model.text, "vocab_size", 0)
        )
        self._writer = generation.CompletionWriter(tokens, eos)
        self._logprobs = SyntheticLogprobs(tokens)
        self.llm_engine = LLMEngine(self)

    def _make_engine(self, engine_args: dict[str, Any]) -> engine.Engine:
        now = self.rehearsal
        return engine.Engine(engine_args, now.numbers, now.memory, now.unsupported, self._ranks)

    def get_tokenizer(self) -> Any:
        """The model's tokenizer, or None if it has none that can be loaded."""
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            trusts = bool(self._engine.asked.get("trust_remote_code"))
            self._tokenizer = AutoTokenizer.from_pretrained(self._name, trust_remote_code=trusts)
        return self._tokenizer

    def generate(
        self, prompts: Any = None, sampling_params: Any = None, use_tqdm: Any = True, lora_request: Any = None, **_: Any
    ) -> list[RequestOutput]:
        """Completions of the prompts, in order."""
        now = self.rehearsal
        with now.life.during("generate", "vllm.LLM.generate"):
            self._engine.check_awake()
            read = [self._read_prompt(one) for one in (prompts if isinstance(prompts, list | tuple) else [prompts])]
            requested = _params_per_prompt(sampling_params, len(read))
            shares = iter(self._writer.next_length_fractions(sum(one.n for one in requested)))
            now.assume(generation.ASSUMED)
            self._ranks.step([ids for _, ids in read], sum(one.n for one in requested))
            return [self._make_request_output(prompt, one, shares) for prompt, one in zip(read, requested, strict=True)]

    def generate_one(self, prompt: Any, sampling_params: SamplingParamsStandIn, request_id: str) -> RequestOutput:
        """Answer a single request to a server; all requests between two weight updates count as one batch."""
        now = self.rehearsal
        with now.life.during("generate", "vllm.AsyncLLM.generate"):
            self._engine.check_awake()
            read = self._read_prompt(prompt)
            now.assume(generation.ASSUMED)
            answer = self._make_request_output(
                read,
                sampling_params,
                iter([self._writer.next_request_length_fraction() for _ in range(sampling_params.n)]),
            )
            answer.request_id = request_id
            return answer

    def chat(self, messages: Any, sampling_params: Any = None, use_tqdm: Any = True, **requested: Any) -> Any:
        """Generate for conversations, using the tokenizer's chat template."""
        several = messages if messages and isinstance(messages[0], list) else [messages]
        template = {"tools": requested.get("tools"), "chat_template": requested.get("chat_template")}
        more = requested.get("chat_template_kwargs") or {}
        prompts = [
            self.get_tokenizer().apply_chat_template(
                one,
                tokenize=False,
                add_generation_prompt=requested.get("add_generation_prompt", True),
                **{name: value for name, value in template.items() if value is not None},
                **more,
            )
            for one in several
        ]
        return self.generate(prompts, sampling_params)

    def _read_prompt(self, prompt: Any) -> tuple[str | None, list[int]]:
        text, ids = None, None
        if isinstance(prompt, str):
            text = prompt
        elif isinstance(prompt, dict):
            text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        elif isinstance(prompt, list | tuple):
            ids = prompt
        if ids is None:
            ids = self.get_tokenizer().encode(text)
        ids = [int(one) for one in ids]
        limit = self._engine.model.max_model_len
        if len(ids) > limit:
            raise ValueError(
                f"The decoder prompt (length {len(ids)}) is longer than the maximum model length of {limit}. Make sure "
                "that `max_model_len` is no smaller than the number of text tokens."
            )
        if len(ids) == limit:
            raise ValueError(
                f"The decoder prompt (length {len(ids)}) plus the number of requested output tokens (at least 1) is "
                f"longer than the maximum model length of {limit}. Make sure that `max_model_len` is no smaller than "
                "the number of text tokens (prompt + requested output tokens)."
            )
        return text, ids

    def _make_request_output(
        self, prompt: tuple[str | None, list[int]], sampling_params: SamplingParamsStandIn, length_fractions: Any
    ) -> RequestOutput:
        text, ids = prompt
        room = self._engine.model.max_model_len - len(ids)
        most = room if sampling_params.max_tokens is None else min(sampling_params.max_tokens, room)
        outputs = []
        for index in range(sampling_params.n):
            written, why = self._writer.write_completion(
                next(length_fractions), most, sampling_params.min_tokens, vars(sampling_params)["ignore_eos"]
            )
            logprobs = self._logprobs.logprobs_of(written, sampling_params.logprobs)
            outputs.append(CompletionOutput(index, written, logprobs, why, self._decode_tokens))
        return RequestOutput(str(next(self._numbers)), text, ids, outputs)

    def _decode_tokens(self, token_ids: list[int]) -> str:
        return str(self.get_tokenizer().decode(token_ids, skip_special_tokens=True))

    def sleep(self, level: int = 1, **_: Any) -> None:
        """``LLM.sleep``."""
        self._engine.sleep(level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """``LLM.wake_up``."""
        self._engine.wake_up(tags)

    def reset_prefix_cache(self, *_: Any, **__: Any) -> bool:
        """Always True: the prefix cache is part of the KV cache."""
        return True

    def collective_rpc(self, method: Any, timeout: Any = None, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run a worker's method, if it is one of those known here."""
        known: dict[str, Callable[..., Any]] = {
            "sleep": self.sleep,
            "wake_up": self.wake_up,
            "reset_prefix_cache": self.reset_prefix_cache,
        }
        if isinstance(method, str) and method in known:
            return [known[method](*args, **(kwargs or {}))]
        raise self.rehearsal.unsupported(
            f"vllm.LLM.collective_rpc({method!r})",
            translated("the engine's workers are stand-ins, which do not have this method"),
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self.rehearsal.unsupported(
            f"vllm.LLM.{name}", translated("gonogo's stand-in for the vLLM engine does not have this name")
        )


class LLMEngine:
    """``vllm.LLMEngine``: an engine for trainers that add requests and call ``step``
    (vllm/v1/engine/llm_engine.py)."""

    of: type[LLM]

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._waiting: list[tuple[str, Any, Any]] = []
        self._adapters: list[int] = []
        inner = llm._engine
        self.model_executor = _Executor(llm)
        self.model_config = SimpleNamespace(
            max_model_len=inner.model.max_model_len, hf_config=inner.model.config, dtype=inner.model.dtype
        )

    @classmethod
    def from_engine_args(cls, engine_args: Any, *_: Any, **__: Any) -> LLMEngine:
        """``LLMEngine.from_engine_args``."""
        made = cls.of(**vars(engine_args)).llm_engine
        made.__class__ = cls
        return made

    def add_request(self, request_id: str, prompt: Any, params: Any, *_: Any, **__: Any) -> None:
        """Queue a request for the next step."""
        self._waiting.append((request_id, prompt, params))

    def has_unfinished_requests(self) -> bool:
        """True if requests are queued."""
        return bool(self._waiting)

    def step(self) -> list[RequestOutput]:
        """Answer all queued requests completely."""
        waiting, self._waiting = self._waiting, []
        answers = self._llm.generate([prompt for _, prompt, _ in waiting], [params for *_, params in waiting])
        for (request_id, *_), answer in zip(waiting, answers, strict=True):
            answer.request_id = request_id
        return answers

    def sleep(self, level: int = 1) -> None:
        """``LLMEngine.sleep``."""
        self._llm.sleep(level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """``LLMEngine.wake_up``."""
        self._llm.wake_up(tags)

    def is_sleeping(self) -> bool:
        """``LLMEngine.is_sleeping``."""
        return self.model_executor.is_sleeping

    def reset_prefix_cache(self, *_: Any, **__: Any) -> bool:
        """Always True: the prefix cache is part of the KV cache."""
        return True

    def reset_mm_cache(self) -> None:
        """Do nothing: the multimodal cache takes no memory of its own here."""

    reset_encoder_cache = reset_mm_cache

    def list_loras(self) -> set[int]:
        """The ids of the adapters that were added."""
        return set(self._adapters)

    def add_lora(self, lora_request: Any) -> bool:
        """Copy an adapter into one of the preallocated slots."""
        if not self._llm._engine.asked.get("enable_lora"):
            raise RuntimeError("LoRA is not enabled.")
        self._adapters.append(lora_request.lora_int_id)
        return True

    def collective_rpc(self, *requested: Any, **more: Any) -> Any:
        """Run a worker's method."""
        return self._llm.collective_rpc(*requested, **more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._llm.rehearsal.unsupported(
            f"vllm.LLMEngine.{name}", translated("gonogo's stand-in for the vLLM engine does not have this name")
        )


class _Executor:
    """The executor of a single worker in this process."""

    def __init__(self, llm: LLM) -> None:
        self._engine = llm._engine
        runner = SimpleNamespace(model=Weights(self._engine), load_model=lambda: None)
        self.driver_worker = SimpleNamespace(model_runner=runner, rank=0, device=self._engine.device)
        self.driver_worker.worker = self.driver_worker
        self.collective_rpc = llm.collective_rpc

    @property
    def is_sleeping(self) -> bool:
        """True if weights or cache are asleep."""
        return bool(self._engine.asleep)


class Weights:
    """The engine's model, with the methods by which a trainer updates its weights."""

    def __init__(self, rollout_engine: engine.Engine) -> None:
        self._engine = rollout_engine

    def named_parameters(self, *_: Any, **__: Any) -> Iterable[tuple[str, None]]:
        """The parameters' names in transformers, not those of vLLM's packed modules."""
        return ((name, None) for name in self._engine.model.shapes)

    def named_buffers(self, *_: Any, **__: Any) -> Iterable[tuple[str, None]]:
        """Always empty: trainers don't send buffers."""
        return iter(())

    def compute_logits(self, *_: Any, **__: Any) -> Any:
        """A method that some frameworks replace; never called, since completions are synthetic."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """``load_weights``: copy into the existing weights."""
        names: list[str] = []

        def note_names() -> Iterable[tuple[str, torch.Tensor]]:
            for name, weight in weights:
                names.append(name)
                yield name, weight

        self._engine.model.check_weights(note_names())
        return set(names)


def _params_per_prompt(params: Any, count: int) -> list[Any]:
    if isinstance(params, list | tuple):
        if len(params) != count:
            raise ValueError("The lengths of prompts and params must be the same.")
        return list(params)
    return [params if params is not None else SamplingParamsStandIn()] * count
