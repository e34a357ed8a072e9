"""Extracts the parameters of a training to be planned from its launch command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.config.training_defaults import training_defaults
from gonogo.finding import UserError, translated
from gonogo.trials.plan.strategy import TuningMethod
from gonogo.trials.plan.task.settings import TaskOptions
from gonogo.trials.plan.task.task_from_command import task_options_from

if TYPE_CHECKING:
    from gonogo.evidence.run import Run

LENGTHS = ("max_length", "cutoff_len", "max_seq_length", "seq_len", "sequence_len", "model_max_length", "block_size",
            "max_seq_len", "context_length")  # fmt: skip
"""The option names for the maximum sample length in ms-swift, LLaMA-Factory, TRL, axolotl and scripts."""
_TUNING_METHOD_OPTIONS = ("tune", "train_type", "tuner_type", "sft_type", "finetuning_type", "adapter")
_LORA_RANK_OPTIONS = ("lora_rank", "lora_r")
_QUANTIZATION_ARGUMENTS = ("load_in_4bit", "quantization_bit", "quant_bits", "qlora", "use_qlora")
_FREEZE_VISION_OPTIONS = ("freeze_vit", "freeze_vision_tower", "freeze_vision", "freeze_vision_encoder")
_ADAPTED = ("use_peft", "use_lora", "lora", "lora_enable")
_FRAMEWORK_DEFAULT_LENGTHS = {"llamafactory": 2048}
"""Defaults of frameworks if the length is not given (LLaMA-Factory's DataArguments.cutoff_len)."""
_FRAMEWORK_DEFAULT_TUNES: dict[str, TuningMethod] = {"ms-swift": "lora", "llamafactory": "lora"}
"""Defaults of frameworks if the method is not given (swift's tuner_type, LLaMA-Factory's finetuning_type)."""

_VISION_FREEZING_FRAMEWORKS = ("ms-swift", "llamafactory")
"""Frameworks that freeze the vision tower by default."""


class TrainingCommand(msgspec.Struct, frozen=True):
    """The values that the command sets; None if it doesn't, or if they can't be determined."""

    model: str | None = None
    seq_len: int | None = None
    tune: TuningMethod | None = None
    lora_rank: int | None = None
    gpus: int | None = None
    """Per node."""
    nodes: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    task: TaskOptions = TaskOptions()
    """The training method and its options; for an unknown method, only its name."""

    @property
    def global_batch(self) -> int | None:
        """Samples per optimizer step."""
        parts = (self.micro_batch, self.accumulation, self.gpus, self.nodes)
        if any(part is None for part in parts):
            return None
        micro_batch, accumulation, gpus, nodes = (part or 1 for part in parts)
        return micro_batch * accumulation * gpus * nodes


def read_training_command(command: Sequence[str]) -> TrainingCommand:
    """Read a command with the scripts and configs that it names. Raises UserError if it trains nothing."""
    from gonogo.check.runs import gather_runs_of_inputs
    from gonogo.check.settings import CheckSettings

    gathered = gather_runs_of_inputs([], command, settings=CheckSettings(), use_installed=True)
    run = next((run for run in gathered.runs if run.launch is not None), None)
    if run is None or run.launch is None:
        raise UserError(
            translated("{command}: starts no training that gonogo recognizes: give MODEL and options instead").format(
                command=" ".join(command)
            )
        )
    nodes = _positive_integer(run.launch.nodes.number)
    per_node = _positive_integer(run.launch.processes_per_node.number)
    task = task_options_from(run)
    length = _first_number(run, LENGTHS) or _FRAMEWORK_DEFAULT_LENGTHS.get(run.framework or "")
    return TrainingCommand(
        model=run.model.name if run.model is not None else None,
        seq_len=None if task.completion_len is not None else length,
        tune=_tuning_method(run),
        lora_rank=_first_number(run, _LORA_RANK_OPTIONS),
        gpus=per_node,
        nodes=nodes,
        micro_batch=_batch_size(run, "per_device_train_batch_size", "train_micro_batch_size_per_gpu"),
        accumulation=_batch_size(run, "gradient_accumulation_steps", "gradient_accumulation_steps"),
        task=task,
    )


def _first_number(run: Run, names: Sequence[str]) -> int | None:
    found = (_positive_integer(run.arguments.get(name).number) for name in names)
    return next((number for number in found if number is not None), None)


def _positive_integer(number: float | None) -> int | None:
    return int(number) if number is not None and number >= 1 else None


def _batch_size(run: Run, argument: str, key: str) -> int | None:
    """A size from the arguments, else from DeepSpeed's config, else the framework's default."""
    field = run.arguments.get(argument)
    if field.known:
        return _positive_integer(field.number)
    if run.config is not None and not run.config.is_auto(key) and run.config.get(key).known:
        return _positive_integer(run.config.get(key).number)
    default = training_defaults(run.framework).get(argument)
    return default if field.absent and isinstance(default, int) and (run.framework or run.scripts) else None


def _tuning_method(run: Run) -> TuningMethod | None:
    """The tuning method; None if the command doesn't show it."""
    arguments = run.arguments
    written = {str(arguments.get(name).get("")).lower() for name in _TUNING_METHOD_OPTIONS}
    quantized = any(
        arguments.get(name).truth or arguments.get(name).number in (4, 8) for name in _QUANTIZATION_ARGUMENTS
    )
    frozen = any(arguments.get(name).truth for name in _FREEZE_VISION_OPTIONS)
    adapted = bool(written & {"lora", "qlora", "dora"}) or any(arguments.get(name).truth for name in _ADAPTED)
    if not written & {"full", "lora", "qlora", "dora"}:
        adapted = adapted or _FRAMEWORK_DEFAULT_TUNES.get(run.framework or "") == "lora"
        adapted = adapted or any(True for script in run.scripts for _ in script.calls("peft.LoraConfig", "*LoraConfig"))
    if adapted:
        return "qlora" if quantized or "qlora" in written else "lora"
    unsaid = not any(arguments.has(name) for name in _FREEZE_VISION_OPTIONS)
    if unsaid and run.framework in _VISION_FREEZING_FRAMEWORKS and run.model is not None:
        frozen = run.model.supports_modality("vision") is True
    if frozen or "freeze-vision" in written:
        return "freeze-vision"
    return "full" if "full" in written else None
