"""A rollout server from the trainer's side: ``vllm serve``, ``trl vllm-serve``, ``swift rollout``, SGLang.

Nothing is sent: ``requests`` dispatches each request to the table below by its path. The server's GPUs are not part
of this rehearsal; it is assumed to be running with the engine and options that the trainer's documentation requires.
Paths and answers follow vllm/entrypoints/openai (0.22 to 0.31) and trl/scripts/vllm_serve.py (0.15 to 0.29).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from gonogo.finding import Text, translated
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.rollout import generation, sglang_server
from gonogo.virtual.rollout.meeting import WEIGHT_SYNC_GROUP
from gonogo.virtual.rollout.outputs import SyntheticLogprobs

Answer = dict[str, Any]
NOT_HANDLED = object()
_GENERATING_PATHS = ("/v1/completions", "/v1/chat/completions", "/generate", "/chat", "/infer")
_CONFIG: Answer = {
    "weight_transfer_config": {"backend": "nccl"},
    "model_config": {"logprobs_mode": "processed_logprobs", "dtype": "torch.bfloat16"},
    "lora_config": None,
}
"""The server's configuration that trainers query, with the options recommended by TRL's documentation."""


def _assumption_text(address: str) -> Text:
    return translated(
        "a rollout server is up at {address}, on GPUs that the trainer does not use, with one worker and the "
        "options that weight synchronization needs"
    ).format(address=address)


class RolloutServer:
    """Answers requests by path. ``life`` knows the trainer's tokenizer."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        assume: Callable[[Text], object],
        assume_vllm: Callable[[Text], object],
        refuse: Callable[[str, Text], BaseException],
    ) -> None:
        self._sglang = sglang_server.SGLang(
            self._write_completions, self._prompt_token_ids, self._text_if_known, refuse
        )
        self._life = lifecycle
        self._assume = assume
        self._assume_vllm = assume_vllm
        self._writer: generation.CompletionWriter | None = None
        self._logprobs = SyntheticLogprobs([0])
        self._paths: dict[str, Callable[[Answer], Any]] = {
            "/health": lambda asked: {"status": "ok"},
            "/v1/models": lambda asked: {"object": "list", "data": [{"id": "model", "object": "model"}]},
            "/server_info": lambda asked: {"vllm_config": _CONFIG},
            "/get_world_size": lambda asked: {"world_size": 1},
            "/v1/completions": self._answer_completions,
            "/generate": self._generate,
            "/chat": self._chat,
            "/v1/chat/completions": self._answer_chat_completions,
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
        self._running = threading.Event()
        self._running.set()
        self._paths |= {"/pause": self._pause, "/resume": self._resume}
        self._paths |= self._sglang.paths
        self._paths["/reset_prefix_cache"] = lambda asked: {"success": True, "message": "done"}

    def answer(self, url: str, body: Any) -> Any:
        """The JSON answer, or ``NOT_HANDLED`` if this is not a request to such a server."""
        parts = urlsplit(url)
        path = self._paths.get(parts.path.rstrip("/"))
        if path is None:
            return NOT_HANDLED
        WEIGHT_SYNC_GROUP.on_request(parts.netloc, parts.path.rstrip("/"))
        if parts.path.rstrip("/") in _GENERATING_PATHS:
            self.wait_until_resumed()
        asked = json.loads(body) if body else {}
        self._assumption_recorder(parts.path.rstrip("/"), asked)(_assumption_text(f"{parts.scheme}://{parts.netloc}"))
        return path(asked)

    def _pause(self, _: Answer) -> Answer:
        self._running.clear()
        return {"status": "paused"}

    def _resume(self, _: Answer) -> Answer:
        self._running.set()
        return {"status": "resumed"}

    def wait_until_resumed(self) -> None:
        """Hold a request back until ``/resume``, as vLLM does in each mode of ``/pause``."""
        self._running.wait()

    def _assumption_recorder(self, path: str, body: Answer) -> Callable[[Text], object]:
        """The recorder for an assumption: clients of SGLang don't need vLLM installed."""
        own = path in self._sglang.paths or (path == "/generate" and "prompts" not in body)
        return self._assume if own else self._assume_vllm

    def _write_completions(self, prompts: list[list[int]], body: Answer) -> list[tuple[list[int], list[int], str]]:
        """(prompt, completion, finish reason), with the completions of one prompt in succession."""
        if self._writer is None:
            tokens, eos = self._completion_token_ids(prompts, body)
            self._writer, self._logprobs = generation.CompletionWriter(tokens, eos), SyntheticLogprobs(tokens)
        each = int(body.get("n") or 1)
        most = int(body.get("max_tokens") or 16)
        self._assume(generation.ASSUMED)
        with self._life.during("generate", "the rollout server"):
            shares = iter(self._writer.next_length_fractions(each * len(prompts)))
            least, whole = int(body.get("min_tokens") or 0), bool(body.get("ignore_eos"))
            return [
                (ids, *self._writer.write_completion(next(shares), most, least, whole))
                for ids in prompts
                for _ in range(each)
            ]

    def _completion_token_ids(self, prompts: list[list[int]], body: Answer) -> tuple[list[int], int | None]:
        """The tokens used in completions, and EOS; taken from the prompts if there is no tokenizer."""
        if self._life.seen.processing is not None:
            return generation.ordinary_token_ids(self._life.seen.processing, 0)
        ends = [int(one) for one in body.get("stop_token_ids") or ()]
        return sorted({token for ids in prompts for token in ids} - set(ends)) or [0], next(iter(ends), None)

    def _prompt_token_ids(self, prompt: Any) -> list[int]:
        return self._encode_text(prompt) if isinstance(prompt, str) else [int(one) for one in prompt]

    def _tokenizer(self) -> Any:
        return getattr(self._life.seen.processing, "tokenizer", self._life.seen.processing)

    def _encode_text(self, text: str) -> list[int]:
        tokenizer = self._tokenizer()
        return [int(one) for one in tokenizer.encode(text)] if tokenizer is not None else [0]

    def _answer_completions(self, body: Answer) -> Answer:
        prompts = body["prompt"]
        if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
            prompts = [prompts]
        if body.get("prompt_logprobs") is not None:
            return {
                "choices": [
                    self._prompt_logprobs(self._prompt_token_ids(one), int(body["prompt_logprobs"])) for one in prompts
                ]
            }
        choices = [
            {
                "index": index,
                "text": "",
                "prompt_token_ids": ids,
                "token_ids": written,
                "finish_reason": why,
                "logprobs": self._completion_logprobs(written, body.get("logprobs")),
            }
            for index, (ids, written, why) in enumerate(
                self._write_completions([self._prompt_token_ids(one) for one in prompts], body)
            )
        ]
        return {"choices": choices}

    def _completion_logprobs(self, token_ids: list[int], top_logprobs: int | None) -> Answer | None:
        found = self._logprobs.logprobs_of(token_ids, top_logprobs)
        if found is None:
            return None
        return {
            "tokens": [f"token_id:{token}" for token in token_ids],
            "token_logprobs": [found[at][token].logprob for at, token in enumerate(token_ids)],
            "top_logprobs": [{f"token_id:{one}": held.logprob for one, held in each.items()} for each in found],
        }

    def _prompt_logprobs(self, token_ids: list[int], top_logprobs: int) -> Answer:
        found = SyntheticLogprobs(token_ids).logprobs_of(token_ids, top_logprobs) or []
        scored = [
            {str(one): {"logprob": held.logprob, "rank": held.rank} for one, held in each.items()} for each in found
        ]
        return {"prompt_logprobs": [None, *scored[1:]], "token_ids": [], "logprobs": None}

    def _answer_chat_completions(self, body: Answer) -> Answer:
        ids = self._apply_chat_template(body["messages"], body)
        choices = [
            {"index": index, "token_ids": written, "finish_reason": why, "message": {"role": "assistant"},
             "logprobs": self._completion_logprobs(written, 0 if body.get("logprobs") else None)}
            for index, (_, written, why) in enumerate(self._write_completions([ids], body))
        ]  # fmt: skip
        return {"prompt_token_ids": ids, "choices": choices}

    def _apply_chat_template(self, messages: Any, body: Answer) -> list[int]:
        tokenizer = self._tokenizer()
        more = body.get("chat_template_kwargs") or {}
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more)
        return self._encode_text(text)

    def _generate(self, body: Answer) -> Any:
        """``/generate`` of ``trl vllm-serve`` or SGLang."""
        if "prompts" not in body:
            return self._sglang.generate(body)
        return self._trl_answer([self._prompt_token_ids(one) for one in body["prompts"]], body)

    def _chat(self, body: Answer) -> Answer:
        """``/chat`` of ``trl vllm-serve``."""
        return self._trl_answer([self._apply_chat_template(one, body) for one in body["messages"]], body)

    def _infer(self, body: Answer) -> list[Answer]:
        """``/infer`` of ``swift rollout`` (swift/pipelines/infer/rollout.py): a ``RolloutOutput`` per request."""
        config = body["request_config"] or {}
        answers = []
        prompts = [self._apply_chat_template(one["messages"], {}) for one in body["infer_requests"]]
        for request, (ids, written, why) in zip(
            body["infer_requests"], self._write_completions(prompts, config), strict=True
        ):
            logprobs = {"content": [{"logprob": -1.0} for _ in written]} if config.get("logprobs") else None
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": self._decode_tokens(written)},
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

    def _decode_tokens(self, token_ids: list[int]) -> str:
        tokenizer = self._tokenizer()
        return str(tokenizer.decode(token_ids, skip_special_tokens=True)) if tokenizer is not None else ""

    def _text_if_known(self, token_ids: list[int]) -> str | None:
        return self._decode_tokens(token_ids) if self._tokenizer() is not None else None

    def _trl_answer(self, prompts: list[list[int]], body: Answer) -> Answer:
        others = body.get("logprobs", 0)
        written = [one for _, one, _ in self._write_completions(prompts, body)]
        if body.get("logprobs", "plain") == "plain":  # before TRL 0.27: each token's own log-probability as a number
            logprobs: Any = [[-1.0] * len(one) for one in written]
            return {"prompt_ids": prompts, "completion_ids": written, "logprobs": logprobs}
        found = [self._logprobs.logprobs_of(one, others) or [] for one in written]
        return {
            "prompt_ids": prompts,
            "completion_ids": written,
            "logprobs": [[[held.logprob for held in each.values()] for each in one] for one in found],
            "logprob_token_ids": [[list(each) for each in one] for one in found],
        }


