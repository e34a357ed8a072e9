"""A rollout server, as a trainer meets it: ``vllm serve``, ``trl vllm-serve``, ``swift rollout``, SGLang.

Nothing is sent: ``requests`` hands each request to the table below, by its path. Its GPUs are not this rehearsal's;
that it is up, and has the engine and the options that the trainer's documentation asks for, is assumed. Paths and
answers as in vllm/entrypoints/openai (0.22 to 0.31) and trl/scripts/vllm_serve.py (0.15 to 0.29).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from gonogo.finding import Text, translated
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.rollout import generation, sglang_server
from gonogo.virtual.rollout.meeting import MEETING
from gonogo.virtual.rollout.outputs import LogprobsOf

Answer = dict[str, Any]
NOT_MINE = object()
_CONFIG: Answer = {
    "weight_transfer_config": {"backend": "nccl"},
    "model_config": {"logprobs_mode": "processed_logprobs", "dtype": "torch.bfloat16"},
    "lora_config": None,
}
"""Of the server: what trainers ask for, with the options that TRL's documentation starts it with."""


def _assumption_text(address: str) -> Text:
    return translated(
        "a rollout server is up at {address}, on GPUs that the trainer does not use, with one worker and the "
        "options that weight synchronization needs"
    ).format(address=address)


