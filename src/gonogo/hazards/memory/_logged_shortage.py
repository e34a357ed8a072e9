"""An accelerator out of memory, from a log: how much, where, and what most likely filled it."""

import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.traceback import LogFrame
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Certainty, Text, translated
from gonogo.finding.words import size

STATES, ACTIVATIONS, EVALUATION = "states", "activations", "evaluation"

_OUT_OF_MEMORY_PATTERN = Pattern(
    r"(?:CUDA|HIP|NPU|XPU|MUSA|MLU) (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|cuda runtime error \(2\)"
    r"|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|\bEL0004\b|NPU memory is not enough"
)
_ALLOC_FAILED_PATTERN = lazy_compile(r"CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED")
_HOST_ALLOCATION_PATTERN = lazy_compile(r"DefaultCPUAllocator|[Uu]nable to allocate .{1,60} for an array|^$")
_HOST_MEMORY_PATTERN = lazy_compile(r"(?i)\b(?:cpu|host|system|ram)\b|内存|oom[-_ ]?kill")

_SIZE = r"(?<!\d)(\d{1,20}(?:\.\d{1,20})?) ?([KMGT]?)i?(?:B|bytes)"
_REQUESTED_SIZE_PATTERN = lazy_compile(rf"Tried to allocate {_SIZE}")
_CAPACITY_PATTERN = lazy_compile(rf"{_SIZE} total capacity|total capaci?ty of {_SIZE}")
_ALLOCATED_PATTERN = lazy_compile(rf"{_SIZE} already allocated|Of the allocated memory {_SIZE} is allocated")
_UNALLOCATED_SIZE_PATTERN = lazy_compile(rf"and {_SIZE} is reserved by PyTorch but unallocated")
_RESERVED_PATTERN = lazy_compile(rf"{_SIZE} reserved in total")
_OTHER_PROCESS_PATTERN = lazy_compile(rf"Process \d+ has {_SIZE} memory in use")
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_GIB = 1 << 30

# Functions of frames; the innermost such frame shows what was allocated.
# fmt: off
_EVALUATION_FUNCTIONS = frozenset((
    "evaluation_loop", "prediction_loop", "prediction_step", "nested_concat", "torch_pad_and_concatenate",
    "pad_across_processes", "nested_numpify", "gather_for_metrics", "_nested_gather", "_pad_across_processes",
    "evaluation_step", "eval_step", "validation_step", "run_evaluation", "_run_evaluation", "run_validation",
    "eval_loop", "validate", "eval_epoch", "evaluate_model",
))
_OUTPUT_GATHERING_FUNCTIONS = frozenset((
    "nested_concat", "torch_pad_and_concatenate", "pad_across_processes", "_pad_across_processes",
    "_nested_gather", "nested_numpify", "gather_for_metrics",
))
_MODEL_LOADING_FUNCTIONS = frozenset((
    "from_pretrained", "_load_pretrained_model", "_load_state_dict_into_meta_model",
    "_load_state_dict_into_model", "load_state_dict", "set_module_tensor_to_device", "_move_model_to_device",
    "_configure_distributed_model", "_convert_to_deepspeed_param", "_post_init_method", "_zero_init_param",
    "_partition_param", "load_peft_weights", "dispatch_model", "load_checkpoint_in_model", "convert",
    "materialize_meta_module", "_materialize_copy", "create_and_replace_parameter", "load_model",
    "load_pretrained",
))
_ENGINE_SETUP_FUNCTIONS = frozenset((
    "initialize", "initialize_optimizer_states", "_setup_for_real_optimizer", "_create_fp32_partitions",
    "_create_fp16_partitions", "_create_fp16_partitions_with_defragmentation", "_configure_zero_optimizer",
    "_configure_optimizer", "_configure_bf16_optimizer", "_configure_fp16_optimizer", "_prepare_deepspeed",
    "prepare_model", "_ddp_init_helper", "_init_param_handle_from_module", "_init_param_handle_from_params",
    "flatten_tensors", "flatten_tensors_into_flat_param", "_flatten_dense_tensors",
    "flatten_dense_tensors_aligned", "move_to_cpu", "defragment", "_auto_wrap", "fully_shard",
))
_OPTIMIZER_STEP_FUNCTIONS = frozenset((
    "optimizer_step", "_optimizer_step", "_take_model_step", "_init_group", "init_state", "_multi_tensor_adam",
    "_multi_tensor_adamw", "_single_tensor_adam", "_single_tensor_adamw", "adam", "adamw", "_fused_adam",
    "_fused_adamw", "update_step", "_partition_gradients", "partition_gradients", "reduce_ipg_grads",
    "average_tensor", "reduce_independent_p_g_buckets_and_remove_grads", "__reduce_and_partition_ipg_grads",
    "step",
))
_FORWARD_BACKWARD_FUNCTIONS = frozenset((
    "forward", "_call_impl", "_wrapped_call_impl", "backward", "_engine_run_backward", "compute_loss",
    "cross_entropy", "loss_function", "ForCausalLMLoss", "_softmax", "softmax", "embedding", "training_step",
    "checkpoint", "generate", "apply",
))
# fmt: on
_MAX_MESSAGE_LENGTH = 8000
"""Only so much of a message is searched: allocators give their figures in the first few hundred characters."""
_ACCUMULATED_OUTPUTS_PATTERN = lazy_compile(
    r"\b(?:preds|labels|logits)(?:_host)? = .{0,60}(?:torch\.cat\(|nested_concat\()"
)
_MOVES_MODEL_PATTERN = lazy_compile(
    r"(?i)(?:model|module)\w*\.(?:cuda\(|to\((?:device|['\"]cuda|args\.device|local_rank|self\.device))"
)
_OPTIMIZER_PATH_PATTERN = lazy_compile(
    r"torch/optim/|deepspeed/runtime/|apex/optimizers|bitsandbytes/optim|accelerate/optimizer|galore"
)

