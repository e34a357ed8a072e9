"""The program of ``gonogo plan --task``: runs the script generated for the user on samples of the requested lengths.

The script runs unmodified, with TRL's trainers. Two things are synthetic: its data, and a tokenizer that turns each
word into one token, so that a sample has exactly the requested length.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import runpy
import sys
from collections.abc import Iterator
from typing import Any

from gonogo.virtual.tracing.work import counting_work

_VOCABULARY_WORD_COUNT = 500
"""Number of distinct words in the samples, if the model's vocabulary is large enough."""
_PAD, _END = "<pad>", "<end>"
_UNLIMITED_BYTES = 1 << 45
_CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['content'] + ' ' }}{% if m['role'] == 'assistant' %}{{ '<end> ' }}{% endif %}"
    "{% endfor %}"
)


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split the command line into the program's own arguments and the script's."""
    parser = argparse.ArgumentParser(prog="gonogo.virtual.measuring.post_training", allow_abbrev=False)
    parser.add_argument("--script", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--prompt-len", type=int, required=True)
    parser.add_argument("--completion-len", type=int, required=True)
    parser.add_argument("--vocabulary", type=int, default=_VOCABULARY_WORD_COUNT + 2)
    parser.add_argument("--cache-bytes", type=int, default=0)
    return parser.parse_known_args(arguments)


def main(arguments: list[str]) -> None:
    """Create the samples, and run the script on them."""
    given, rest = parse(arguments)
    words = sample_vocabulary_size(given.vocabulary)
    data = os.path.join(os.path.dirname(given.script), "data.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for row in synthetic_rows(given.task, given.rows, given.prompt_len, given.completion_len, words):
            file.write(f"{json.dumps(row)}\n")
    _count_training()
    _disable_hashing()
    if given.cache_bytes:
        _enlarge_engine_cache(given.cache_bytes)
    sys.argv = [given.script, "--data", data, *rest]
    _replace_tokenizer(os.path.dirname(given.script), words)
    runpy.run_path(given.script, run_name="__main__")


def sample_vocabulary_size(vocabulary: int) -> int:
    """Number of distinct words in the samples, leaving room for the padding and end tokens."""
    return max(1, min(_VOCABULARY_WORD_COUNT, vocabulary - 2))


def synthetic_rows(
    task: str, count: int, prompt_tokens: int, completion_tokens: int, words: int
) -> Iterator[dict[str, Any]]:
    """Yield ``count`` samples of the given lengths in tokens, with ``words`` distinct words."""
    for number in range(count):
        requested, answer, worse = (
            _synthetic_text(length, number + more, words)
            for more, length in enumerate((prompt_tokens, completion_tokens, completion_tokens))
        )
        if task in ("grpo", "rloo"):
            yield {"prompt": requested, "answer": "w1"}
        elif task == "dpo":
            yield {"prompt": requested, "chosen": answer, "rejected": worse}
        elif task == "rm":  # TRL appends an EOS token to each, and drops samples that become too long
            chosen, rejected = (f"{requested} {text}".rpartition(" ")[0] for text in (answer, worse))
            yield {"chosen": chosen, "rejected": rejected}
        elif task == "kto":
            yield {"prompt": requested, "completion": answer, "label": number % 2 == 0}
        else:
            turns = (("user", requested), ("assistant", answer))
            yield {"messages": [{"role": role, "content": text} for role, text in turns]}


def _synthetic_text(length: int, start: int, words: int) -> str:
    return " ".join(f"w{(7 * index + start) % words}" for index in range(length))


def make_word_tokenizer(folder: str, words: int) -> Any:
    """A tokenizer that turns each word into one token."""
    from transformers import PreTrainedTokenizerFast

    known = {f"w{number}": number for number in range(words)} | {_PAD: words, _END: words + 1}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    described = {
        "version": "1.0",
        "added_tokens": [{"id": known[name], "content": name, **special} for name in (_PAD, _END)],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": known, "unk_token": "w0"},
    }
    file = os.path.join(folder, "words")
    with open(file, "w", encoding="utf-8") as stream:
        json.dump(described, stream)
    made: Any = PreTrainedTokenizerFast(tokenizer_file=file, pad_token=_PAD, eos_token=_END)
    made.chat_template = _CHAT_TEMPLATE
    return made


def _replace_tokenizer(folder: str, words: int) -> None:
    """Make ``AutoTokenizer`` and ``AutoProcessor`` return the synthetic tokenizer for every model."""
    import transformers

    made = make_word_tokenizer(folder, words)
    for owner in (transformers.AutoTokenizer, transformers.AutoProcessor):
        owner.from_pretrained = staticmethod(lambda *_, **__: made)


def _count_training() -> None:
    """Count the FLOPs of ``Trainer.train``, if a counter is active."""
    from transformers import Trainer

    original: Any = Trainer.train

    @functools.wraps(original)
    def train_with_counting(*arguments: Any, **requested: Any) -> Any:
        with counting_work():
            return original(*arguments, **requested)

    setattr(Trainer, "train", train_with_counting)  # noqa: B010  mypy knows it as a method


def _disable_hashing() -> None:
    """Replace TRL's hash of the model's weights, which names a cache file: the weights don't exist here."""
    for module in ("dpo_trainer", "kto_trainer"):
        trainer = importlib.import_module(f"trl.trainer.{module}")
        if hasattr(trainer, "hash_module"):
            setattr(trainer, "hash_module", lambda *_: "none")  # noqa: B010  mypy knows it as a function


def _enlarge_engine_cache(cache: int) -> None:
    """Give the engine a cache of this size whatever the GPU's memory: it is accounted for separately from the
    trainer."""
    import torch

    stand_in: Any = importlib.import_module("vllm")  # the rehearsal's stand-in: vllm need not be installed
    cuda: Any = torch.cuda
    original = stand_in.LLM.__init__

    @functools.wraps(original)
    def init_with_fixed_cache(engine: Any, *arguments: Any, **requested: Any) -> None:
        mem_get_info = cuda.mem_get_info
        cuda.mem_get_info = lambda *_: (_UNLIMITED_BYTES, mem_get_info()[1])
        try:
            original(engine, *arguments, **requested | {"kv_cache_memory_bytes": cache, "gpu_memory_utilization": 1.0})
        finally:
            cuda.mem_get_info = mem_get_info

    stand_in.LLM.__init__ = init_with_fixed_cache


if __name__ == "__main__":
    main(sys.argv[1:])
