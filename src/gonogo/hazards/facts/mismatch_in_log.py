"""A device mismatch as a log shows it: operator, operands and their devices, module, and the likely owner."""

import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property, lru_cache

import msgspec
from msgspec.structs import replace

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.code_owner import code_owner_of_path
from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.traceback import LogFrame
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.evidence.rehearsal.device_mismatch import mismatch_in_message
from gonogo.finding import Text, translated

SPEECH_OUTPUT_PATTERN = lazy_compile(
    r"talker|token2wav|code2wav|bigvgan|vocoder|\btts\b|(?:audio|speech)_?decoder", re.IGNORECASE
)
"""Parts of any-to-any models that generate speech."""
MULTIMODAL_ENCODER_PATTERN = lazy_compile(
    r"(?:audio|speech)_?(?:tower|encoder|model)|\bvisual\b|(?:vision|image)_?(?:tower|encoder|transformer|model)",
    re.IGNORECASE,
)
"""Parts of any-to-any models that process audio or vision."""

_VOCODER_FILTER_FUNCTION = "kaiser_sinc_filter"
"""The vocoder's function that combines both devices under ``zero.Init``."""


class MisplacedTensor(Enum):
    """What the tensor on the wrong device probably is; the value is its description in a finding."""

    GRADIENT = translated("an offloaded gradient")
    OPTIMIZER = translated("the optimizer's state")
    QUANTIZED = translated("a quantized weight")
    ADAPTER = translated("a parameter of an adapter")
    SUBMODULE = translated("a speech, audio or vision part of the model")
    ROTARY = translated("the cache of the rotary embedding")
    BUFFER = translated("a buffer of the model")
    INPUT = translated("an input, a label or a mask")
    WEIGHT = translated("a weight of the model")
    UNKNOWN = translated("a tensor that the log doesn't name")


_TORCH_PATH_PATTERN = lazy_compile(
    r"(?:^|/)torch/(?:nn|_|utils|optim|autograd|cuda|functional\.py|tensor\.py|jit|fx|overrides)"
    r"|(?:^|/)(?:deepspeed/utils/nvtx|accelerate/hooks|contextlib|torch_npu/[\w/]*)\.py"
)
_OPTIMIZER_PATH_PATTERN = lazy_compile(
    r"(?:^|/)torch/optim/(?!lr_scheduler)|bitsandbytes/optim|ops/adam/|/apex/optimizers/"
)
_QUANTIZATION_PATH_PATTERN = lazy_compile(
    r"bitsandbytes/(?!optim)|auto_gptq|gptqmodel|/awq/|autoawq|eetq|/hqq/|quantizers?/"
)
_GRADIENT_PATTERN = lazy_compile(r"unscale_and_clip_grads|clip_grad_norm|foreach_reduce|_clip_grads|combined_scale")
_ADAPTER_PATTERN = lazy_compile(
    r"ranknum|lora_[ABE]\b|lora_embedding|lora_magnitude|ada_?lora|\bia3_l|\bvera_|\bloha_|\blokr_|prompt_encoder|prefix_encoder",
    re.IGNORECASE,
)
_ADAPTER_BASE_LAYER_PATTERN = lazy_compile(
    r"transpose\(self\.weight|base_layer\(|_linear\(x\)|super\(\)\.forward|F\.linear\(x, self"
)
_ROTARY_PATTERN = lazy_compile(
    r"apply_\w*rot\w*|rotary|\brope\b|\brope_|\b(?:cos|sin)(?:_cached)?\s*\[|(?:cos|sin)_cached|inv_freq|freqs_cis"
    r"|rotate_half|\*\s*(?:cos|sin)\b",
    re.IGNORECASE,
)
_BUFFER_NAME_PATTERN = lazy_compile(
    r"self\.\w*(?:pos_?emb|pos(?:ition)?_embed|pos_cache|position_ids|position_index|_mask|_cache|freqs|relative_|alibi"
    r"|running_(?:mean|var)|masked_bias|codebook|mel_filters|window)\w*(?![\w(])|(?<!\.)\bpos_?embed(?:ding)?s?\b(?!\()",
    re.IGNORECASE,
)
_INPUT_NAME_PATTERN = lazy_compile(
    r"\b(?:input_ids|\w*labels?|targets?|\w*mask\w*|position_ids|token_type_ids|pixel_values|batch|\w*inputs|samples|data"
    r"|images?|\w*grid_thw|input_values|input_features|timesteps?|rewards?|advantages|chosen\w*|rejected\w*)\b",
    re.IGNORECASE,
)
_ENGINE_PATH_PATTERN = lazy_compile(
    r"(?:^|/)(?:deepspeed|accelerate|apex)/|transformers/trainer\.py|/trainers?/\w*trainer\.py"
)
_TENSOR_FACTORY_PATTERN = lazy_compile(
    r"torch\.(?:arange|zeros|ones|tensor|full|rand|randn|randint|linspace|eye|empty)\("
)
_SELF_ATTRIBUTE_PATTERN = lazy_compile(r"\bself\.(?!_?\w+\()\w+")
_ASSIGNMENT_PATTERN = lazy_compile(r"^\s*[\w.,\s]{1,120}[^=!<>]=(?!=)\s*")
# The innermost frame of a traceback that was cut before the model's own frames.
_MODEL_CALL_PATTERN = lazy_compile(r"(?:\w+ = |return )?(?:self\.)?model\(\*\*\w+\)")
_MODULE_CALL_PATTERN = lazy_compile(r"\bself\.([A-Za-z_][\w.]*(?:\[\w{1,20}\])?)\(")