_TRAINING_PATTERN = Pattern(
    r"(?i)trainer\.py|training_step|deepspeed|accelerate launch|torchrun|fine-?_?tun|\bsft\b"
    r"|train(?:er|ing|_|\.py|\.sh|\b)|\blora\b|optimizer|\.backward\(|'loss'|微调|训练"
)
_TRAINING_SETUP = r"(?i)train|sft|finetun|deepspeed|torchrun|zero_optimization|lora"

_STEPS_DONE_PATTERN = Pattern(
    r"'loss': ?[\d.n]|\b[1-9]\d*/\d+ \[\d+:\d+|\b(?:step|iter(?:ation)?)s?[ :=]+[1-9]\d*\b.*\bloss\b"
)
_EVALUATION_PATTERN = Pattern(
    r"\*\*\* Running (?:Evaluation|Prediction)|(?i:^\s*(?:evaluat\w*|validat\w*)\b.{0,40}\d+%)"
)
_LOADING_PATTERN = Pattern(r"Loading checkpoint shards:? +\d{1,2}%|(?i:loading weights:? +\d{1,2}%)")
_ENGINE_SETUP_PATTERN = Pattern(
    r"deepspeed\.initialize|_setup_for_real_optimizer|initialize_optimizer_states"
    r"|(?i:optimizer state initiali[sz]ation)"
)


_INNERMOST_FRAME_COUNT = 12
"""How many of the innermost frames show the activity."""


class _MemoryHungryActivity(msgspec.Struct, frozen=True):
    """An activity that needs much memory, recognized by functions or code, and cures for it."""

    said: Text
    shown: re.Pattern[str]
    code: re.Pattern[str] | None
    cures: tuple[Text, ...]


_ACTIVITIES = (
    _MemoryHungryActivity(
        translated("reading a checkpoint"),
        lazy_compile(r"^(?:_load_from_checkpoint|load_optimizer_state|_load_optimizer_and_scheduler)$"),
        lazy_compile(r"torch\.load\((?!.*map_location)"),
        (
            translated(
                "Use torch.load(…, map_location='cpu'): without it each rank puts the file's tensors on the GPU "
                "that they were saved from"
            ),
        ),
    ),
    _MemoryHungryActivity(
        translated("the loss over all logits at once"),
        lazy_compile(
            r"^(?:cross_entropy|fixed_cross_entropy|ForCausalLMLoss|loss_function|_?selective_log_softmax|log_softmax"
            r"|logprobs_from_logits\w*|entropy_from_logits\w*|vocab_parallel_\w+|_?get_per_token_log\w*|get_batch_logps)$"
        ),
        lazy_compile(r"logits\.(?:float|to)\(|lm_head\(|logits ?/|log_softmax\("),
        (
            translated(
                "Use a loss that does not materialize all logits (batch x length x vocabulary): "
                "use_liger_kernel=True, TRL's loss_type='chunked_nll', or compute it in chunks"
            ),
            translated(
                "Process fewer tokens at a time: a smaller micro-batch, or shorter samples (max_length, cutoff_len)"
            ),
        ),
    ),
    _MemoryHungryActivity(
        translated("attention"),
        lazy_compile(r"^(?:eager_attention_forward|scaled_dot_product_attention|sdpa_attention_forward)$"),
        lazy_compile(r"attn_weights|attention_scores"),
        (
            translated(
                'Set attn_implementation="flash_attention_2" (or "sdpa"), which does not materialize the '
                "full matrix of attention scores; otherwise use shorter samples"
            ),
        ),
    ),
    _MemoryHungryActivity(
        translated("generation"),
        lazy_compile(r"^(?:generate|_sample|_prefill|generate_sequences|batch_generation|generate_completions)$"),
        None,
        (
            translated(
                "Generate for fewer prompts at a time, or fewer new tokens (max_new_tokens, max_completion_length): "
                "the KV "
                "cache grows with both"
            ),
        ),
    ),
)


