"""Recognizes operators that got both half precision and fp32, and where in a program with LoRA that happens."""

import re
from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import lazy_compile

_DTYPE_PATTERN = r"(?:struct )?(?:c10::)?(?:Half|half|BFloat16|bfloat16|float16|Float|float)"
_MISMATCH_PATTERN = lazy_compile(
    rf"expected scalar type ({_DTYPE_PATTERN}) but found ({_DTYPE_PATTERN})"
    rf"|(?:mat1|m1) and (?:mat2|m2) to have the same dtype, but got: ({_DTYPE_PATTERN}) ?!= ?({_DTYPE_PATTERN})"
    rf"|query\.dtype: ({_DTYPE_PATTERN}),? key\.dtype: ({_DTYPE_PATTERN}),? and value\.dtype: ({_DTYPE_PATTERN})"
    rf"|(?:mat1|self|m1) and (?:mat2|m2) must have the same dtype, but got ({_DTYPE_PATTERN}) and ({_DTYPE_PATTERN})"
)
DTYPE_MISMATCH_LITERALS = ("expected scalar type", "to have the same dtype", "must have the same dtype")
_REPLICA_FRAMES = ("parallel_apply", "data_parallel.py", "replicate.py")
_QUANTIZATION_FRAMES = (
    "bitsandbytes/", "Linear8bitLt", "Linear4bit", "/bnb.py", "lora/gptq.py", "lora/awq.py", "lora/aqlm.py", "/hqq.py",
    "lora/eetq.py", "auto_gptq", "gptqmodel", "QuantLinear", "quant_linear", "bnb.nn", "MatMul4Bit", "MatMul8bitLt",
)  # fmt: skip
_QUANTIZATION_PATTERN = lazy_compile(
    r"(?i)MatMul8bitLt|load_in_[48]bit(?!['\"]?\s*[=:]\s*(?:false|none))|quantization_bit(?!['\"]?\s*[=: ]\s*none)"
    r"|\bbits['\"]?\s{0,3}[=: ]\s{0,3}['\"]?[48]\b|\bq-?lora\b|bitsandbytes|\bbnb\b|\bint[48]\b|\b[48][ "
    r"-]?bit|gptq|prepare_model_for_kbit",
    re.ASCII,
)
_EVALUATION_FRAMES = ("_maybe_log_save_evaluate", "compute_metrics")
_EVALUATION_FUNCTIONS = frozenset(
    [
        "evaluate",
        "evaluation_loop",
        "prediction_step",
        "prediction_loop",
        "predict",
        "validate",
        "eval",
        "validation_step",
    ]
)
_LORA_FRAMES = ("peft/", "lora", "adalora")
_LORA_PATTERN = lazy_compile(r"(?i)\bq?-?lora\b|\bpeft\b|adapter", re.ASCII)


class HalfFloatMismatch:
    """A dtype mismatch, and where the log says that it happened."""

    def __init__(self, log: FailureLog, evidence: LoggedError | LogLine) -> None:
        self.log = log
        self.evidence = evidence
        self._error = evidence if isinstance(evidence, LoggedError) else None

    def _traceback_passes(self, *fragments: str) -> bool:
        return self._error is not None and self._error.passes(*fragments)

    def _log_matches(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(line.text) for line in self.log.lines)

    @property
    def has_frames(self) -> bool:
        """True if the log shows the traceback."""
        return self._error is not None and bool(self._error.all_frames)

    @property
    def is_in_replica(self) -> bool:
        """True inside ``nn.DataParallel``, whose replicas lose autocast and dtypes: another hazard."""
        return (
            self._traceback_passes(*_REPLICA_FRAMES) or self.log.has("in replica") or self.log.passes("parallel_apply")
        )

    @property
    def is_in_backward(self) -> bool:
        """True in the backward of an autograd function, where one of the two tensors is a gradient."""
        innermost = self._error.innermost if self._error is not None else None
        return innermost is not None and innermost.function == "backward"

    @property
    def is_in_quantized_linear(self) -> bool:
        """True if a frame belongs to a quantized linear layer."""
        return self._traceback_passes(*_QUANTIZATION_FRAMES)

    @property
    def is_quantized(self) -> bool:
        """True if frames, setup or the log mention a quantized model."""
        return (
            self.is_in_quantized_linear
            or any(map(_QUANTIZATION_PATTERN.search, self.log.setup.texts))
            or self._log_matches(_QUANTIZATION_PATTERN)
        )

    @property
    def is_in_evaluation(self) -> bool:
        """True under a trainer's evaluation."""
        functions = {frame.function for frame in self._error.all_frames} if self._error else set()
        return self._traceback_passes(*_EVALUATION_FRAMES) or bool(functions & _EVALUATION_FUNCTIONS)

    @property
    def is_in_trainer_evaluation(self) -> bool:
        """True if the evaluation is that of the Hugging Face Trainer."""
        return self.is_in_evaluation and self._traceback_passes("transformers/trainer")

    @property
    def uses_lora(self) -> bool:
        """True if frames, setup or the log mention LoRA."""
        return (
            self._traceback_passes(*_LORA_FRAMES)
            or self.log.setup.mentions(r"(?i)lora|peft")
            or self._log_matches(_LORA_PATTERN)
        )


def half_float_mismatches(log: FailureLog) -> Iterator[HalfFloatMismatch]:
    """The first exception, or else the first line, in which half precision and fp32 were mixed."""
    for error in log.errors:
        if _mixes_half_and_float(error.flat_message):
            yield HalfFloatMismatch(log, error)
            return
    if any(log.has(words) for words in DTYPE_MISMATCH_LITERALS):
        for line in log.lines:
            if _mixes_half_and_float(line.text):
                yield HalfFloatMismatch(log, line)
                return


def _mixes_half_and_float(text: str) -> bool:
    found = _MISMATCH_PATTERN.search(text)
    if found is None:
        return False
    parts = {part.lower().removeprefix("struct ").removeprefix("c10::") for part in found.groups() if part}
    # float16 with bfloat16 are two half precisions: neither is fp32.
    return len(parts) == 2 and bool(parts & {"float", "float32"})
