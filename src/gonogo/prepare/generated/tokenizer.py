"""Files of an untrained tokenizer with the published type, vocabulary size and ids of special tokens."""

from __future__ import annotations

import json
from typing import Any

from gonogo.evidence.published.models import TokenizerLayout
from gonogo.prepare.generated.sentencepiece import sentencepiece_model
from gonogo.prepare.generated.vocabulary import merges_for_layout, tokens_by_id, word_tokens

# The names under which the slow classes look for their sentencepiece file.
_MODEL_FILES = {
    "T5Tokenizer": "spiece.model", "MT5Tokenizer": "spiece.model", "XLMRobertaTokenizer": "sentencepiece.bpe.model",
    "DebertaV2Tokenizer": "spm.model",
}  # fmt: skip
# The pre-tokenization regex of GPT-2 and Qwen, in the syntax of Rust's regex crate.
_SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_files(layout: TokenizerLayout, processor: str | None = None) -> dict[str, bytes]:
    """The tokenizer's files by name, for the fast and the slow class. ``processor`` is the processor's class."""
    singles, merges = (
        merges_for_layout(layout) if layout.kind in ("bytes", "pieces", "clip") else (word_tokens(layout), [])
    )
    tokens = tokens_by_id(layout, [*singles, *("".join(merge) for merge in merges)])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    files = {
        "tokenizer.json": _json_bytes(_tokenizer_json(layout, tokens, vocabulary, merges)),
        "tokenizer_config.json": _json_bytes(_tokenizer_config(layout, processor)),
        "special_tokens_map.json": _json_bytes(_special_tokens_by_role(layout)),
    }
    if layout.kind in ("bytes", "clip"):
        special = layout.special_tokens()
        apart = layout.class_name in ("Qwen2Tokenizer", "WhisperTokenizer")  # these add their special tokens themselves
        own = {token: number for token, number in vocabulary.items() if not (apart and number in special)}
        files["vocab.json"] = _json_bytes(own)
        lines = ["#version: 0.2", *(" ".join(merge) for merge in merges)]
        files["merges.txt"] = "\n".join([*lines, ""]).encode()
    elif layout.kind == "words":
        files["vocab.txt"] = "\n".join([*tokens, ""]).encode()
    else:
        files[_MODEL_FILES.get(layout.class_name, "tokenizer.model")] = sentencepiece_model(layout, tokens)
    return files


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=None if len(value) > 100 else 2).encode()


def _tokenizer_json(
    layout: TokenizerLayout, tokens: list[str], vocabulary: dict[str, int], merges: list[tuple[str, str]]
) -> dict[str, Any]:
    """The content of ``tokenizer.json``."""
    added = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": token not in layout.plain}
        for number, token in layout.special_tokens().items()
    ]  # fmt: skip
    parts = dict(_PARTS[layout.kind])
    if layout.kind == "words":
        parts["normalizer"] = parts["normalizer"] | {"lowercase": layout.lower}
    model: dict[str, Any]
    if layout.kind == "unigram":
        unknown = vocabulary.get(layout.unk or "", 0)
        model = {"type": "Unigram", "unk_id": unknown, "vocab": [[token, _token_score(token)] for token in tokens]}
    elif layout.kind == "words":
        model = {"type": "WordPiece", "unk_token": layout.unk, "continuing_subword_prefix": "##",
                 "max_input_chars_per_word": 100, "vocab": vocabulary}  # fmt: skip
    else:
        pieces = layout.kind == "pieces"
        model = {"type": "BPE", "dropout": None, "unk_token": layout.unk if layout.kind != "bytes" else None,
                 "continuing_subword_prefix": None,
                 "end_of_word_suffix": "</w>" if layout.kind == "clip" else None, "fuse_unk": pieces,
                 "byte_fallback": pieces, "vocab": vocabulary,
                 "merges": [f"{first} {second}" for first, second in merges]}  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **parts,
        "post_processor": _post_processor(layout, vocabulary) or parts["post_processor"],
        "model": model,
    }


def _token_score(token: str) -> float:
    return -20.0 if token.startswith("<") else -10.0 / (1 + len(token))


def _post_processor(layout: TokenizerLayout, vocabulary: dict[str, int]) -> dict[str, Any] | None:
    """The post-processor that adds special tokens before and after a text; None if there are none."""
    before, after = (layout.bos if layout.add_bos else None), (layout.eos if layout.add_eos else None)
    if layout.cls is not None:
        before, after = layout.cls, layout.sep
    elif layout.kind == "clip":
        before, after = layout.bos, layout.eos
    if before is None and after is None:
        return None
    single: list[Any] = [{"Sequence": {"id": "A", "type_id": 0}}]
    second: list[Any] = [{"Sequence": {"id": "B", "type_id": 1}}]
    if before is not None:
        single.insert(0, {"SpecialToken": {"id": before, "type_id": 0}})
    if after is not None:
        single.append({"SpecialToken": {"id": after, "type_id": 0}})
        second.append({"SpecialToken": {"id": after, "type_id": 1}})
    named = {token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in (before, after) if token}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *second], "special_tokens": named}


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_PARTS: dict[str, dict[str, Any]] = {
    "bytes": {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _SPLIT_PATTERN}, "behavior": "Isolated", "invert": False},
            _BYTE_LEVEL]},
        "post_processor": _BYTE_LEVEL,
        "decoder": _BYTE_LEVEL,
    },
    "pieces": {
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    },
    "unigram": {
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": None,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    },
    "words": {
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    },
    "clip": {
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"}, "behavior": "Removed",
             "invert": True}, _BYTE_LEVEL]},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            _BYTE_LEVEL, {"type": "Replace", "pattern": {"String": "</w>"}, "content": " "}]},
    },
}  # fmt: skip


def _special_tokens_by_role(layout: TokenizerLayout) -> dict[str, Any]:
    found = {"bos_token": layout.bos, "eos_token": layout.eos, "unk_token": layout.unk, "pad_token": layout.pad,
             "cls_token": layout.cls, "sep_token": layout.sep, "mask_token": layout.mask}  # fmt: skip
    return {role: token for role, token in found.items() if token is not None}


def _tokenizer_config(layout: TokenizerLayout, processor: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": layout.class_name,
        "model_max_length": layout.longest,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(number): {"content": token, "lstrip": False, "normalized": False, "rstrip": False,
                          "single_word": False, "special": token not in layout.plain}
            for number, token in layout.special_tokens().items()
        },
        **_special_tokens_by_role(layout),
        **layout.named,
    }  # fmt: skip
    if layout.kind == "pieces":
        config |= {"add_bos_token": layout.add_bos, "add_eos_token": layout.add_eos, "legacy": False}
    if layout.inputs:
        config["model_input_names"] = layout.inputs
    if layout.kind == "words":
        config["do_lower_case"] = layout.lower
    if layout.named:
        config["extra_special_tokens"] = layout.named
    if processor is not None:
        config["processor_class"] = processor
    if (template := layout.chat_template) is not None:
        config["chat_template"] = template.rstrip("\n")
    return config
