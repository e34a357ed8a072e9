"""SGLang's server (``python -m sglang.launch_server``) and its own protocol: the HTTP requests that trainers send.

Paths and answers follow sglang/srt/entrypoints/http_server.py and managers/tokenizer_manager.py, checks and messages
sglang/srt/sampling/sampling_params.py, release 0.5.23. A trainer that writes its weights to disk for the server to
load is rehearsed completely; requests that would send tensors to the server's processes are not answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gonogo.finding import Text, translated
from gonogo.virtual.rollout.outputs import SyntheticLogprobs

Answer = dict[str, Any]
Written = list[tuple[list[int], list[int], str]]
_SAMPLING: Answer = {
    "max_new_tokens": 128, "stop": None, "stop_token_ids": None, "stop_regex": None, "temperature": 1.0, "top_p": 1.0,
    "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0,
    "min_new_tokens": 0, "n": 1, "json_schema": None, "regex": None, "ebnf": None, "structural_tag": None,
    "ignore_eos": False, "skip_special_tokens": True, "spaces_between_special_tokens": True, "no_stop_trim": False,
    "stream_interval": None, "logit_bias": None, "sampling_seed": None, "custom_params": None,
}  # fmt: skip
_DEFAULT_MAX_NEW_TOKENS = 1024
"""Tokens of a completion without ``max_new_tokens``, whose real limit is the server's unknown context length."""


class BadRequest(Exception):
    """An answer with status 400."""


class SGLang:
    """Answers requests by path. ``write`` creates completions; ``ids`` and ``text`` encode and decode with the
    trainer's tokenizer. ``text`` is None if that is unknown."""

    def __init__(
        self,
        write: Callable[[list[list[int]], Answer], Written],
        tokenize: Callable[[Any], list[int]],
        text: Callable[[list[int]], str | None],
        unsupported_error: Callable[[str, Text], BaseException],
    ) -> None:
        self._write = write
        self._ids = tokenize
        self._text = text
        self._refuse = unsupported_error
        self.paths: dict[str, Callable[[Answer], Any]] = {
            "/health_generate": lambda requested: None,
            "/flush_cache": lambda requested: "Cache flushed.",
            "/update_weights_from_disk": lambda requested: {
                "success": True,
                "message": "Succeeded to update model weights.",
                "num_paused_requests": 0,
            },
            "/release_memory_occupation": lambda requested: None,
            "/resume_memory_occupation": lambda requested: None,
        }

    def generate(self, body: Answer) -> Any:
        """One answer for a single prompt, else a list, with the completions of one prompt in succession."""
        given = body.get("input_ids") if body.get("input_ids") is not None else body.get("text")
        if given is None or body.get("stream"):
            raise self._refuse(
                "/generate of SGLang", translated("gonogo's stand-in for SGLang does not support this form of request")
            )
        single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
        prompts = [self._ids(one) for one in ([given] if single else given)]
        asked_sampling = body.get("sampling_params") or {}
        several = asked_sampling if isinstance(asked_sampling, list) else [asked_sampling] * len(prompts)
        answers: list[Answer] = []
        for sampling, group in _group_by_sampling(several, prompts):
            answers += self._generate_answers(group, self._verify(sampling), bool(body.get("return_logprob")))
        return answers[0] if single and len(answers) == 1 else answers

    def _verify(self, params: Answer) -> Answer:
        """``SamplingParams`` and its ``verify``."""
        for name in params:
            if name not in _SAMPLING:
                raise self._refuse(
                    f"SGLang's sampling parameter {name}",
                    translated("no SGLang release known to gonogo has this parameter"),
                )
        requested = _SAMPLING | {name: value for name, value in params.items() if value is not None}
        temperature, least = requested["temperature"], requested["min_new_tokens"]
        most = params.get("max_new_tokens", requested["max_new_tokens"])
        must = (
            (math.isfinite(temperature) and temperature >= 0.0,
             f"temperature must be a non-negative finite number, got {temperature}."),
            (0.0 < requested["top_p"] <= 1.0, f"top_p must be in (0, 1], got {requested['top_p']}."),
            (0.0 <= requested["min_p"] <= 1.0, f"min_p must be in [0, 1], got {requested['min_p']}."),
            (requested["top_k"] == -1 or requested["top_k"] >= 1,
             f"top_k must be -1 (disable) or at least 1, got {requested['top_k']}."),
            *((-2.0 <= requested[name] <= 2.0, f"{name} must be in [-2, 2], got {requested[name]}.")
              for name in ("frequency_penalty", "presence_penalty")),
            (0.0 < requested["repetition_penalty"] <= 2.0,
             f"repetition_penalty must be in (0, 2] (1.0 = no penalty), got {requested['repetition_penalty']}."),
            (least >= 0, f"min_new_tokens must be in [0, max_new_tokens], got {least}."),
            (most is None or most >= 0, f"max_new_tokens must be at least 0, got {most}."),
            (most is None or least <= most, f"min_new_tokens must be in [0, max_new_tokens({most})], got {least}."),
        )  # fmt: skip
        for right, message in must:
            if not right:
                raise BadRequest(message)
        return {**requested, "max_new_tokens": _DEFAULT_MAX_NEW_TOKENS if most is None else most}

    def _generate_answers(
        self, prompts: list[list[int]], sampling_params: Answer, return_logprob: bool
    ) -> list[Answer]:
        requested = {
            "n": sampling_params["n"],
            "max_tokens": sampling_params["max_new_tokens"],
            "min_tokens": sampling_params["min_new_tokens"],
            "ignore_eos": sampling_params["ignore_eos"],
            "stop_token_ids": sampling_params["stop_token_ids"],
        }
        return [
            self._make_answer(str(number), ids, written, why, return_logprob)
            for number, (ids, written, why) in enumerate(self._write(prompts, requested))
        ]

    def _make_answer(
        self, name: str, prompt_token_ids: list[int], token_ids: list[int], finish_reason: str, return_logprob: bool
    ) -> Answer:
        ends = (
            {"type": "length", "length": len(token_ids)}
            if finish_reason == "length"
            else {"type": finish_reason, "matched": token_ids[-1]}
        )
        about: Answer = {
            "id": name,
            "finish_reason": ends,
            "prompt_tokens": len(prompt_token_ids),
            "completion_tokens": len(token_ids),
            "cached_tokens": 0,
            "weight_version": "default",
            "e2e_latency": 0.0,
        }
        if return_logprob:
            found = SyntheticLogprobs([0]).logprobs_of(token_ids, 0) or []
            about["output_token_logprobs"] = [
                [each[token].logprob, token, None] for token, each in zip(token_ids, found, strict=True)
            ]
        text = self._text(token_ids)
        return {"output_ids": token_ids, "meta_info": about, **({"text": text} if text is not None else {})}


def _group_by_sampling(sampling_params: list[Answer], prompts: list[list[int]]) -> list[tuple[Answer, list[list[int]]]]:
    """Prompts in order, grouped while their sampling parameters are equal: each group is one batch of the server."""
    groups: list[tuple[Answer, list[list[int]]]] = []
    for one, prompt in zip(sampling_params, prompts, strict=True):
        if not groups or groups[-1][0] != one:
            groups.append((one, []))
        groups[-1][1].append(prompt)
    return groups
