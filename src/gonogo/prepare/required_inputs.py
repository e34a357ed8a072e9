"""What a launch will open, one by one: what it is, where it is named, whether it is here, what can be made of it."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from gonogo.finding import Text

Kind = Literal["model", "data", "media", "variable"]
State = Literal["here", "made", "can-be-made", "missing", "unknown"]


class RequiredInput(msgspec.Struct):
    """One thing that the launch opens or reads.

    ``name`` is as it is written: a hub name, a path, a variable; ``path`` is where it lies or would lie, None for a
    name of the hub. ``found`` says where it is, ``why`` what it can be made of, or why not.
    """

    kind: Kind
    name: str
    place: str = ""
    """``file:line`` that names it; empty where a rehearsal has shown it."""
    path: str | None = None
    state: State = "unknown"
    found: str | None = None
    why: Text | None = None
    parts: dict[str, bool] = {}
    """Of a model: configuration, tokenizer, processor, chat template, and whether each is here or made."""
    columns: tuple[str, ...] = ()
    """Of a data set: the columns that the program reads, as far as its files tell."""
    format: str | None = None
    """Of a data set: the format of its rows."""
    subset: str | None = None
    """Of a data set of the hub: the configuration that is asked for."""
    splits: tuple[str, ...] = ()
    rows: int = 0
    """Of a data set: the fewest rows for the parts of it that are asked for; 0 where it is asked for whole."""
    separator: str = ""
    """Of a file of data: what separates its columns, where that is told."""

    suffix: str = ""
    """Of a folder of data: how the names of the files end that the program was seen to look for in it."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two the same."""
        return self.kind, self.path or self.name.lower()


class PrepareOptions(msgspec.Struct, frozen=True):
    """What the user chose: how many rows of how many tokens, and which model stands for a path that names none."""

    rows: int = 64
    tokens: int | None = None
    models: dict[str, str] = {}
    """By the path or name that the launch has (``*`` for all that are not known): a published model's name."""
    columns: dict[str, tuple[str, ...]] = {}
    """By data set (``*`` for all): columns that the program was seen to read."""
    rows_of: dict[tuple[str, str], int] = {}
    """By ``RequiredInput.key``: of a data set that the program was seen to want more rows of."""


_MODEL_OPTION = re.compile(
    r"(?:.*_)?(?:model|model_name|model_path|model_id|model_dir|model_name_or_path|base_model|llm_path|vision_tower"
    r"|tokenizer|tokenizer_name|tokenizer_path|tokenizer_name_or_path|pretrain|reward_pretrain|adapter_name_or_path"
    r"|processor_name_or_path|processor_path|actor_model_path|teacher_model_name_or_path|text_encoder)$"
)
_NON_MODEL_OPTION_PATTERN = re.compile(
    r"output|save|push|hub_|type|class|dtype|resume|logging|cache|revision|max|kwargs"
)
_DATA_OPTION = re.compile(
    r"(?:.*_)?(?:data|dataset|datasets|data_path|data_paths|dataset_path|dataset_name|dataset_id|train_data|train_file"
    r"|train_files|train_dataset|train_data_path|training_data|eval_data|eval_file|eval_dataset|eval_data_path|val_data"
    r"|val_files?|validation_files?|test_file|val_dataset|prompt_data|dataset_mixer|data_file|data_files|train_data_file"
    r"|data_file_paths?|train_file_paths?|eval_file_paths?)$"
)
_NON_DATA_OPTION_PATTERN = re.compile(
    r"num|size|split|config|output|save|cache|type|format|ratio|key|field|column|kwargs|seed|shuffle"
)
_MEDIA_OPTION = re.compile(r"(?:.*_)?(?:image|images|media|video|videos|audio)_(?:folder|dir|root|path)s?$")


class NamedInput(msgspec.Struct, frozen=True):
    """Something that the run's files name. ``value`` is None where the files don't settle it."""

    kind: Kind
    value: str | None
    place: str
    option: str = ""
    is_hub: bool = False
    """It is surely a name of the hub, or nothing: no path."""
    subset: str | None = None
    split: str | None = None
    entry: dict[str, Any] | None = None
    """Of a data set in a list of them: all that the file says of it (``{path: …, type: …}``)."""


def kind_of_option(name: str) -> Kind | None:
    """What an argument of that name names, by what scripts call it."""
    *above, name = name.lower().split(".")
    if above and name in ("path", "name", "dir"):  # Hydra's model.path=…
        name = f"{above[-1]}_{name}"
    if _MEDIA_OPTION.match(name):
        return "media"
    if _MODEL_OPTION.match(name) and not _NON_MODEL_OPTION_PATTERN.search(name):
        return "model"
    if _DATA_OPTION.match(name) and not _NON_DATA_OPTION_PATTERN.search(name):
        return "data"
    return None
