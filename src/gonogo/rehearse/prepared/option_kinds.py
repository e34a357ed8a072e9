"""What an option names, by what it is called: a model, data, a folder of media."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gonogo.rehearse.prepared.required_inputs import Kind

_MODEL_OPTION = re.compile(
    r"(?:.*_)?(?:model|model_name|model_path|model_id|model_dir|model_name_or_path|base_model|llm_path|vision_tower"
    r"|tokenizer|tokenizer_name|tokenizer_path|tokenizer_name_or_path|pretrain|reward_pretrain|adapter_name_or_path"
    r"|processor_name_or_path|processor_path|actor_model_path|teacher_model_name_or_path|text_encoder)$"
)
_NO_MODEL = re.compile(r"output|save|push|hub_|type|class|dtype|resume|logging|cache|revision|max|kwargs")
_DATA_OPTION = re.compile(
    r"(?:.*_)?(?:data|dataset|datasets|data_path|data_paths|dataset_path|dataset_name|dataset_id|train_data|train_file"
    r"|train_files|train_dataset|train_data_path|training_data|eval_data|eval_file|eval_dataset|eval_data_path|val_data"
    r"|val_files?|validation_files?|test_file|val_dataset|prompt_data|dataset_mixer|data_file|data_files|train_data_file"
    r"|data_file_paths?|train_file_paths?|eval_file_paths?)$"
)
_NO_DATA = re.compile(r"num|size|split|config|output|save|cache|type|format|ratio|key|field|column|kwargs|seed|shuffle")
_MEDIA_OPTION = re.compile(r"(?:.*_)?(?:image|images|media|video|videos|audio)_(?:folder|dir|root|path)s?$")


class Named(msgspec.Struct, frozen=True):
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
    if _MODEL_OPTION.match(name) and not _NO_MODEL.search(name):
        return "model"
    if _DATA_OPTION.match(name) and not _NO_DATA.search(name):
        return "data"
    return None
