"""Recognizes AttributeErrors about names that a release of a training library renamed, moved or removed."""

from gonogo.hazards.environment._model_names import FAMILIES
from gonogo.hazards.rule import Certainty, FailureLog, LineMatch, LoggedError, Pattern

_DROPPED_PATTERN = Pattern(
    r"no attribute '?(?:_VALID_DICT_FIELDS|_update_causal_mask|_prepare_4d_causal_attention_mask\w*"
    r"|batch_encode_plus|_batch_encode_plus|encode_plus|prepare_seq2seq_batch|as_target_tokenizer|_switch_to_target_mode"
    r"|sanitize_special_tokens|all_special_tokens_extended|special_tokens_map_extended|_call_one"
    r"|_tie_or_clone_weights|_tie_encoder_decoder_weights|_supports_(?:sdpa|flash_attn_2|cache_class|static_cache)"
    r"|_set_default_torch_dtype|_set_default_dtype|is_parallelizable|to_bettertransformer|get_head_mask"
    r"|get_extended_attention_mask|invert_attention_mask|_pp_plan|_tp_plan|_tp_size|_load_state_dict_into_model"
    r"|_rotate_checkpoints|_sorted_checkpoints|_nested_gather|_gather_and_numpify|_activate_neftune|num_tokens"
    r"|_deactivate_neftune|prediction_loop|_inner_training_loop|_get_train_sampler|_wrap_model"
    r"|_n_gpu|adafactor|group_by_length|half_precision_backend|fp16_backend|fp16_opt_level|past_index|no_cuda"
    r"|per_gpu_train_batch_size|use_mps_device|save_safetensors|include_inputs_for_metrics|torchdynamo"
    r"|to_legacy_cache|from_legacy_cache|get_max_cache_shape|max_cache_len|max_batch_size|_seen_tokens|seen_tokens"
    r"|_get_initial_cache_position|_extract_past_from_model_output|_convert_to_standard_cache|_validate_model_class"
    r"|_retrieve_modality_inputs|_prepare_model_inputs|tokenizer_class|feature_extractor_class|optional_call_args)'?"
)
"""Attributes of transformers' public classes that a release between 4.40 and 5 dropped or renamed."""
_TYPE_OBJECT_PATTERN = Pattern(
    rf"type object '(?:(?:{FAMILIES})\w*|PreTrained\w+|Pretrained\w+|TrainingArguments|\w*Trainer"
    r"|GenerationMixin|GenerationConfig|\w*Cache|LoraConfig|Peft\w+|Accelerator\w*|Auto\w+)' has no attribute"
)
_MODEL_ATTRIBUTE_PATTERN = Pattern(rf"'(?:{FAMILIES})\w*' object has no attribute '(\w+)'")
_MODEL_ATTRIBUTE_LINE_PATTERN = Pattern(rf"^(?:AttributeError: )?'(?:{FAMILIES})\w*' object has no attribute '\w+'")
_TOKENIZER_ATTRIBUTE_PATTERN = Pattern(r"^\w*(?:Tokenizer\w*|TokenizersBackend|PythonBackend) has no attribute '?(\w+)")
"""The wording of transformers 5, without the word "object"."""
_LIBRARY_ATTRIBUTE_PATTERN = Pattern(
    r"'(?:Liger\w+|DeepSpeedZero\w+|BF16_Optimizer|FP16_Optimizer|DummyOptim)' object has no attribute '(?:train|eval"
    r"|\w+_proj|experts|gate|act_fn|variance_epsilon)'"
    r"|'(?:tensor|constexpr|block_type|JITFunction|CompiledKernel)' object has no attribute '\w+'"
)
"""Liger's replacements of model classes, newer optimizer methods, and triton's own objects (torch's are Tensor)."""
_RELEASE_INDEPENDENT_PATTERN = Pattern(
    r"no attribute '?(?:model|module|ds_\w+|no_sync|backward|step|grad|save_checkpoint|dtype|device|generate|loss"
    r"|logits|vllm_engine|hf_device_map|pad_token_id|zero_gather_\w+|_zero3_\w+)(?:'|$)"
)

RELEASE_MISMATCH_PATTERN = Pattern(
    r"Type resolution failed for <class '[\w.]+'>|Model architectures \[.*\] failed to be inspected"
    r"|name 'Pre[Tt]rainedConfig' is not defined|cannot import name '\w+'\s*$"
    r"|(?:EngineArgs|ServerArgs|SamplingParams|OpenAIServing\w+)\.__init__\(\) got an unexpected keyword argument"
)
"""Errors that mostly mean incompatible releases of two packages, but may have another cause."""
_FRAMEWORK_PATHS = (
    "openrlhf",
    "verl/",
    "trl/",
    "swift/",
    "llamafactory/",
    "unsloth",
    "nemo_rl",
    "open_instruct",
    "slime/",
)
_UNPACK_ERROR_PATTERN = Pattern(r"too many values to unpack \(expected 4\)")


def release_mismatch_certainty(error: LoggedError) -> Certainty | None:
    """The certainty that an exception is due to incompatible releases of packages; None if it isn't."""
    message, last = error.flat_message, error.innermost
    if _UNPACK_ERROR_PATTERN.search(message) and last is not None and "unpad_input(" in last.code:
        return Certainty.LIKELY  # flash-attn 2.7 returns five values
    if not RELEASE_MISMATCH_PATTERN.search(message):
        return None
    called = "unexpected keyword" in message and error.passes(*_FRAMEWORK_PATHS)
    return Certainty.LIKELY if called else Certainty.POSSIBLE


def release_mismatch_line(log: FailureLog) -> LineMatch | None:
    """A line with the message of such an exception, pasted without the exception's type."""
    return log.find(RELEASE_MISMATCH_PATTERN) or (None if log.errors else log.find(_MODEL_ATTRIBUTE_LINE_PATTERN))


def moved_name_certainty(error: LoggedError) -> Certainty | None:
    """The certainty that an AttributeError is due to a name that only another release has; None if it isn't."""
    message = error.flat_message
    if error.type not in ("AttributeError", "CompilationError") or _RELEASE_INDEPENDENT_PATTERN.search(message):
        return None
    known = (
        _MODEL_ATTRIBUTE_PATTERN.search(message)
        or _TOKENIZER_ATTRIBUTE_PATTERN.search(message)
        or _TYPE_OBJECT_PATTERN.search(message)
    )
    if _DROPPED_PATTERN.search(message) and (known or "object has no attribute" in message):
        return Certainty.LIKELY if known else Certainty.POSSIBLE
    if _LIBRARY_ATTRIBUTE_PATTERN.search(message) or known:
        return Certainty.POSSIBLE
    return None
