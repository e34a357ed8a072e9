"""Synthetic completions in the absence of weights: token ids of lengths from one to the limit, equal on every rank.

The tokens that a model would generate can't be known without its weights. Training depends on their number, whose
full range is covered: in each batch the first completion runs to the limit, the second ends at once, and the others
lie in between; of batches with one completion, every second one ends at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gonogo.evidence.rehearsal.record import SYNTHETIC_COMPLETIONS_ASSUMPTION
from gonogo.finding import Text

ASSUMED = Text(
    SYNTHETIC_COMPLETIONS_ASSUMPTION,
    "生成的回答：每批中第一个达到长度上限，第二个立即结束，其余介于两者之间；内容是任意的",
)
_DISTINCT_TOKENS = 509
"""Number of distinct tokens that are used."""


class CompletionWriter:
    """Writes completions. ``tokens`` are the token ids that may occur in one, ``eos_token_id`` ends it."""

    def __init__(self, tokens: Sequence[int], eos_token_id: int | None) -> None:
        self._tokens = tokens
        self._eos = eos_token_id
        self._batches = self._requests = 0

    def next_length_fractions(self, count: int) -> list[float]:
        """The length of each completion of the next batch, as a fraction of its maximum, from 1 to 0."""
        first = self._batches % 2 if count == 1 else 0
        self._batches += 1
        return [_quasi_random_fraction(first + index) for index in range(count)]

    def next_request_length_fraction(self) -> float:
        """The same for a request that arrives separately, as one of a batch."""
        self._requests += 1
        return _quasi_random_fraction(self._requests - 1)

    def start_batch(self) -> None:
        """Start a new batch of separate requests."""
        self._requests = 0

    def write_completion(
        self, share: float, max_tokens: int, min_tokens: int = 0, ignore_eos: bool = False
    ) -> tuple[list[int], str]:
        """Returns the token ids, at most ``max_tokens``, and the finish reason: ``length`` or ``stop``."""
        length = max_tokens if ignore_eos else max(round(share * max_tokens), min_tokens, 1)
        start = int(share * 1009)
        written = [self._tokens[(start + 7 * index) % len(self._tokens)] for index in range(length)]
        if length >= max_tokens or self._eos is None:
            return written, "length"
        written[-1] = self._eos
        return written, "stop"


def _quasi_random_fraction(index: int) -> float:
    """1, 0, then a sequence of numbers spread evenly in between."""
    if index < 2:
        return 1.0 - index
    return (index * 0.6180339887498949) % 1.0


def ordinary_token_ids(tokenizer: Any, vocabulary: int) -> tuple[list[int], int | None]:
    """Ordinary tokens, without a special meaning to model or processor, and the EOS token."""
    inner = getattr(tokenizer, "tokenizer", tokenizer)  # the tokenizer of a processor
    if inner is None:
        return list(range(min(vocabulary, _DISTINCT_TOKENS))), None
    special = {*getattr(inner, "all_special_ids", ()), *getattr(inner, "added_tokens_decoder", ())}
    whole = min(vocabulary, len(inner)) if vocabulary else len(inner)
    step = max(whole // _DISTINCT_TOKENS, 1)
    tokens = [one for one in range(0, whole, step) if one not in special][:_DISTINCT_TOKENS]
    return tokens or [0], getattr(inner, "eos_token_id", None)