class _PartialAnswer(dict[str, Any]):
    """An incomplete answer: reading a key that a real one may have can't be rehearsed, rather than raising
    KeyError."""

    def __init__(self, body: Answer, refuse: Callable[[str, Text], BaseException]) -> None:
        super().__init__(body)
        self._refuse = refuse

    def __missing__(self, key: str) -> Any:
        raise self._refuse(
            f"{key!r} of the rollout server's answer",
            translated("gonogo's stand-in for the server does not send this field"),
        )


def install(
    patches: Patches,
    lifecycle: Lifecycle,
    assume: Callable[[Text], object],
    assume_vllm: Callable[[Text], object],
    unsupported_error: Callable[[str, Text], BaseException],
) -> None:
    """Answer what ``requests`` would send. ``assume_vllm`` records assumptions of clients that need vLLM
    installed."""
    answering = RolloutServer(lifecycle, assume, assume_vllm, unsupported_error)
    WEIGHT_SYNC_GROUP.reset()

    def patch_send(module: ModuleType) -> None:
        original = module.HTTPAdapter.send

        def send(adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            status, reason = 200, "OK"
            try:
                answer = answering.answer(request.url, request.body)
            except sglang_server.BadRequest as refused:
                status, reason, answer = 400, "Bad Request", {"error": {"message": str(refused)}}
            if answer is NOT_HANDLED:
                return original(adapter, request, *args, **kwargs)
            response = module.Response()
            response.status_code, response.url, response.request = status, request.url, request
            response.reason = reason
            response._content = json.dumps(answer).encode()
            response.json = lambda **_: json.loads(
                response._content, object_hook=lambda held: _PartialAnswer(held, unsupported_error)
            )
            response.headers["Content-Type"] = "application/json"
            return response

        patches.set(module.HTTPAdapter, "send", send)

    patches.on_undo(after_import("requests.adapters", patch_send))
