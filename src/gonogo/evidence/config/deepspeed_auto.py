"""Resolve ``"auto"`` in a DeepSpeed config, as transformers and accelerate do before DeepSpeed sees it.

Follows transformers' ``HfTrainerDeepSpeedConfig`` (``trainer_config_process`` and ``trainer_config_finalize``) and
accelerate's ``DeepSpeedPlugin``. Values that neither of them fills in stay unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from gonogo.evidence.config.deepspeed_keys import find_key_info
from gonogo.evidence.config.training_defaults import TRANSFORMERS_DEFAULTS, training_defaults
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place
from gonogo.finding import Text, translated

__all__ = [
    "TRANSFORMERS_DEFAULTS",
    "AccelerateSettings",
    "ArgumentCorrespondence",
    "ArgumentLookup",
    "AutoValues",
    "hf_correspondences",
]

Keys = tuple[str, ...]


class ArgumentLookup(Protocol):
    """Training arguments from any source."""

    def get(self, name: str) -> Field:
        """The argument's value; absent if it is known to have its default."""


class AccelerateSettings(Protocol):
    """accelerate's configuration, from its YAML."""

    def get(self, *keys: str) -> Field:
        """The value under nested keys."""


_BOOLEAN_ARGUMENTS = frozenset(name for name, value in TRANSFORMERS_DEFAULTS.items() if isinstance(value, bool))

_FROM_ARGUMENTS = translated('"auto" is filled in from the training arguments: {names}')
_FROM_ACCELERATE = translated('"auto" is filled in from accelerate\'s configuration: {names}')
_FROM_HIDDEN_SIZE = translated('"auto" is computed from the model\'s hidden size {size}')
_ARGUMENT_UNKNOWN = translated('"auto" is filled in from {names}, which is not known here')
_HIDDEN_SIZE_UNKNOWN = translated('"auto" takes its value from the model\'s hidden size, which is not known here')
_STEPS_UNKNOWN = translated('"auto" takes its value from the number of training steps, which depends on the data')
_AUTO_NOT_FILLED_IN = translated('neither transformers nor accelerate fills in "auto" for this key')
_AUTO_IGNORED = translated('DeepSpeed ignores "auto" for this key and uses its own default')
_ARGUMENTS_UNKNOWN = translated('"auto" is filled in from the training arguments, which are not known here')


class ArgumentCorrespondence(msgspec.Struct, frozen=True):
    """A config key that transformers compares with training arguments, and the value that it expects."""

    keys: Keys
    argument: str
    """The name in transformers' message: ``"adam_beta1+adam_beta2"``, ``"train_batch_size (calculated)"``."""
    names: tuple[str, ...]
    """The training arguments that determine the value."""
    expected: Field

    def conflicts(self, config_field: Field) -> bool | None:
        """Whether transformers rejects the config's value; None if unknown."""
        if config_field.absent or (config_field.known and config_field.value in (None, "auto")):
            return False
        if config_field.unknown or not self.expected.known:
            return None
        return bool(config_field.value != self.expected.value)


