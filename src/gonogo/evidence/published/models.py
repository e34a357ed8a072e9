"""Published models by name: configuration, tokenizer layout, processor files. Contains no weights."""

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
"""Organizations on ModelScope that mirror models of others under the same name (``LLM-Research/Meta-Llama-3.1-8B``).

In ms-swift's list of models, all 146 of theirs have the same name as the original.
"""


class PublishedModel(msgspec.Struct, frozen=True):
    """A published model. ``tokenizer`` names a layout, None if the model has none."""

    name: str
    config: dict[str, Any]
    source: str
    """The public URL of its configuration."""
    tokenizer: str | None = None

    @property
    def model_type(self) -> str:
        """transformers' name for its architecture; empty for a model of diffusers."""
        return str(self.config.get("model_type", ""))


class TokenizerLayout(msgspec.Struct, frozen=True, rename={"class_name": "class"}):
    """Facts about a tokenizer, without its vocabulary: the number of tokens, and which of them are special."""

    kind: str
    """``bytes`` (byte-level BPE), ``pieces`` (sentencepiece BPE), ``unigram``, ``words`` (WordPiece), ``clip``."""
    size: int
    """Total number of tokens."""
    special: list[list[Any]]
    """Runs of special tokens: the first id and the texts; or a text pattern with its first number, count and step."""
    class_name: str
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    unk: str | None = None
    cls: str | None = None
    """The token that an encoder puts before a text; ``sep`` comes after it, ``mask`` replaces tokens to predict."""
    sep: str | None = None
    mask: str | None = None
    lower: bool = True
    """Whether WordPiece lower-cases its input."""
    template: str | None = None
    """The name of its chat template."""
    templated: str | None = None
    """A pattern for the names of models published with the template; None: all are. Base models often have none."""
    longest: int = 1024
    """The maximum length that it is meant for, in tokens."""
    add_bos: bool = False
    add_eos: bool = False
    plain: list[str] = []
    """The special tokens that are kept when text is decoded."""
    inputs: list[str] = []
    """The ``model_input_names`` in its file; if empty, those of its class, which may include ``token_type_ids``."""
    named: dict[str, str] = {}
    """Additional tokens that its class defines by name."""

    def special_tokens(self) -> dict[int, str]:
        """The special tokens by id."""
        found: dict[int, str] = {}
        for first, texts, *numbered in self.special:
            if numbered:
                start, count, step = (*numbered, 1)[:3]
                texts = [texts.format(start + number * step) for number in range(count)]
            found.update(enumerate(texts, first))
        return found

    @property
    def chat_template(self) -> str | None:
        """The chat template's Jinja source; None if there is none."""
        return chat_template(self.template) if self.template else None


@cache
def _models_by_name() -> dict[str, PublishedModel]:
    """Keyed by the name in lower case."""
    read = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return {
        name.lower(): PublishedModel(name, row["config"], read["sources"][row["source"]], row.get("tokenizer"))
        for row in read["models"]
        for name in row["names"]
    }


def published_model(name: str) -> PublishedModel | None:
    """The model of that name on the Hub (``Qwen/Qwen2.5-7B``), or that a folder is named after; None if unknown."""
    known = _models_by_name().get(name.strip("/").lower())
    if known is not None or ("/" in name.strip("/") and not _is_path(name) and not _is_mirror_owner(name)):
        return known
    last = name.rstrip("/").rpartition("/")[2].lower()
    found = [model for key, model in _models_by_name().items() if key.rpartition("/")[2] == last]
    same = all(model.config == found[0].config for model in found)
    return found[0] if found and same else None


def _is_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or name.strip("/").count("/") > 1 or name.endswith("/")


def _is_mirror_owner(name: str) -> bool:
    """Whether a name's owner on the Hub mirrors other owners' models."""
    return name.partition("/")[0].lower() in _MIRRORS


def similar_model_names(name: str) -> list[str]:
    """Names in the table similar to one that isn't in it."""
    import difflib

    last = {key.rpartition("/")[2]: model.name for key, model in _models_by_name().items()}
    return [last[key] for key in difflib.get_close_matches(name.rpartition("/")[2].lower(), last, 3, 0.7)]


@cache
def tokenizer_layout(name: str) -> TokenizerLayout:
    """The layout of that name. Raises KeyError if there is none."""
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
    """The configuration as the library writes it, with all keys of its class: the table only has distinctive ones.

    Published code reads the other keys too, and in some releases a key missing from the file is a missing attribute.
    """
    usual = _load_config_keys().get(str(model.config.get("model_type")), {"keys": {}})["keys"]
    return {**model.config, **{key: value for key, value in usual.items() if key not in model.config}}


def processor_files(model_type: str) -> dict[str, dict[str, Any]]:
    """The processor's files for an architecture, by file name; empty if it has none, or none is known."""
    read = json.loads((FOLDER / "processors.json").read_text(encoding="utf-8"))
    files: dict[str, dict[str, Any]] = copy.deepcopy(read.get(model_type, {}))
    return files
