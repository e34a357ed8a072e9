"""The model that a config describes: its class in transformers, and the model built from it."""

from __future__ import annotations

import inspect
import json
import os
from dataclasses import dataclass
from typing import Any

from gonogo.finding import UserError, translated

_TASK_MAPPINGS = (
    "MODEL_FOR_MULTIMODAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_CTC_MAPPING",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
)
"""Auto mappings to search for a class that the config does not name, in order."""


@dataclass(frozen=True)
class LocatedModel:
    """A model's config, its class, and the folder that may contain its processor."""

    config: Any
    model_class: Any
    folder: str | None

    @property
    def forward_parameters(self) -> dict[str, Any]:
        """The parameters of the model's forward, by name."""
        return dict(inspect.signature(self.model_class.forward).parameters)


def read_model(path: str) -> LocatedModel:
    """The model in a folder or ``config.json``. Raises UserError if it can't be trained."""
    from transformers import AutoConfig

    folder = path if os.path.isdir(path) else None
    file = os.path.join(path, "config.json") if folder else path
    with open(file, encoding="utf-8") as stream:
        stated = json.load(stream)
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=_has_remote_code(stated, folder))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            translated("{file}: transformers can't read it as a model's configuration: {error}").format(
                file=file, error=str(error).strip().partition("\n")[0]
            )
        ) from error
    return _trainable_part(LocatedModel(config, _model_class(config, stated, folder, file), folder), file)


def _has_remote_code(config_dict: dict[str, Any], folder: str | None) -> bool:
    return folder is not None and isinstance(config_dict.get("auto_map"), dict)


def _model_class(config: Any, config_dict: dict[str, Any], folder: str | None, file: str) -> Any:
    import transformers
    from transformers.models.auto import modeling_auto

    if _has_remote_code(config_dict, folder):
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        for name, reference in config_dict["auto_map"].items():
            if name.startswith("AutoModel"):
                return get_class_from_dynamic_module(reference, folder)
    for name in config_dict.get("architectures") or ():
        named = getattr(transformers, str(name), None)
        if named is not None and _has_forward(named):
            return named
    for task in _TASK_MAPPINGS:
        mapping = getattr(modeling_auto, task, None)
        if mapping is not None and type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    raise UserError(
        translated(
            "{file}: transformers {version} has no model to train for model_type {kind}: name one in architectures"
        ).format(file=file, version=transformers.__version__, kind=config.model_type)
    )


def _has_forward(model_class: Any) -> bool:
    """True if the class has its own forward."""
    forward = getattr(model_class, "forward", None)
    return forward is not None and getattr(forward, "__name__", "") != "_forward_unimplemented"


def _trainable_part(located_model: LocatedModel, file: str) -> LocatedModel:
    """The model itself; if it has no forward of its own (only generate), its submodule that has one, such as an
    Omni model's thinker."""
    if _has_forward(located_model.model_class):
        return located_model
    import transformers

    thinker = getattr(located_model.config, "thinker_config", None)
    name = located_model.model_class.__name__.replace("ForConditionalGeneration", "ThinkerForConditionalGeneration")
    inner = getattr(transformers, name, None)
    if thinker is not None and inner is not None and _has_forward(inner):
        from gonogo.virtual.synthetic import notes

        notes.record_assumption(
            translated("the model has no forward of its own: it trains through its thinker, {name}").format(name=name)
        )
        return LocatedModel(thinker, inner, located_model.folder)
    raise UserError(
        translated("{file}: {name} has no forward: name a class that can be trained in architectures").format(
            file=file, name=located_model.model_class.__name__
        )
    )


def make_model(located_model: LocatedModel, arguments: Any) -> Any:
    """The model built from its config in the training dtype; under ZeRO-3 transformers partitions it during
    construction."""
    import torch

    dtype = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else torch.float32
    model = located_model.model_class._from_config(located_model.config, torch_dtype=dtype)
    return model.train()


def load_sharded_model(located_model: LocatedModel, sizes: dict[str, Any]) -> Any:
    """The model in fp32, divided among the ranks as it is loaded by transformers' ``DistributedConfig`` of ``sizes``.

    There is no checkpoint: each rank fills its own part, as it would with what it reads.
    """
    import torch
    from transformers.distributed import DistributedConfig

    model = located_model.model_class.from_pretrained(
        None,
        config=located_model.config,
        state_dict={},
        dtype=torch.float32,
        distributed_config=DistributedConfig(**sizes),
    )
    return model.train()
