"""transformers' own ``generate``: the real loop, with tokens from synthetic completions, since there are no weights.

Otherwise, its choices among unknown scores would cycle through the vocabulary from the first ids, which are often
padding and EOS: a row of padding up to the limit, which no model generates and which makes some trainers fail.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.rollout import generation


def install(patches: Patches, mode: VirtualMode, lifecycle: Lifecycle) -> None:
    """Make sampling and greedy search take their tokens from a writer."""
    writers: dict[int, generation.CompletionWriter] = {}
    """By vocabulary size, since a reward model or teacher may have a different one."""

    def patch_sample(module: ModuleType) -> None:
        original = getattr(module.GenerationMixin, "_sample", None)
        if original is None:  # a release with another name for it
            return

        @functools.wraps(original)
        def sample(model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
            config = kwargs.get("generation_config")
            most = getattr(config, "max_length", None)
            if config is None or not isinstance(most, int):
                return original(model, input_ids, *args, **kwargs)
            vocabulary = _vocabulary_size(model)
            ends = _as_id_list(config.eos_token_id)
            if vocabulary not in writers:
                writers[vocabulary] = _make_completion_writer(lifecycle.seen.processing, vocabulary, ends, config)
            writer = writers[vocabulary]
            least = max(config.min_new_tokens or 0, (config.min_length or 0) - input_ids.shape[-1])
            limit = max(most - input_ids.shape[-1], 1)
            rows = [
                writer.write_completion(share, limit, least)[0]
                for share in writer.next_length_fractions(input_ids.shape[0])
            ]
            before, mode.next_tokens = mode.next_tokens, _StepTokens(rows, mode)
            try:
                return original(model, input_ids, *args, **kwargs)
            finally:
                mode.next_tokens = before

        patches.set(module.GenerationMixin, "_sample", sample)

    patches.on_undo(after_import("transformers.generation.utils", patch_sample))


class _StepTokens:
    """The next token of each row at every step, or None if the shape is not that of next-token logits."""

    def __init__(self, rows: list[list[int]], mode: VirtualMode) -> None:
        self._rows = rows
        self._mode = mode
        self._step = 0
        self._largest = max(max(row) for row in rows)

    def __call__(self, rows: int, classes: int) -> list[int] | None:
        if rows != len(self._rows) or classes <= self._largest:
            return None
        self._mode.ledger.assume(generation.ASSUMED)
        step, self._step = self._step, self._step + 1
        return [row[min(step, len(row) - 1)] for row in self._rows]


def _make_completion_writer(
    processing_class: Any, vocabulary: int, eos_token_ids: list[int], config: Any
) -> generation.CompletionWriter:
    tokens, eos = generation.ordinary_token_ids(processing_class, vocabulary)
    special = {*eos_token_ids, *_as_id_list(config.pad_token_id), *_as_id_list(config.bos_token_id)}
    plain = [token for token in tokens if token not in special and token < vocabulary]
    return generation.CompletionWriter(
        plain or tokens, eos if eos in eos_token_ids else next(iter(eos_token_ids), None)
    )


def _as_id_list(value: Any) -> list[int]:
    """A list of ids from one id, several, or None."""
    several = value if isinstance(value, list | tuple) else [value]
    return [one for one in several if isinstance(one, int)]


def _vocabulary_size(model: Any) -> int:
    config: Callable[..., Any] | None = getattr(model.config, "get_text_config", None)
    text = config(decoder=True) if config is not None else model.config
    return int(getattr(text, "vocab_size", 0) or 0)