class LoggedShortage(msgspec.Struct, frozen=True):
    """An out-of-memory error in a log. Sizes are in bytes, None if the log doesn't show them."""

    evidence: LoggedError | LineMatch
    kind: str
    certainty: Certainty
    also: tuple[str, ...]
    """Other possible causes."""
    frame: LogFrame | None
    requested: float | None
    capacity: float | None
    allocated: float | None
    unused: float | None
    """Bytes reserved by PyTorch but not used by any tensor."""
    others: float | None
    """Bytes held by other processes on the device, if the message lists processes."""

    @property
    def sizes(self) -> Text:
        """The requested, available and used memory, in one sentence.

        Such as ``The GPU has 23.7 GiB, of which tensors took 20.8 GiB, and 2.0 GiB more was asked for.``
        """
        if self.requested is None:
            of_host = isinstance(self.evidence, LoggedError) and _is_host_shortage(self.evidence)
            return translated("The host's memory ran out") if of_host else translated("GPU memory ran out")
        requested = size(self.requested)
        if self.capacity is None or self.allocated is None:
            return Text(f"{requested} was requested, more than the GPU had left", f"再申请 {requested} 时显存不足")
        capacity, allocated = size(self.capacity), size(self.allocated)
        return Text(
            f"Of the GPU's {capacity}, tensors took {allocated} when {requested} more was requested",
            f"GPU 共 {capacity}，张量已占 {allocated}，又申请 {requested}",
        )

    @property
    def where(self) -> Text | str:
        """The place as a text like ``, in forward (modeling_llama.py:412)``, or empty."""
        if self.frame is None:
            return ""
        place = f"{self.frame.function} ({self.frame.path.replace(chr(92), '/').rpartition('/')[2]}:{self.frame.line})"
        return Text(f", in {place}", f"，位置 {place}")

    @property
    def phase(self) -> Text | str:
        """What the program was doing, by the frames, as a text like ``, the loss``; empty if they don't show it."""
        activity = self._activity
        return Text(f", {activity.said.en}", f"，{activity.said.zh}") if activity is not None else ""

    @property
    def activity_cures(self) -> tuple[Text, ...]:
        """Cures for a shortage at just this place, to come before the general ones."""
        activity = self._activity
        return activity.cures if activity is not None else ()

    @property
    def _activity(self) -> _MemoryHungryActivity | None:
        if not isinstance(self.evidence, LoggedError):
            return None
        frames = self.evidence.all_frames[-_INNERMOST_FRAME_COUNT:]
        for frame in reversed(frames):
            for activity in _ACTIVITIES:
                if activity.shown.search(_function_name(frame)) or (activity.code and activity.code.search(frame.code)):
                    return activity
        return None

    @property
    def sharing_and_fragmentation_cures(self) -> tuple[Text, ...]:
        """First cures if another process holds the memory or the allocator's blocks are fragmented."""
        cures = []
        if self.others is not None and self.capacity and self.others > 0.1 * self.capacity:
            cures.append(
                Text(
                    f"Another process holds {size(self.others)} of this GPU: end it, or take another GPU (nvidia-smi)",
                    f"另有进程占用该 GPU {size(self.others)}：结束它，或换一张 GPU（nvidia-smi）",
                )
            )
        if self.unused is not None and self.requested is not None and self.unused > max(self.requested, 1 << 30):
            cures.append(
                Text(
                    f"{size(self.unused)} is held and unused, in pieces too small: set "
                    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                    f"有 {size(self.unused)} 已预留但碎片化而不可用：设置 "
                    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                )
            )
        return tuple(cures)


def find_logged_shortage(log: FailureLog) -> LoggedShortage | None:
    """The shortage that the log shows, or None: of GPU memory, or of host memory during an evaluation."""
    if is_outside_training(log):
        return None
    short = _find_shortage(log)
    if short is None or log.find(_TRAINING_PATTERN) is not None or log.setup.mentions(_TRAINING_SETUP):
        return short
    return replace(short, certainty=Certainty.POSSIBLE)  # any program may run out of memory