class AutoValues:
    """The values that a run's arguments give for ``"auto"``."""

    def __init__(
        self,
        arguments: ArgumentLookup | None,
        *,
        world_size: Field,
        hidden_size: Field,
        accelerate: AccelerateSettings | None = None,
        framework: str | None = None,
    ) -> None:
        self._arguments = arguments
        self._world_size = world_size
        self._hidden_size = hidden_size
        self._accelerate = accelerate
        self._defaults = training_defaults(framework or getattr(arguments, "framework", None))

    def resolve(self, keys: Keys, place: Place | None, raw: Callable[..., Field]) -> Field:
        """The value of an ``"auto"`` under the keys; ``raw`` returns the config's other values as written."""
        found = Field.not_known(
            reason=_ARGUMENTS_UNKNOWN if self._arguments is None and self._accelerate is None else None
        )
        if keys in _HIDDEN_SIZE_KEYS:
            found = self._value_from_hidden_size(keys, raw)
        elif self._arguments is not None and (source := _ARGUMENT_KEYS.get(keys)) is not None:
            found = source(self)
        elif self._accelerate is not None and keys in _ACCELERATE_KEYS:
            found = self._value_from_accelerate(keys)
        elif not self.is_filled_in(keys):
            found = _deepspeed_default(keys)
        return msgspec.structs.replace(found, place=place)

    @staticmethod
    def is_filled_in(keys: Keys) -> bool:
        """Whether transformers or accelerate fills in an ``"auto"`` under the keys."""
        return keys in _ARGUMENT_KEYS or keys in _HIDDEN_SIZE_KEYS or keys in _ACCELERATE_KEYS

    # transformers ---------------------------------------------------------------------------------------------------

    def _training_argument(self, name: str) -> Field:
        """The value of a training argument, or its default in transformers."""
        if self._arguments is None:
            return Field.not_known(reason=_ARGUMENTS_UNKNOWN)
        field = self._arguments.get(name)
        if field.absent or (field.known and field.value is None):
            default = self._defaults.get(name)
            return Field(default) if default is not None else Field.not_known(reason=_unknown_argument_text(name))
        value = field.truth if name in _BOOLEAN_ARGUMENTS else field.number
        return (
            Field(value, place=field.place)
            if value is not None
            else Field.not_known(reason=_unknown_argument_text(name))
        )

    def _training_argument_with_reason(self, name: str) -> Field:
        """The same, with the reason that a report gives for the value."""
        field = self._training_argument(name)
        return Field(field.value, reason=_FROM_ARGUMENTS.format(names=name)) if field.known else field

    def _is_any_argument_true(self, *names: str) -> Field:
        """Whether any of these boolean training arguments is true, as a Field."""
        fields = [self._training_argument(name) for name in names]
        if any(field.value is True for field in fields) or all(field.known for field in fields):
            value = any(field.value is True for field in fields)
            return Field(value, reason=_FROM_ARGUMENTS.format(names=", ".join(names)))
        return Field.not_known(reason=_unknown_argument_text(" / ".join(names)))

    def _amp_enabled(self) -> Field:
        """Whether Apex is used, which older versions of transformers select by ``half_precision_backend``."""
        if self._arguments is None:
            return Field.not_known(reason=_ARGUMENTS_UNKNOWN)
        names = ("half_precision_backend", "fp16_backend")
        backends = [self._arguments.get(name) for name in names]
        if any(field.value == "apex" for field in backends):
            return self._is_any_argument_true("fp16", "fp16_full_eval")
        return (
            Field(False)
            if not any(field.unknown for field in backends)
            else Field.not_known(reason=_unknown_argument_text(names[0]))
        )

    def _adam_betas(self) -> Field:
        first, second = self._training_argument("adam_beta1"), self._training_argument("adam_beta2")
        if first.known and second.known:
            names = _FROM_ARGUMENTS.format(names="adam_beta1, adam_beta2")
            return Field([first.value, second.value], reason=names)
        return Field.not_known(reason=_unknown_argument_text("adam_beta1, adam_beta2"))

    def _train_batch_size(self) -> Field:
        names = ("per_device_train_batch_size", "gradient_accumulation_steps")
        parts = [self._training_argument(name) for name in names]
        size = self._world_size.number
        if size is None or not all(part.known for part in parts):
            missing = [name for name, part in zip(names, parts, strict=True) if not part.known]
            return Field.not_known(
                reason=_unknown_argument_text(", ".join([*missing, *(["world size"] if size is None else [])]))
            )
        text = " × ".join(["world size", *names])
        return Field(size * parts[0].value * parts[1].value, reason=_FROM_ARGUMENTS.format(names=text))

    def _warmup_steps(self) -> Field:
        steps, ratio = self._training_argument("warmup_steps"), self._training_argument("warmup_ratio")
        if steps.known and steps.value >= 1:
            return Field(int(steps.value), reason=_FROM_ARGUMENTS.format(names="warmup_steps"))
        total = self._total_steps()
        if not (steps.known and ratio.known):
            return Field.not_known(reason=_unknown_argument_text("warmup_steps, warmup_ratio"))
        share = steps.value or ratio.value
        if not share:
            # Newer versions of transformers set 1, since DeepSpeed rejects 0.
            return Field.not_known(reason=_unknown_argument_text("warmup_steps"))
        if not total.known:
            return Field.not_known(reason=_STEPS_UNKNOWN)
        return Field(-int(-total.value * share // 1), reason=_FROM_ARGUMENTS.format(names="warmup_ratio × max_steps"))

    def _total_steps(self) -> Field:
        """The scheduler's number of training steps: ``max_steps`` if it is given, else unknown."""
        steps = self._training_argument("max_steps")
        if steps.known and steps.value > 0:
            return Field(int(steps.value), reason=_FROM_ARGUMENTS.format(names="max_steps"))
        return Field.not_known(reason=_STEPS_UNKNOWN)

    def _value_from_hidden_size(self, keys: Keys, raw: Callable[..., Field]) -> Field:
        default, of_size = _HIDDEN_SIZE_KEYS[keys]
        if self._arguments is None and self._accelerate is None:
            return Field.not_known(reason=_ARGUMENTS_UNKNOWN)
        if default is not None and self._arguments is not None:
            # transformers fills these in for stage 3 only; otherwise DeepSpeed drops the "auto" and uses its default.
            stage = raw("zero_optimization", "stage")
            if stage.known and stage.number is not None and stage.number != 3:
                return Field(default)
        size = self._hidden_size.number
        if size is None:
            return Field.not_known(reason=_HIDDEN_SIZE_UNKNOWN)
        return Field(of_size(size), reason=_FROM_HIDDEN_SIZE.format(size=size))

    # accelerate -----------------------------------------------------------------------------------------------------

    def _value_from_accelerate(self, keys: Keys) -> Field:
        name, default, wanted = _ACCELERATE_KEYS[keys]
        assert self._accelerate is not None
        path = (name,) if name == "mixed_precision" else ("deepspeed_config", name)
        field = self._accelerate.get(*path)
        key = ".".join(path)
        if field.unknown:
            return Field.not_known(reason=_unknown_argument_text(key))
        value = field.get(None)
        if value in (None, "auto"):
            return Field(default) if default is not None else Field.not_known(reason=_unknown_argument_text(key))
        if wanted is not None:
            value = value in wanted
        elif isinstance(default, (bool, int, float)):
            value = field.truth if isinstance(default, bool) else field.number
        return Field(value, reason=_FROM_ACCELERATE.format(names=key))


def _deepspeed_default(keys: Keys) -> Field:
    """The value of an unresolved ``"auto"``: DeepSpeed's pydantic models drop it, other code takes it literally."""

    parent, info = find_key_info(keys[:-1]), find_key_info(keys)
    if parent is None or not parent.closed or info is None:
        return Field.not_known(reason=_AUTO_NOT_FILLED_IN)
    if info.default is None or info.default == "auto":
        return Field.not_known(reason=_AUTO_IGNORED)
    return Field(info.default, reason=_AUTO_IGNORED)


def _unknown_argument_text(names: str) -> Text:
    return _ARGUMENT_UNKNOWN.format(names=names)


def _resolver_for_argument(name: str) -> Callable[[AutoValues], Field]:
    """A resolver of ``"auto"`` that returns the training argument of this name."""
    return lambda values: values._training_argument_with_reason(name)


_ARGUMENT_KEYS: Mapping[Keys, Callable[[AutoValues], Field]] = {
    ("train_micro_batch_size_per_gpu",): _resolver_for_argument("per_device_train_batch_size"),
    ("gradient_accumulation_steps",): _resolver_for_argument("gradient_accumulation_steps"),
    ("train_batch_size",): AutoValues._train_batch_size,
    ("gradient_clipping",): _resolver_for_argument("max_grad_norm"),
    ("optimizer", "params", "lr"): _resolver_for_argument("learning_rate"),
    ("optimizer", "params", "betas"): AutoValues._adam_betas,
    ("optimizer", "params", "eps"): _resolver_for_argument("adam_epsilon"),
    ("optimizer", "params", "weight_decay"): _resolver_for_argument("weight_decay"),
    ("scheduler", "params", "warmup_min_lr"): lambda _: Field(0),
    ("scheduler", "params", "warmup_max_lr"): _resolver_for_argument("learning_rate"),
    ("scheduler", "params", "total_num_steps"): AutoValues._total_steps,
    ("scheduler", "params", "warmup_num_steps"): AutoValues._warmup_steps,
    ("checkpoint", "use_node_local_storage"): _resolver_for_argument("save_on_each_node"),
    ("fp16", "enabled"): lambda values: values._is_any_argument_true("fp16", "fp16_full_eval"),
    ("bf16", "enabled"): lambda values: values._is_any_argument_true("bf16", "bf16_full_eval"),
    ("amp", "enabled"): AutoValues._amp_enabled,
}

# Keys derived from the hidden size: DeepSpeed's default if not filled in (None: always filled in), and the formula.
_HIDDEN_SIZE_KEYS: Mapping[Keys, tuple[int | None, Callable[[Any], int]]] = {
    ("zero_optimization", "reduce_bucket_size"): (None, lambda size: int(size * size)),
    ("zero_optimization", "stage3_prefetch_bucket_size"): (50_000_000, lambda size: int(0.9 * size * size)),
    ("zero_optimization", "stage3_param_persistence_threshold"): (100_000, lambda size: int(10 * size)),
}

# accelerate's name, its default, and for booleans the values that mean true.
_ACCELERATE_KEYS: Mapping[Keys, tuple[str, Any, frozenset[str] | None]] = {
    ("gradient_accumulation_steps",): ("gradient_accumulation_steps", None, None),
    ("gradient_clipping",): ("gradient_clipping", 1.0, None),
    ("zero_optimization", "stage"): ("zero_stage", 2, None),
    ("zero_optimization", "offload_optimizer", "device"): ("offload_optimizer_device", "none", None),
    ("zero_optimization", "offload_param", "device"): ("offload_param_device", "none", None),
    ("zero_optimization", "offload_optimizer", "nvme_path"): ("offload_optimizer_nvme_path", None, None),
    ("zero_optimization", "offload_param", "nvme_path"): ("offload_param_nvme_path", None, None),
    ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"): ("zero3_save_16bit_model", False, None),
    ("fp16", "enabled"): ("mixed_precision", None, frozenset({"fp16"})),
    ("bf16", "enabled"): ("mixed_precision", None, frozenset({"bf16", "fp8"})),
}

# In the order of transformers' comparison: keys, the name in its message, the arguments behind it.
_COMPARED_KEYS: tuple[tuple[Keys, str, tuple[str, ...]], ...] = (
    (("train_micro_batch_size_per_gpu",), "per_device_train_batch_size", ("per_device_train_batch_size",)),
    (("gradient_accumulation_steps",), "gradient_accumulation_steps", ("gradient_accumulation_steps",)),
    (("train_batch_size",), "train_batch_size (calculated)",
     ("per_device_train_batch_size", "gradient_accumulation_steps")),
    (("gradient_clipping",), "max_grad_norm", ("max_grad_norm",)),
    (("optimizer", "params", "lr"), "learning_rate", ("learning_rate",)),
    (("optimizer", "params", "betas"), "adam_beta1+adam_beta2", ("adam_beta1", "adam_beta2")),
    (("optimizer", "params", "eps"), "adam_epsilon", ("adam_epsilon",)),
    (("optimizer", "params", "weight_decay"), "weight_decay", ("weight_decay",)),
    (("scheduler", "params", "warmup_max_lr"), "learning_rate", ("learning_rate",)),
    (("fp16", "enabled"), "fp16|fp16_full_eval", ("fp16", "fp16_full_eval")),
    (("bf16", "enabled"), "bf16|bf16_full_eval", ("bf16", "bf16_full_eval")),
    (("scheduler", "params", "total_num_steps"), "num_training_steps (calculated)", ("max_steps",)),
    (("scheduler", "params", "warmup_num_steps"), "warmup_steps", ("warmup_steps", "warmup_ratio")),
)  # fmt: skip


def hf_correspondences(
    arguments: ArgumentLookup, *, world_size: Field | None = None, framework: str | None = None
) -> tuple[ArgumentCorrespondence, ...]:
    """The config keys that transformers compares with training arguments, in its order, with the expected values."""
    values = AutoValues(
        arguments, world_size=world_size or Field.not_known(), hidden_size=Field.not_known(), framework=framework
    )
    searches_batch_size = arguments.get("auto_find_batch_size").truth is True
    sizes = (("train_micro_batch_size_per_gpu",), ("train_batch_size",))
    return tuple(
        ArgumentCorrespondence(keys, name, names, _ARGUMENT_KEYS[keys](values))
        for keys, name, names in _COMPARED_KEYS
        if not (searches_batch_size and keys in sizes)
    )