# The role of an argument, by operator: IDs or labels, an activation, or a weight.
_IDS, _ACTIVATION, _WEIGHT = "ids", "activation", "weight"
_ROLES: tuple[tuple[re.Pattern[str], dict[str, str]], ...] = (
    (lazy_compile(r"index_select|embedding"), {"self": _WEIGHT, "weight": _WEIGHT, "index": _IDS, "indices": _IDS}),
    (
        lazy_compile(r"nll_loss|cross_entropy"),
        {"self": _ACTIVATION, "input": _ACTIVATION, "target": _IDS, "weight": _WEIGHT},
    ),
    (lazy_compile(r"addmm|linear|addbmm"), {"self": _WEIGHT, "bias": _WEIGHT, "mat1": _ACTIVATION, "mat2": _WEIGHT}),
    (lazy_compile(r"^_?mm(?:_out)?$"), {"self": _ACTIVATION, "mat2": _WEIGHT}),
    (lazy_compile(r"conv|norm"), {"input": _ACTIVATION, "self": _ACTIVATION, "weight": _WEIGHT, "bias": _WEIGHT}),
)
# If the named argument is on the accelerator, the one on the CPU is the one checked before it.
_OTHER_OPERAND_ROLES = {"index": _WEIGHT, "indices": _WEIGHT, "mat1": _WEIGHT, "target": _ACTIVATION}

_DEVICE_MISMATCH_PATTERN = Pattern(
    r"Expected all tensors to be on the same device|found at least two devices|on the same device as the indexed tensor"
    r"|different from other tensors on|to be on the same device, but got|but expected (?:it|them) to be on [GC]PU"
)


