"""Two packages of which one asks for what the other has not: which they are, and what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gonogo.evidence.failure.message import parsed_message
from gonogo.evidence.log.code_owner import code_place, distribution_of
from gonogo.evidence.log.failure_log import LoggedError
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding.failure import CodePlace, FailureFacts, RaisedException

FORMS = (
    *("unexpected_keyword", "missing_arguments", "argument_count", "no_attribute", "not_importable", "no_module"),
    "undefined_symbol",
)
PLAIN_TYPES = frozenset(
    ("dict", "list", "tuple", "set", "str", "int", "float", "bool", "bytes", "function", "method", "generator", "type")
)
"""Python's own types: no package has another release of them."""
CALL_MISMATCH_FORMS = ("unexpected_keyword", "missing_arguments", "argument_count")
_GENERIC_DECORATOR_MODULES = (
    "torch.distributed.elastic",
    "torch.nn",
    "torch._dynamo",
    "torch.utils",
    "torch.amp",
    "ray.",
    "hydra.",
)
"""Modules whose decorators stand around users' and other packages' functions."""
_PACKAGE_BY_CLASS = tuple(
    (lazy_compile(rf"^(?:{names})\b"), package)
    for package, names in (
        (
            "trl",
            r"(?:SFT|DPO|GRPO|KTO|ORPO|CPO|PPO|RLOO|GKD|Reward|AsyncGRPO)(?:Trainer|Config)|VLLM(?:Generation|Client)",
        ),
        (
            "transformers",
            r"(?:Seq2Seq)?(?:Trainer|TrainingArguments)|\w+For(?:CausalLM|ConditionalGeneration|SequenceClassification)"
            r"|GenerationConfig|DynamicCache|PreTrained\w+|PretrainedConfig|AutoModel\w*|BitsAndBytesConfig",
        ),
        (
            "accelerate",
            r"Hf(?:Trainer)?DeepSpeedConfig|Accelerator|AcceleratorState|PartialState|FullyShardedDataParallelPlugin|DeepSpeedPlugin",
        ),
        ("peft", r"Lora\w*Config|PeftModel\w*|LoraModel|LoraLayer"),
        (
            "megatron-core",
            r"PackedSeqParams|TransformerConfig|MLATransformerConfig|GPTModel|ModelParallelConfig|OptimizerConfig"
            r"|DistributedDataParallelConfig|TransformerLayer|TEDotProductAttention|DistributedOptimizer",
        ),
        ("deepspeed", r"DeepSpeed\w+|PipelineModule"),
        (
            "vllm",
            r"LLM|AsyncLLM\w*|EngineArgs|AsyncEngineArgs|SamplingParams|VllmConfig|LoRARequest|LLMEngine|FusedMoE"
            r"|GPUModelRunner|WorkerWrapperBase",
        ),
        (
            "torch",
            r"DeviceMesh|DTensor|FullyShardedDataParallel|DistributedDataParallel|FSDPModule|fully_shard"
            r"|barrier|monitored_barrier|init_process_group|new_group|init_device_mesh|broadcast_object_list"
            r"|all_gather_object|gather_object|scatter_object_list|all_gather_into_tensor|reduce_scatter_tensor",
        ),
    )
)
"""Classes that are known by their names alone, and the distribution that they are of."""
_DERIVED_TRAINER_PATTERN = lazy_compile(
    r"^\w+(?:SFT|DPO|GRPO|KTO|ORPO|CPO|PPO|RLOO)\w*Trainer$|^(?:SFT|DPO|GRPO|KTO)\w+Trainer$"
)
"""Classes that users and frameworks derive from trl's, by the name that they keep of it."""


class ApiMismatch(NamedTuple):
    """``asks`` wants ``name`` of ``lacks``. Packages are empty where it is not told whose code it is.

    ``by_user``: it is the user's own line that asks.
    """

    form: str
    lacks: str
    lacks_version: str
    asks: str
    asks_version: str
    subject: str
    names: tuple[str, ...]
    by_user: bool
    at: CodePlace | None


def find_api_mismatch(facts: FailureFacts, versions: Mapping[str, str]) -> ApiMismatch | None:
    """The misfit that the failure's own words tell of, or None: of its first exception that has such words."""
    for raised in facts.chain:
        if raised.message.form in FORMS and (found := _parse_api_mismatch(raised, versions)) is not None:
            return found
    return None


def api_mismatch_of_error(error: LoggedError, versions: Mapping[str, str]) -> ApiMismatch | None:
    """The misfit that one exception of a log tells of, or None."""
    raised = RaisedException(
        type=error.type,
        message=parsed_message(error.type, error.message),
        frames=tuple(code_place(frame, versions) for frame in error.frames[-40:]),
        log=error.raised.at.path,
        line=error.raised.at.number,
    )
    return _parse_api_mismatch(raised, versions) if raised.message.form in FORMS else None


