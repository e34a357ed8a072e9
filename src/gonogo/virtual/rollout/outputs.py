"""vLLM's output objects (vllm/outputs.py, vllm/logprobs.py), with the attributes that trainers read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class RequestOutputKind(enum.Enum):
    """How much of the output each step returns."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class Logprob:
    """One token's log-probability and rank."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    """One completion. Its text is decoded on access."""

    index: int
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str
    decode: Callable[[list[int]], str] = field(repr=False, default=lambda ids: "")
    cumulative_logprob: float | None = None
    stop_reason: Any = None
    lora_request: Any = None
    routed_experts: Any = None

    @property
    def text(self) -> str:
        """The completion without special tokens."""
        return self.decode(self.token_ids)

    def finished(self) -> bool:
        """Always True: nothing is streamed."""
        return True


@dataclass
class RequestOutput:
    """One prompt's completions."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: Any = None
    finished: bool = True
    metrics: Any = None
    lora_request: Any = None
    num_cached_tokens: int | None = None
    encoder_prompt: str | None = None
    encoder_prompt_token_ids: list[int] | None = None


class SyntheticLogprobs:
    """Log-probabilities of synthetic tokens: the written one's first, then the requested number of others."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._made: dict[tuple[int, int], dict[int, Logprob]] = {}

    def logprobs_of(self, token_ids: Sequence[int], top_logprobs: int | None) -> list[dict[int, Logprob]] | None:
        """One dictionary per token, or None if none were requested."""
        return None if top_logprobs is None else [self._logprobs_of_token(token, top_logprobs) for token in token_ids]

    def _logprobs_of_token(self, token: int, top_logprobs: int) -> dict[int, Logprob]:
        key = (token, top_logprobs)
        if key not in self._made:
            beside = [one for one in self._tokens[: top_logprobs + 1] if one != token][: max(top_logprobs, 0)]
            found = {token: Logprob(-1.0, 1)}
            found.update((one, Logprob(-2.0 - index, index + 2)) for index, one in enumerate(beside))
            self._made[key] = found
        return dict(self._made[key])  # a copy, since trainers may modify it
