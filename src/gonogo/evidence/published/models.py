"""Published models by name: configuration, layout of the tokenizer, processor files. Facts; no weights."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence import tables

FOLDER = Path(tables.__file__).with_name("published")

_MIRRORS = frozenset({"ai-modelscope", "llm-research"})
"""ModelScope's organizations that hold others' models under the same name (``LLM-Research/Meta-Llama-3.1-8B``).

Of the 146 that ms-swift's list of models has from them, none is called otherwise than the one it is a copy of.
"""


class PublishedModel(msgspec.Struct, frozen=True):
    """A model as it is published. ``tokenizer`` names a layout, None where it has none."""

    name: str
    config: dict[str, Any]
    source: str
    """The public address that its configuration is from."""
    tokenizer: str | None = None

    @property
    def model_type(self) -> str:
        """transformers' name for its architecture; empty for a model of diffusers."""
        return str(self.config.get("model_type", ""))


class TokenizerLayout(msgspec.Struct, frozen=True, rename={"class_name": "class"}):
    """What is known of a tokenizer but for its vocabulary: how many tokens, and which of them are special."""

    kind: str
    """``bytes`` (BPE of bytes), ``pieces`` (BPE of sentencepiece), ``unigram``, ``words`` (WordPiece), ``clip``."""
    size: int
    """Tokens in all."""
    special: list[list[Any]]
    """Runs of special tokens: the first one's id and their texts; or a pattern, its first number, count and step."""
    class_name: str
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    unk: str | None = None
    cls: str | None = None
    """What an encoder puts before a text; ``sep`` behind it, ``mask`` over what it shall guess."""
    sep: str | None = None
    mask: str | None = None
    lower: bool = True
    """Whether WordPiece takes capitals for small letters."""
    template: str | None = None
    """The name of its chat template."""
    templated: str | None = None
    """What the names of the models match that are published with it; None: all are. A base model often has none."""
    longest: int = 1024
    """The longest text that it is meant for, in tokens."""
    add_bos: bool = False
    add_eos: bool = False
    plain: list[str] = []
    """Which of the special ones are shown when text is decoded."""
    inputs: list[str] = []
    """What it gives for a text, where its file says so; else what its class does, ``token_type_ids`` too for some."""
    named: dict[str, str] = {}
    """Further tokens that its class knows by a name."""

    def special_tokens(self) -> dict[int, str]:
        """The special tokens by their ids."""
        found: dict[int, str] = {}
        for first, texts, *numbered in self.special:
            if numbered:
                start, count, step = (*numbered, 1)[:3]
                texts = [texts.format(start + number * step) for number in range(count)]
            found.update(enumerate(texts, first))
        return found

    @property
    def chat_template(self) -> str | None:
        """The Jinja text of the chat template; None where it has none."""
        return chat_template(self.template) if self.template else None


@cache
def _table() -> dict[str, PublishedModel]:
    """By the name in small letters."""
    read = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return {
        name.lower(): PublishedModel(name, row["config"], read["sources"][row["source"]], row.get("tokenizer"))
        for row in read["models"]
        for name in row["names"]
    }


def published_model(name: str) -> PublishedModel | None:
    """The model of that hub name (``Qwen/Qwen2.5-7B``), or of a folder that is called like one; None for any other."""
    known = _table().get(name.strip("/").lower())
    if known is not None or ("/" in name.strip("/") and not _is_path(name) and not _is_mirrored(name)):
        return known
    last = name.rstrip("/").rpartition("/")[2].lower()
    found = [model for key, model in _table().items() if key.rpartition("/")[2] == last]
    same = all(model.config == found[0].config for model in found)
    return found[0] if found and same else None


def _is_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or name.strip("/").count("/") > 1 or name.endswith("/")


def _is_mirrored(name: str) -> bool:
    return name.partition("/")[0].lower() in _MIRRORS


def similar_model_names(name: str) -> list[str]:
    """Names of the table that look like one that is not there."""
    import difflib

    last = {key.rpartition("/")[2]: model.name for key, model in _table().items()}
    return [last[key] for key in difflib.get_close_matches(name.rpartition("/")[2].lower(), last, 3, 0.7)]


@cache
def tokenizer_layout(name: str) -> TokenizerLayout:
    """The layout of that name. Raises KeyError where there is none."""
    read = json.loads((FOLDER / "tokenizers.json").read_text(encoding="utf-8"))
    return msgspec.convert(read[name], TokenizerLayout)


@cache
def chat_template(name: str) -> str:
    """The Jinja text of a chat template of that name."""
    return (FOLDER / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def _load_config_keys() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "config_keys.json").read_text(encoding="utf-8"))
    return found


def full_config(model: PublishedModel) -> dict[str, Any]:
    """The configuration as the library wrote it, with each key of its class: the table has what tells models apart.

    Published code reads the others too, and some releases have no attribute that the file doesn't name.
    """
    usual = _load_config_keys().get(str(model.config.get("model_type")), {"keys": {}})["keys"]
    return {**model.config, **{key: value for key, value in usual.items() if key not in model.config}}


def processor_files(model_type: str) -> dict[str, dict[str, Any]]:
    """The processor's files for an architecture, by file name; empty where it has none, or none is known."""
    read = json.loads((FOLDER / "processors.json").read_text(encoding="utf-8"))
    files: dict[str, dict[str, Any]] = copy.deepcopy(read.get(model_type, {}))
    return files