def _parse_api_mismatch(exception: RaisedException, versions: Mapping[str, str]) -> ApiMismatch | None:
    message, frames = exception.message, exception.frames
    if message.subject == "NoneType":
        return None
    at = _requesting_frame(frames, message.form)
    lacks = _lacking_package(message.form, message.subject, frames)
    asks = at.package if at is not None and at.package != lacks else ""
    if not asks and message.form == "no_module" and (found := _WRAPPED_IMPORT_PATTERN.search(message.text)):
        asks = distribution_of(found.group(1))
    return ApiMismatch(
        form=message.form,
        lacks=lacks,
        lacks_version=versions.get(lacks, ""),
        asks=asks,
        asks_version=(at.release if at is not None and asks else "") or versions.get(asks, ""),
        subject=message.subject,
        names=message.names,
        by_user=at is not None and at.owner == "user",
        at=at,
    )


_WRAPPED_IMPORT_PATTERN = lazy_compile(r"Failed to import ([A-Za-z_]\w{0,60})[\w.]* because of the following error")
"""transformers, trl and diffusers load their modules late, and say so around the error."""

FORWARDING_FUNCTIONS = ("_call_impl", "_wrapped_call_impl", "inner", "__call__", "wrapper", "wrapped_fn", "_fn")
"""Functions that call another with the arguments that they were given."""


def _requesting_frame(frames: Sequence[CodePlace], form: str) -> CodePlace | None:
    """The frame that asks: Python's importer, and decorators of the standard library, only stand in between."""
    own = [frame for frame in frames if frame.owner != "python" and not frame.path.startswith("<")]
    while form in CALL_MISMATCH_FORMS and len(own) > 1:
        if own[-1].function not in FORWARDING_FUNCTIONS:
            break
        own.pop()
    if form in ("no_attribute", "not_importable") and own and own[-1].function == "__getattr__":
        own.pop()
    return own[-1] if own else None


def _lacking_package(form: str, subject: str, frames: Sequence[CodePlace]) -> str:
    """The distribution that has not what is asked for."""
    if form == "undefined_symbol":
        return library_package(subject)
    if form in ("not_importable", "no_module"):
        return distribution_of(subject)
    if form == "no_attribute" and subject in PLAIN_TYPES:
        return ""
    if form == "no_attribute" and ("." in subject or subject.islower()):
        return distribution_of(subject)
    for pattern, package in _PACKAGE_BY_CLASS:
        if pattern.search(subject):
            return package
    if form == "no_attribute" and _DERIVED_TRAINER_PATTERN.search(subject):
        return "trl"
    if frames and frames[-1].function == subject.rpartition(".")[2] and frames[-1].package:
        return frames[-1].package
    return _decorating_package(frames) if form in CALL_MISMATCH_FORMS else ""


def _decorating_package(frames: Sequence[CodePlace]) -> str:
    """The package whose decorator stands around what was called, which is mostly a function of the same package."""
    last = frames[-1] if frames else None
    if last is None or last.function != "wrapper" or last.module.startswith(_GENERIC_DECORATOR_MODULES):
        return ""
    caller = next((frame for frame in reversed(frames) if frame.function not in FORWARDING_FUNCTIONS), None)
    return last.package if caller is not None and caller.package != last.package else ""


_TRAINER_PATTERN = lazy_compile(r"^(SFT|DPO|GRPO|KTO|ORPO|CPO|PPO|RLOO|GKD|Reward|AsyncGRPO)Trainer\b")


def trainer_config_class(subject: str) -> str:
    """The class that takes the settings of a trainer: trl moved one after another from the trainer there."""
    if found := _TRAINER_PATTERN.match(subject):
        return f"{found.group(1)}Config"
    return "TrainingArguments" if subject.startswith(("Trainer.", "Seq2SeqTrainer.")) else ""


def library_package(path: str) -> str:
    """The distribution of a compiled library: ``flash-attn`` of ``…/site-packages/flash_attn_2_cuda.cpython.so``."""
    inside = path.replace("\\", "/").rpartition("-packages/")[2]
    first = inside.partition("/")[0] if "/" in inside and not inside.startswith("/") else inside.rpartition("/")[2]
    name = first.partition(".")[0]
    if inside.startswith("/") and "/" in inside.strip("/"):
        # Outside an environment the folder of the library is the package's more often than its file's name.
        folder = inside.rpartition("/")[0].rpartition("/")[2]
        name = folder if name.startswith("_") else name
    return distribution_of(name)