class RolloutServer:
    """Answers by path. ``life`` knows the trainer's tokenizer."""

    def __init__(
        self,
        life: Lifecycle,
        assume: Callable[[Text], object],
        assume_vllm: Callable[[Text], object],
        refuse: Callable[[str, Text], BaseException],
    ) -> None:
        self._sglang = sglang_server.SGLang(self._write, self._ids, self._text_if_known, refuse)
        self._life = life
        self._assume = assume
        self._assume_vllm = assume_vllm
        self._writer: generation.Writer | None = None
        self._logprobs = LogprobsOf([0])
        self._paths: dict[str, Callable[[Answer], Any]] = {
            "/health": lambda asked: {"status": "ok"},
            "/v1/models": lambda asked: {"object": "list", "data": [{"id": "model", "object": "model"}]},
            "/server_info": lambda asked: {"vllm_config": _CONFIG},
            "/get_world_size": lambda asked: {"world_size": 1},
            "/v1/completions": self._completions,
            "/generate": self._generate,
            "/chat": self._chat,
            "/v1/chat/completions": self._conversation,
            "/infer": self._infer,
            "/get_engine_type": lambda asked: {
                "engine_type": "LLMEngine",
                "enable_multi_turn": False,
                "use_gym_env": False,
                "enable_lora": False,
            },
        }
        for path in (
            "/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update",
            "/init_communicator", "/update_named_param", "/batch_update_named_params", "/close_communicator",
            "/update_flattened_params", "/process_weights_after_loading", "/reset_mm_cache", "/reset_encoder_cache",
        ):  # fmt: skip
            self._paths[path] = lambda asked: {"message": "done"}
        self._paths |= self._sglang.paths
        self._paths["/reset_prefix_cache"] = lambda asked: {"success": True, "message": "done"}

    def answer(self, url: str, body: Any) -> Any:
        """The answer's JSON; ``NOT_MINE`` where this is no request to such a server."""
        parts = urlsplit(url)
        path = self._paths.get(parts.path.rstrip("/"))
        if path is None:
            return NOT_MINE
        MEETING.request(parts.netloc, parts.path.rstrip("/"))
        asked = json.loads(body) if body else {}
        self._assume_of(parts.path.rstrip("/"), asked)(_assumption_text(f"{parts.scheme}://{parts.netloc}"))
        return path(asked)

    def _assume_of(self, path: str, asked: Answer) -> Callable[[Text], object]:
        """SGLang's clients need no vLLM beside them."""
        own = path in self._sglang.paths or (path == "/generate" and "prompts" not in asked)
        return self._assume if own else self._assume_vllm

    def _write(self, prompts: list[list[int]], asked: Answer) -> list[tuple[list[int], list[int], str]]:
        """(prompt, completion, why it ends), the completions of a prompt one behind the other."""
        if self._writer is None:
            tokens, eos = self._plain(prompts, asked)
            self._writer, self._logprobs = generation.Writer(tokens, eos), LogprobsOf(tokens)
        each = int(asked.get("n") or 1)
        most = int(asked.get("max_tokens") or 16)
        self._assume(generation.ASSUMED)
        with self._life.during("generate", "the rollout server"):
            shares = iter(self._writer.next_batch(each * len(prompts)))
            least, whole = int(asked.get("min_tokens") or 0), bool(asked.get("ignore_eos"))
            return [
                (ids, *self._writer.write(next(shares), most, least, whole)) for ids in prompts for _ in range(each)
            ]

    def _plain(self, prompts: list[list[int]], asked: Answer) -> tuple[list[int], int | None]:
        """The tokens that completions are written with; without a tokenizer, those of the prompts."""
        if self._life.seen.processing is not None:
            return generation.plain_tokens(self._life.seen.processing, 0)
        ends = [int(one) for one in asked.get("stop_token_ids") or ()]
        return sorted({token for ids in prompts for token in ids} - set(ends)) or [0], next(iter(ends), None)

    def _ids(self, prompt: Any) -> list[int]:
        return self._encode(prompt) if isinstance(prompt, str) else [int(one) for one in prompt]

    def _tokenizer(self) -> Any:
        return getattr(self._life.seen.processing, "tokenizer", self._life.seen.processing)

    def _encode(self, text: str) -> list[int]:
        tokenizer = self._tokenizer()
        return [int(one) for one in tokenizer.encode(text)] if tokenizer is not None else [0]

    def _completions(self, asked: Answer) -> Answer:
        prompts = asked["prompt"]
        if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
            prompts = [prompts]
        if asked.get("prompt_logprobs") is not None:
            return {"choices": [self._scored(self._ids(one), int(asked["prompt_logprobs"])) for one in prompts]}
        choices = [
            {
                "index": index,
                "text": "",
                "prompt_token_ids": ids,
                "token_ids": written,
                "finish_reason": why,
                "logprobs": self._as_completion(written, asked.get("logprobs")),
            }
            for index, (ids, written, why) in enumerate(self._write([self._ids(one) for one in prompts], asked))
        ]
        return {"choices": choices}

    def _as_completion(self, written: list[int], others: int | None) -> Answer | None:
        found = self._logprobs.of(written, others)
        if found is None:
            return None
        return {
            "tokens": [f"token_id:{token}" for token in written],
            "token_logprobs": [found[at][token].logprob for at, token in enumerate(written)],
            "top_logprobs": [{f"token_id:{one}": held.logprob for one, held in each.items()} for each in found],
        }

    def _scored(self, ids: list[int], others: int) -> Answer:
        found = LogprobsOf(ids).of(ids, others) or []
        scored = [
            {str(one): {"logprob": held.logprob, "rank": held.rank} for one, held in each.items()} for each in found
        ]
        return {"prompt_logprobs": [None, *scored[1:]], "token_ids": [], "logprobs": None}

    def _conversation(self, asked: Answer) -> Answer:
        ids = self._templated(asked["messages"], asked)
        choices = [
            {"index": index, "token_ids": written, "finish_reason": why, "message": {"role": "assistant"},
             "logprobs": self._as_completion(written, 0 if asked.get("logprobs") else None)}
            for index, (_, written, why) in enumerate(self._write([ids], asked))
        ]  # fmt: skip
        return {"prompt_token_ids": ids, "choices": choices}

    def _templated(self, messages: Any, asked: Answer) -> list[int]:
        tokenizer = self._tokenizer()
        more = asked.get("chat_template_kwargs") or {}
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more)
        return self._encode(text)

    def _generate(self, asked: Answer) -> Any:
        """``trl vllm-serve``, or SGLang's own."""
        if "prompts" not in asked:
            return self._sglang.generate(asked)
        return self._by_trl([self._ids(one) for one in asked["prompts"]], asked)

    def _chat(self, asked: Answer) -> Answer:
        """``trl vllm-serve``."""
        return self._by_trl([self._templated(one, asked) for one in asked["messages"]], asked)

    def _infer(self, asked: Answer) -> list[Answer]:
        """``swift rollout`` (swift/pipelines/infer/rollout.py): a ``RolloutOutput`` for each request."""
        config = asked["request_config"] or {}
        answers = []
        prompts = [self._templated(one["messages"], {}) for one in asked["infer_requests"]]
        for request, (ids, written, why) in zip(asked["infer_requests"], self._write(prompts, config), strict=True):
            logprobs = {"content": [{"logprob": -1.0} for _ in written]} if config.get("logprobs") else None
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": self._text(written)},
                "logprobs": logprobs,
                "finish_reason": why,
                "token_ids": written,
            }
            usage = {
                "prompt_tokens": len(ids),
                "completion_tokens": len(written),
                "total_tokens": len(ids) + len(written),
            }
            response = {"model": "model", "choices": [choice], "usage": usage, "prompt_token_ids": ids}
            response |= {"id": request["uuid"]} if request.get("uuid") else {}
            answers.append({"response": response})
        return answers

    def _text(self, ids: list[int]) -> str:
        tokenizer = self._tokenizer()
        return str(tokenizer.decode(ids, skip_special_tokens=True)) if tokenizer is not None else ""

    def _text_if_known(self, ids: list[int]) -> str | None:
        return self._text(ids) if self._tokenizer() is not None else None

    def _by_trl(self, prompts: list[list[int]], asked: Answer) -> Answer:
        others = asked.get("logprobs", 0)
        written = [one for _, one, _ in self._write(prompts, asked)]
        if asked.get("logprobs", "plain") == "plain":  # before TRL 0.27 each token's own, as a number
            logprobs: Any = [[-1.0] * len(one) for one in written]
            return {"prompt_ids": prompts, "completion_ids": written, "logprobs": logprobs}
        found = [self._logprobs.of(one, others) or [] for one in written]
        return {
            "prompt_ids": prompts,
            "completion_ids": written,
            "logprobs": [[[held.logprob for held in each.values()] for each in one] for one in found],
            "logprob_token_ids": [[list(each) for each in one] for one in found],
        }