def _find_shortage(log: FailureLog) -> LoggedShortage | None:
    errors = list(_out_of_memory_errors(log))
    if errors:
        return _shortage_from_error(log, max(errors[:8], key=lambda error: bool(error.frames)))
    for cut in log.truncated_errors:
        if any(_gathers_outputs(frame) or _ACCUMULATED_OUTPUTS_PATTERN.search(frame.code) for frame in cut.frames[-3:]):
            return _make_shortage(cut, EVALUATION, Certainty.LIKELY, (), cut.innermost, "")
    for found in log.find_all(_OUT_OF_MEMORY_PATTERN):
        return _shortage_from_line(log, found, found.text)
    return None


def certainty_for_kind(logged_shortage: LoggedShortage | None, kind: str) -> Certainty | None:
    """The certainty that the shortage is of this kind; None if it isn't."""
    if logged_shortage is None:
        return None
    if logged_shortage.kind == kind:
        return logged_shortage.certainty
    return Certainty.POSSIBLE if kind in logged_shortage.also else None


def _out_of_memory_errors(log: FailureLog) -> Iterator[LoggedError]:
    for error in log.errors:
        of_torch = error.type == "OutOfMemoryError" and error.raised.qualified.startswith(("torch", "Out"))
        if (
            _OUT_OF_MEMORY_PATTERN.search(error.message)
            or (of_torch and not _HOST_MEMORY_PATTERN.search(error.message))
            or _is_host_shortage(error)
        ):
            yield error


def _is_host_shortage(error: LoggedError) -> bool:
    """True if host memory ran out while an evaluation's outputs were collected."""
    is_allocation_failure = error.type in (
        "RuntimeError",
        "MemoryError",
        "_ArrayMemoryError",
    ) and _HOST_ALLOCATION_PATTERN.search(error.message)
    return bool(is_allocation_failure) and any(_gathers_outputs(frame) for frame in error.all_frames)


def _shortage_from_error(log: FailureLog, error: LoggedError) -> LoggedShortage:
    message = " ".join(error.message.split())
    kind, frame = _kind_by_frames(error)
    if kind is None:
        return _shortage_from_line(log, error, message)
    certainty = Certainty.LIKELY
    also: tuple[str, ...] = ()
    function = _function_name(frame) if frame else ""
    if kind == EVALUATION:
        certainty = Certainty.CERTAIN if any(map(_gathers_outputs, error.all_frames)) else Certainty.LIKELY
    elif kind == STATES:
        certainty = Certainty.LIKELY if function in _OPTIMIZER_STEP_FUNCTIONS else Certainty.CERTAIN
        also = (ACTIVATIONS,) if function in _OPTIMIZER_STEP_FUNCTIONS else ()
    else:
        also = (STATES,)
    if _ALLOC_FAILED_PATTERN.search(message) and not _REQUESTED_SIZE_PATTERN.search(message):
        certainty = Certainty.POSSIBLE
    return _make_shortage(error, kind, certainty, also, frame, message)


def _gathers_outputs(frame: LogFrame) -> bool:
    return _function_name(frame) in _OUTPUT_GATHERING_FUNCTIONS


def _kind_by_frames(error: LoggedError) -> tuple[str | None, LogFrame | None]:
    """The kind of shortage, and the innermost frame that shows it; an evaluation's frame counts at any depth."""
    for frame in error.all_frames:
        function = _function_name(frame)
        in_trainer = "trainer" in frame.path.lower() and function in ("evaluate", "_evaluate")
        if function in _EVALUATION_FUNCTIONS or in_trainer:
            return EVALUATION, frame
    for frame in reversed(error.all_frames):
        function = _function_name(frame)
        if function in _MODEL_LOADING_FUNCTIONS or function in _ENGINE_SETUP_FUNCTIONS:
            return STATES, frame
        if function in _OPTIMIZER_STEP_FUNCTIONS and (function != "step" or _is_optimizer_frame(frame)):
            return STATES, frame
        if function in _FORWARD_BACKWARD_FUNCTIONS or ".backward(" in frame.code or "loss = " in frame.code:
            return ACTIVATIONS, frame
        if _MOVES_MODEL_PATTERN.search(frame.code) or "optimizer.step(" in frame.code:
            return STATES, frame
    return None, None


def _function_name(frame: LogFrame) -> str:
    """The function's name, without the class that newer tracebacks prefix."""
    return frame.function.rpartition(".")[2]