class LoggedDeviceMismatch(msgspec.Struct, frozen=True, dict=True):
    """A device mismatch in a log. ``devices`` is empty if the log quotes the message without them."""

    evidence: LoggedError | LineMatch
    devices: tuple[str, ...]
    operator: str | None = None
    argument: str | None = None
    argument_device: str | None = None
    indexing: bool = False
    """True for indexing whose message gives only the device of the indexed tensor."""
    cut: LoggedError | None = None
    """The traceback that was pasted with the message, without its last line."""

    @property
    def frames(self) -> tuple[LogFrame, ...]:
        """The frames, outermost first; empty if the log shows only the training loop's call of the model."""
        shown = self.evidence.frames if isinstance(self.evidence, LoggedError) else ()
        shown = shown or (self.cut.frames if self.cut else ())
        return () if shown and _calls_model(shown[-1]) else shown

    @property
    def involves_cpu(self) -> bool:
        """True if one side is, or may be, the CPU."""
        return not self.devices or "cpu" in self.devices

    @property
    def is_between_accelerators(self) -> bool:
        """True if the devices are two different accelerators."""
        return len({device for device in self.devices if device != "cpu" and not device.endswith(":?")}) > 1

    @property
    def has_only_devices(self) -> bool:
        """True if nothing but the devices is known: no operator, no frames."""
        return not self.frames and self.operator is None

    @cached_property
    def innermost_frames(self) -> tuple[LogFrame, ...]:
        """The innermost frames that aren't torch's own, innermost first: the code that called the operator."""
        own = [frame for frame in reversed(self.frames) if not _TORCH_PATH_PATTERN.search(_posix_path(frame))]
        return tuple(own[:3])

    @property
    def caller(self) -> LogFrame | None:
        """The innermost frame that isn't torch's own."""
        return self.innermost_frames[0] if self.innermost_frames else None

    def passes(self, *fragments: str) -> bool:
        """True if a frame contains one of the fragments in its path, function or code."""
        shown = self.evidence if isinstance(self.evidence, LoggedError) else None
        return any(error is not None and error.passes(*fragments) for error in (shown, self.cut))

    @property
    def is_in_engine(self) -> bool:
        """True if the line that called the operator belongs to a training engine."""
        caller = self.caller
        return caller is not None and (
            caller.function == "backward" or _ENGINE_PATH_PATTERN.search(_posix_path(caller)) is not None
        )

    @property
    def outside_model(self) -> bool:
        """True if a framework's own line failed while no model's forward ran: both tensors are that framework's."""
        caller = self.caller
        owner = code_owner_of_path(caller.path) if caller is not None else None
        return (
            owner is not None
            and owner.owner in ("package", "clone")
            and self.cpu_operand is None
            and len(self.frames) > 1
            and caller is not None
            and not _MODEL_PATH_PATTERN.search(_posix_path(caller))
            and not self.passes("forward", "_call_impl", "__call__", "model(")
        )

    @property
    def module(self) -> str | None:
        """The module as the code that called it names it: ``embed_tokens``, ``model.layers[0]``."""
        for frame in self.innermost_frames[:2]:
            if found := _MODULE_CALL_PATTERN.search(frame.code):
                return found.group(1)
        return None

    @property
    def cpu_operand(self) -> str | None:
        """The operand on the CPU: ``ids``, ``activation`` or ``weight``; None if the operator doesn't tell."""
        if self._has_cpu_position_ids:
            return _IDS
        if self.argument is None or "cpu" not in self.devices:
            return None
        for operator, roles in _ROLES:
            if operator.search(self.operator or ""):
                if self.argument_device == "cpu":
                    return roles.get(self.argument)
                partner = _OTHER_OPERAND_ROLES.get(self.argument)
                if self.argument == "mat2" and roles.get("self") == _ACTIVATION:
                    partner = _ACTIVATION
                return partner
        return None

    @cached_property
    def likely_tensor(self) -> MisplacedTensor:
        """What the misplaced tensor probably is, by the frames and the operator."""
        innermost = self.frames[-1] if self.frames else None
        near = [_frame_text(frame) for frame in self.innermost_frames]
        first = near[0] if near else ""
        if self.operator == "grad" or _GRADIENT_PATTERN.search(
            " ".join((*near, _frame_text(innermost) if innermost else ""))
        ):
            return MisplacedTensor.GRADIENT
        if "fused_adam" in (self.operator or "") or any(
            _OPTIMIZER_PATH_PATTERN.search(_posix_path(frame)) for frame in self.frames[-6:]
        ):
            return MisplacedTensor.OPTIMIZER
        if self.caller and _QUANTIZATION_PATH_PATTERN.search(_posix_path(self.caller)):
            return MisplacedTensor.QUANTIZED
        if not self.involves_cpu or self.is_between_accelerators:
            return MisplacedTensor.UNKNOWN
        if self._is_in_adapter(first):
            return MisplacedTensor.ADAPTER
        if self.is_in_speech_output:
            return MisplacedTensor.SUBMODULE
        if self.cpu_operand != _IDS and any(_ROTARY_PATTERN.search(text) for text in near[:2]):
            return MisplacedTensor.ROTARY
        if self._indexes_cache and not self.frames:
            return MisplacedTensor.ROTARY
        caller = self.caller
        if (
            caller is not None
            and self.cpu_operand in (None, _ACTIVATION)
            and _BUFFER_NAME_PATTERN.search(code_without_targets(caller))
        ):
            return MisplacedTensor.BUFFER
        if self.is_in_multimodal_encoder and caller is not None and is_model_code(caller):
            return MisplacedTensor.SUBMODULE
        return self._input_or_weight()

    def _input_or_weight(self) -> MisplacedTensor:
        if self.cpu_operand == _IDS:
            return MisplacedTensor.INPUT
        if self.cpu_operand == _WEIGHT:
            return MisplacedTensor.WEIGHT
        caller = self.caller
        if caller is None:
            return MisplacedTensor.INPUT if self.cpu_operand == _ACTIVATION else MisplacedTensor.UNKNOWN
        if self.is_in_engine:
            return MisplacedTensor.UNKNOWN
        if _TENSOR_FACTORY_PATTERN.search(caller.code) or _INPUT_NAME_PATTERN.search(caller.code):
            return MisplacedTensor.INPUT
        if not is_library_path(caller.path) and "transformers_modules" not in caller.path:
            return MisplacedTensor.BUFFER if _SELF_ATTRIBUTE_PATTERN.search(caller.code) else MisplacedTensor.INPUT
        return MisplacedTensor.INPUT if self.cpu_operand == _ACTIVATION else MisplacedTensor.UNKNOWN

    @property
    def _indexes_cache(self) -> bool:
        """True if IDs on an accelerator index a tensor on the CPU, which then is a cache."""
        gathers = self.operator == "gather" and self.argument == "index" and self.argument_device != "cpu"
        return (self.indexing or gathers) and self.devices[:1] == ("cpu",)

    @property
    def _has_cpu_position_ids(self) -> bool:
        """True for CPU position IDs in a rotary embedding's product, whose frequencies are on the right device."""
        product = (self.operator or "").startswith("bmm") and self.argument == "mat2" and self.argument_device == "cpu"
        return product and self.caller is not None and "position_ids" in self.caller.code

    def _is_in_adapter(self, first_line: str) -> bool:
        if self.cpu_operand in (_IDS, _ACTIVATION):
            return False
        if _ADAPTER_PATTERN.search(first_line) and not _ADAPTER_BASE_LAYER_PATTERN.search(first_line):
            return True
        return (
            "peft/tuners/" in first_line
            and not _ADAPTER_BASE_LAYER_PATTERN.search(first_line)
            and "self.weight" not in first_line
        )

    @property
    def is_in_speech_output(self) -> bool:
        """True if a frame is in a part that generates speech."""
        return any(
            SPEECH_OUTPUT_PATTERN.search(_frame_text(frame)) or _VOCODER_FILTER_FUNCTION in frame.function
            for frame in self.frames[-12:]
        )

    @property
    def is_in_multimodal_encoder(self) -> bool:
        """True if a frame is in a part that processes audio or vision."""
        return any(MULTIMODAL_ENCODER_PATTERN.search(_frame_text(frame)) for frame in self.frames[-12:])

    @property
    def multimodal_part(self) -> str | None:
        """The speech, audio or vision part as the innermost frame names it."""
        for frame in reversed(self.frames[-12:]):
            if found := SPEECH_OUTPUT_PATTERN.search(_frame_text(frame)) or MULTIMODAL_ENCODER_PATTERN.search(
                _frame_text(frame)
            ):
                return found.group(0)
        return None

    @property
    def sentence(self) -> Text:
        """Operator, place and operands in one sentence, without its full stop."""
        caller = self.caller
        place = Text("", "")
        if caller is not None:
            where = f"{_posix_path(caller).rpartition('/')[2]}:{caller.line}" if caller.line else _posix_path(caller)
            place = Text(f"In {caller.function or '?'} ({where}), ", f"在 {caller.function or '?'}（{where}）中，")
        operator = Text(self.operator or "an operator", f"{self.operator} " if self.operator else "某个算子")
        if not caller and not self.operator:
            operator = translated("An operator")
        return translated("{place}{operator} got {operands}").format(
            place=place, operator=operator, operands=self._operands_text
        )

    @property
    def _operands_text(self) -> Text:
        if not self.devices:
            return translated("tensors on different devices")
        if self.indexing:
            return Text(
                f"indices on another device than the indexed tensor, which is on {self.devices[0]}",
                f"与被索引张量（位于 {self.devices[0]}）不在同一设备的索引",
            )
        if self.argument and self.argument_device and len(set(self.devices)) > 1:
            others = next(device for device in self.devices if device != self.argument_device)
            return Text(
                f"{self.argument} on {self.argument_device}, the others on {others}",
                f"位于 {self.argument_device} 的 {self.argument}，其余在 {others}",
            )
        both = self.devices
        return Text(f"tensors on {' and '.join(both)}", f"位于 {' 与 '.join(both)} 的张量")


