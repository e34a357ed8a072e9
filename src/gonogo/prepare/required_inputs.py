"""The inputs that a launch opens: what each is, where it is named, whether it is here, how it can be generated."""

from __future__ import annotations

import os
import re
from typing import Any, Literal

import msgspec

from gonogo.finding import Text
from gonogo.prepare.generated.array_files import ArrayLayout

Kind = Literal["model", "data", "media", "variable"]
State = Literal["here", "made", "can-be-made", "missing", "unknown"]


class RequiredInput(msgspec.Struct):
    """One input that the launch opens or reads.

    ``name`` is as written: a Hub name, a path, a variable; ``path`` is where it is or would be, None for a Hub name.
    ``found`` is where it was found, ``why`` how it can be generated, or why not.
    """

    kind: Kind
    name: str
    place: str = ""
    """``file:line`` that names it; empty if a rehearsal found it."""
    path: str | None = None
    state: State = "unknown"
    found: str | None = None
    why: Text | None = None
    parts: dict[str, bool] = {}
    """For a model: configuration, tokenizer, processor, chat template, and whether each is here or generated."""
    columns: tuple[str, ...] = ()
    """For a dataset: the columns that the program reads, as far as the files show."""
    format: str | None = None
    """For a dataset: the format of its rows."""
    subset: str | None = None
    """For a Hub dataset: the requested configuration."""
    splits: tuple[str, ...] = ()
    rows: int = 0
    """For a dataset: the fewest rows that the requested slices need; 0 if it isn't sliced."""
    separator: str = ""
    """For a data file: the separator between columns, if known."""

    suffix: str = ""
    """Of a folder of data: how the names of the files end that the program was seen to look for in it."""
    layout: ArrayLayout | None = None
    """For files of arrays: the dtype and shape of each."""
    stated: bool = False
    """Whether the user has stated the layout or the columns (``--data``)."""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the input."""
        return self.kind, self.path or self.name.lower()


class PrepareOptions(msgspec.Struct, frozen=True):
    """The user's choices: how many rows of how many tokens, and which models replace unknown names."""

    rows: int = 64
    tokens: int | None = None
    models: dict[str, str] = {}
    """The published model for each path or name in the launch (``*`` for all unknown ones)."""
    columns: dict[str, tuple[str, ...]] = {}
    """The columns that the program was seen to read, by dataset (``*`` for all)."""
    rows_of: dict[tuple[str, str], int] = {}
    """The number of rows for datasets of which the program needed more, by ``RequiredInput.key``."""


_MODEL_OPTION_PATTERN = re.compile(
    r"(?:.*_)?(?:model|model_name|model_path|model_id|model_dir|model_name_or_path|base_model|llm_path|vision_tower"
    r"|tokenizer|tokenizer_name|tokenizer_path|tokenizer_name_or_path|pretrain|reward_pretrain|adapter_name_or_path"
    r"|hf_assets_path|processor_name_or_path|processor_path|actor_model_path|teacher_model_name_or_path|text_encoder)$"
)
_NON_MODEL_OPTION_PATTERN = re.compile(
    r"output|save|push|hub_|type|class|dtype|resume|logging|cache|revision|max|kwargs"
)
_DATA_OPTION_PATTERN = re.compile(
    r"(?:.*_)?(?:data|dataset|datasets|data_path|data_paths|dataset_path|dataset_name|dataset_id|train_data|train_file"
    r"|train_files|train_dataset|train_data_path|training_data|eval_data|eval_file|eval_dataset|eval_data_path|val_data"
    r"|val_files?|validation_files?|test_file|val_dataset|prompt_data|dataset_mixer|data_file|data_files|train_data_file"
    r"|data_file_paths?|train_file_paths?|eval_file_paths?)$"
)
_NON_DATA_OPTION_PATTERN = re.compile(
    r"num|size|split|config|output|save|cache|type|format|ratio|key|field|column|kwargs|seed|shuffle"
)
_VOCABULARY_OPTION_PATTERN = re.compile(r"(?:.*_)?(?:vocab|merges?)_file$")
_MEDIA_OPTION_PATTERN = re.compile(r"(?:.*_)?(?:image|images|media|video|videos|audio)_(?:folder|dir|root|path)s?$")


INDEXED_TOKENS = "indexed-tokens"
"""The ``format`` of token ids in two files, of which ``path`` is the prefix."""
VOCABULARIES = {"vocab.json": "gpt2", "merges.txt": "gpt2", "vocab.txt": "bert-base-uncased"}
"""The published model whose file is generated where the launch names no model with it; the key is the ``format``."""


def vocabulary_file(option: str, path: str) -> str | None:
    """Which file of a tokenizer an option names: ``vocab.json``, ``merges.txt`` (GPT-2's), ``vocab.txt`` (BERT's).

    None if it names something else, or a file of another kind, such as sentencepiece's.
    """
    if not _VOCABULARY_OPTION_PATTERN.match(option.lower()):
        return None
    if "merge" in option.lower():
        return "merges.txt"
    return {".json": "vocab.json", ".txt": "vocab.txt"}.get(os.path.splitext(path)[1].lower())


class NamedInput(msgspec.Struct, frozen=True):
    """An input that the run's files name. ``value`` is None if the files don't determine it."""

    kind: Kind
    value: str | None
    place: str
    option: str = ""
    is_hub: bool = False
    """Whether it can only be a Hub name, not a path."""
    subset: str | None = None
    split: str | None = None
    entry: dict[str, Any] | None = None
    """For a dataset in a list of datasets: the whole entry (``{path: …, type: …}``)."""


def kind_of_option(name: str) -> Kind | None:
    """The kind of input that an argument names, guessed from the argument's name."""
    *above, name = name.lower().split(".")
    if above and name in ("path", "name", "dir"):  # Hydra's model.path=…
        name = f"{above[-1]}_{name}"
    if _MEDIA_OPTION_PATTERN.match(name):
        return "media"
    if _MODEL_OPTION_PATTERN.match(name) and not _NON_MODEL_OPTION_PATTERN.search(name):
        return "model"
    if _VOCABULARY_OPTION_PATTERN.match(name):
        return "data"
    if _DATA_OPTION_PATTERN.match(name) and not _NON_DATA_OPTION_PATTERN.search(name):
        return "data"
    return None