def _is_optimizer_frame(frame: LogFrame) -> bool:
    return _OPTIMIZER_PATH_PATTERN.search(frame.path.replace("\\", "/")) is not None or "optim" in frame.code


def _shortage_from_line(log: FailureLog, evidence: LoggedError | LineMatch, message: str) -> LoggedShortage:
    """A shortage without telling frames, judged by the preceding lines, else by the sizes."""
    at = evidence.raised.at if isinstance(evidence, LoggedError) else evidence.line
    kind = _kind_by_surroundings(log, at)
    certainty = Certainty.LIKELY
    requested, capacity, allocated = (
        _bytes_in_message(pattern, message)
        for pattern in (_REQUESTED_SIZE_PATTERN, _CAPACITY_PATTERN, _ALLOCATED_PATTERN)
    )
    if kind != EVALUATION and _is_full_fp32_copy(requested, allocated):
        kind = STATES
    elif kind != EVALUATION and (cut := _kind_by_cut_traceback(log)):
        kind, certainty = cut, Certainty.POSSIBLE
    elif kind is None:
        full = capacity and allocated and allocated > 0.85 * capacity
        small = requested is not None and requested <= _GIB // 4
        kind, certainty = (STATES if full and small else ACTIVATIONS), Certainty.POSSIBLE
    elif _ALLOC_FAILED_PATTERN.search(message) and requested is None and kind != EVALUATION:
        certainty = Certainty.POSSIBLE
    also = tuple(other for other in (ACTIVATIONS, STATES) if other != kind)
    return _make_shortage(evidence, kind, certainty, also, None, message)


def _kind_by_cut_traceback(log: FailureLog) -> str | None:
    """The kind by another rank's traceback, which lacks its last line."""
    return next((kind for error in log.truncated_errors if (kind := _kind_by_frames(error)[0])), None)


def _is_full_fp32_copy(requested: float | None, allocated: float | None) -> bool:
    """True if one request is as large as everything allocated, or twice that: the fp32 copy of all weights."""
    if requested is None or not allocated or requested < 2 * _GIB:
        return False
    return any(abs(requested - times * allocated) < 0.03 * allocated for times in (1, 2))


def _kind_by_surroundings(log: FailureLog, log_line: LogLine) -> str | None:
    """The kind by the last progress before the line, or else by an engine's setup close to it."""
    for line in reversed(log.lines_before(log_line, 60)):
        for pattern, kind in (
            (_EVALUATION_PATTERN, EVALUATION),
            (_STEPS_DONE_PATTERN, ACTIVATIONS),
            (_LOADING_PATTERN, STATES),
        ):
            if pattern.search(line.text):
                return kind
    near = (*log.lines_before(log_line, 15), log_line, *log.lines_after(log_line, 15))
    return STATES if any(_ENGINE_SETUP_PATTERN.search(line.text) for line in near) else None


def _make_shortage(
    evidence: LoggedError | LineMatch,
    kind: str,
    certainty: Certainty,
    extra_kinds: tuple[str, ...],
    frame: LogFrame | None,
    message: str,
) -> LoggedShortage:
    message = message[:_MAX_MESSAGE_LENGTH]
    requested, capacity, allocated, unused, reserved = (
        _bytes_in_message(pattern, message)
        for pattern in (
            _REQUESTED_SIZE_PATTERN,
            _CAPACITY_PATTERN,
            _ALLOCATED_PATTERN,
            _UNALLOCATED_SIZE_PATTERN,
            _RESERVED_PATTERN,
        )
    )
    if unused is None and reserved is not None and allocated is not None:
        unused = reserved - allocated
    others = _bytes_of_other_processes(message, (allocated or 0) + (unused or 0))
    return LoggedShortage(evidence, kind, certainty, extra_kinds, frame, requested, capacity, allocated, unused, others)


def _bytes_of_other_processes(message: str, own_usage: float) -> float | None:
    """Memory of the listed processes without this one, which a container lists under an unknown PID."""
    listed = sorted(_parse_size(found.groups()) for found in _OTHER_PROCESS_PATTERN.finditer(message))
    if listed and "this process has" not in message:
        mine = next((one for one in listed if one >= own_usage), listed[-1])
        listed.remove(mine)
    return sum(listed) if listed else None


def _bytes_in_message(pattern: re.Pattern[str], message: str) -> float | None:
    found = pattern.search(message)
    return _parse_size(found.groups()) if found else None


def _parse_size(groups: tuple[str | None, ...]) -> float:
    number, unit = [group for group in groups if group is not None][:2]
    return float(number) * 1024.0 ** _POWER[unit]
