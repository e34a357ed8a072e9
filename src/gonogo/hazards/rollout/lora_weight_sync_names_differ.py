from gonogo.hazards.log_rule import Evidence, LoggedHazard, Sign
from gonogo.hazards.rule import Certainty, FailureLog, LoggedError, Pattern

_ADAPTER_NAMES_PATTERN = Pattern(r"base_layer|lora_[AB]|base_model|modules_to_save|\.default\.weight")
_SHAPE_PATTERN = Pattern(r"(?i)\bdimensions?\b|\bshapes?\b|size mismatch|\b\d-?D tensor")
_WEIGHT_LOADING_FRAMES = ("load_weights", "add_lora", "update_weights", "load_lora")
_WEIGHT_SYNC_FRAMES = (
    "sharding_manager",
    "update_params",
    "update_weights",
    "_update_weights",
    "_move_model_to_vllm",
    "sync_weights",
    "update_named_param",
)
_STARTS = ("init_model", "load_model", "get_model")
"""Functions that load an engine from a folder: an adapter's names are unknown there too, without any weight sync."""
_ANY_WEIGHT_PATTERN = Pattern(r"KeyError: '[\w.]+(?:weight|bias)'")
_ADAPTER_SETTING = r"(?i)lora|adapter"
_ADAPTER_PATTERN = Pattern(r"base_sync_done|enable_lora=True|TensorLoRARequest|LoraConfig\(|lora_rank\s*[=:]\s*[1-9]")


class LoraWeightSyncNamesDiffer(LoggedHazard):
    signs = (
        Sign(
            _ADAPTER_NAMES_PATTERN, types=("KeyError", "ValueError", "RuntimeError"), frames=(_WEIGHT_LOADING_FRAMES,)
        ),
        Sign(Pattern(r"KeyError: '[^']*(?:base_layer|lora_[AB]|base_model\.model)[^']*'")),
        Sign(
            Pattern(
                r"There is no module or parameter named '(?:base_model|[\w.]*lora)|is unsupported LoRA weight"
                r"|is not (?:a )?supported LoRA|While loading .*expected target modules in"
            )
        ),
        Sign(_ANY_WEIGHT_PATTERN, beside=_ADAPTER_PATTERN),
        Sign(_ANY_WEIGHT_PATTERN, beside=Pattern(r"peft_config="), certainty=Certainty.LIKELY),
        Sign(
            types=("KeyError", "ValueError", "AssertionError", "RuntimeError", ""),
            frames=(_WEIGHT_SYNC_FRAMES, ("peft_config",), _WEIGHT_LOADING_FRAMES),
        ),
        Sign(
            Pattern(r"KeyError: '(?:[\w.]+\.)?(?:embed_tokens|lm_head)\.weight'"),
            frames=(("rollout", "sharding_manager", "generate_sequences"),),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            Pattern(r"Call to add_lora method failed|add_lora.* failed|LoRA rank \d+ is greater than max_lora_rank"),
            certainty=Certainty.LIKELY,
        ),
    )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """Only possible if the engine was just being started: it may have been given an adapter instead of a model.

        None if only the frames match and the message is about shapes: then no name is unknown.
        """
        of_shapes = isinstance(evidence, LoggedError) and _SHAPE_PATTERN.search(evidence.message) is not None
        if sign.says is None and of_shapes and not (log.says(_ADAPTER_NAMES_PATTERN) or log.says(_ADAPTER_PATTERN)):
            return None
        if sign.says in (None, _ANY_WEIGHT_PATTERN) and not (
            log.says(_ADAPTER_NAMES_PATTERN) or log.says(_ADAPTER_PATTERN) or log.setup.mentions(_ADAPTER_SETTING)
        ):
            return Certainty.POSSIBLE  # trainers pass peft_config whether there is an adapter or not
        return Certainty.POSSIBLE if log.passes(*_STARTS) and not log.passes(*_WEIGHT_SYNC_FRAMES) else sign.certainty