def device_mismatches_in_training(log: FailureLog) -> tuple[LoggedDeviceMismatch, ...]:
    """The mismatches of a training log: from exceptions, else from a quoting line. Empty for other programs."""
    return () if is_outside_training(log) else all_device_mismatches(log)


@lru_cache(maxsize=1)
def all_device_mismatches(log: FailureLog) -> tuple[LoggedDeviceMismatch, ...]:
    """The mismatches of a log, whatever program wrote it."""
    return tuple(_find_mismatches(log))


def _find_mismatches(log: FailureLog) -> Iterator[LoggedDeviceMismatch]:
    raised = False
    cut = log.truncated_errors[0] if len(log.truncated_errors) == 1 else None
    for error in log.errors:
        if error.type in ("Warning", "UserWarning") or not (found := _parse_mismatch(error, error.message)):
            continue
        raised = True
        yield found if found.frames else replace(found, cut=cut)
    if not raised and (line := log.find(_DEVICE_MISMATCH_PATTERN)):
        # A terminal or a forum may have wrapped the message.
        text = " ".join((line.text, *(other.text for other in log.lines_after(line.line, 1))))
        if found := _parse_mismatch(line, text):
            yield replace(found, cut=cut)


def _parse_mismatch(evidence: LoggedError | LineMatch, message: str) -> LoggedDeviceMismatch | None:
    message = " ".join(message.split())
    mismatch = mismatch_in_message(message)
    if mismatch is None:
        return LoggedDeviceMismatch(evidence, ()) if _DEVICE_MISMATCH_PATTERN.search(message) else None
    return LoggedDeviceMismatch(
        evidence,
        mismatch.devices,
        mismatch.operator,
        mismatch.argument,
        mismatch.argument_device,
        indexing="as the indexed tensor" in message,
    )


def _calls_model(frame: LogFrame) -> bool:
    """True for the training loop's call of the model; as the innermost frame, the model's own are missing."""
    return frame.function == "compute_loss" or _MODEL_CALL_PATTERN.match(frame.code) is not None


def _posix_path(frame: LogFrame) -> str:
    return frame.path.replace("\\", "/")


def code_without_targets(frame: LogFrame) -> str:
    """The code of a frame's line without the names that it assigns to."""
    return _ASSIGNMENT_PATTERN.sub("", frame.code)


def _frame_text(frame: LogFrame) -> str:
    return f"{_posix_path(frame)} {frame.function} {frame.code}"


_MODEL_PATH_PATTERN = lazy_compile(r"modeling_|/models?/|/modules/|/layers/|rotary|attention")


def is_model_code(frame: LogFrame) -> bool:
    """True for a library's code, and for remote code that came with a model's weights."""
    path = _posix_path(frame)
    return is_library_path(path) or "transformers_modules" in path or "modeling_" in path