class _Partial(dict[str, Any]):
    """An answer of which a real one may have more: what is missing can't be rehearsed, rather than being absent."""

    def __init__(self, held: Answer, refuse: Callable[[str, Text], BaseException]) -> None:
        super().__init__(held)
        self._refuse = refuse

    def __missing__(self, key: str) -> Any:
        raise self._refuse(
            f"{key!r} of the rollout server's answer", translated("gonogo's stand-in for the server does not have it")
        )


def install(
    patches: Patches,
    life: Lifecycle,
    assume: Callable[[Text], object],
    assume_vllm: Callable[[Text], object],
    refuse: Callable[[str, Text], BaseException],
) -> None:
    """Answer what ``requests`` would send. ``assume_vllm``: of what a client with vLLM beside it asks."""
    answering = RolloutServer(life, assume, assume_vllm, refuse)
    MEETING.forget()

    def follow(module: ModuleType) -> None:
        original = module.HTTPAdapter.send

        def send(adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            status, reason = 200, "OK"
            try:
                answer = answering.answer(request.url, request.body)
            except sglang_server.BadRequest as refused:
                status, reason, answer = 400, "Bad Request", {"error": {"message": str(refused)}}
            if answer is NOT_MINE:
                return original(adapter, request, *args, **kwargs)
            response = module.Response()
            response.status_code, response.url, response.request = status, request.url, request
            response.reason = reason
            response._content = json.dumps(answer).encode()
            response.json = lambda **_: json.loads(response._content, object_hook=lambda held: _Partial(held, refuse))
            response.headers["Content-Type"] = "application/json"
            return response

        patches.set(module.HTTPAdapter, "send", send)

    patches.on_undo(after_import("requests.adapters", follow))
