"""The request of ``gonogo plan``."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gonogo.evidence.environment.hardware import Machine, parse_machine, parse_memory_size, requested_nodes
from gonogo.evidence.paths import exists, expand_user, is_file, read_bytes
from gonogo.finding import Text, UserError, translated
from gonogo.prepare.generated.published_folder import find_published_folder, published_source_text
from gonogo.trials.plan.from_command import TrainingCommand
from gonogo.trials.plan.strategy import SHARDINGS, TUNING_METHODS, Sharding, TuningMethod
from gonogo.trials.plan.task.settings import TaskOptions, TaskSettings, merge_task_options, resolve_task_settings

_DEFAULT_SEQ_LEN = 4096
_DEFAULT_LORA_RANK = 16
_DEFAULT_GPU_COUNT = 8
_BF16_MIN_CAPABILITY = (8, 0)
"""The minimum compute capability with bf16 tensor cores."""


_REQUIRED_PACKAGES: dict[TuningMethod, tuple[str, ...]] = {"lora": ("peft",), "qlora": ("peft", "bitsandbytes")}


class PlanOptions(msgspec.Struct, frozen=True):
    """The command line's options, as typed; None if not given."""

    model: str | None = None
    gpus: str | None = None
    nodes: int | None = None
    host_memory: str | None = None
    nvme: str | None = None
    seq_len: int | None = None
    tune: str | None = None
    lora_rank: int | None = None
    global_batch: int | None = None
    network: float | None = None
    """Gbit/s per accelerator."""
    timeout: float = 300.0
    sharding: str | None = None
    task: TaskOptions = TaskOptions()


class PlanRequest(msgspec.Struct, frozen=True):
    """A model, the machine, and the kind of training. Sizes are in bytes, lengths in tokens."""

    model: Path
    """A folder with config.json."""
    name: str
    """The model's name as the user gave it."""
    machine: Machine
    seq_len: int
    tune: TuningMethod = "full"
    lora_rank: int = 16
    global_batch: int | None = None
    nvme_bytes: int | None = None
    """Per node."""
    nvme_drives: int = 1
    network_bytes_per_second: float | None = None
    """Bandwidth per accelerator to other nodes."""
    dtype: str = "bf16"
    attention: str = "sdpa"
    timeout: float = 300.0
    sharding: Sharding = "zero"
    task: TaskSettings | None = None
    """None for plain fine-tuning."""

    @property
    def world_size(self) -> int:
        """Number of trainer ranks over all nodes."""
        return self.machine.count * self.machine.nodes

    @property
    def tokens_per_sample(self) -> int:
        """Tokens trained per sample, over all its sequences."""
        return self.seq_len * (1 if self.task is None else self.task.kind.sequences)

    def without_server_gpus(self, gpus: int) -> PlanRequest:
        """The request for the remaining GPUs, if a rollout server takes ``gpus``."""
        if not gpus:
            return self
        machine = self.machine
        if machine.nodes > 1:
            return replace(self, machine=replace(machine, nodes=machine.nodes - gpus // machine.count))
        return replace(self, machine=replace(machine, count=machine.count - gpus))


def build_plan_request(options: PlanOptions, command: TrainingCommand | None) -> tuple[PlanRequest, list[Text]]:
    """Build the request; returns also notes on what was taken from a command. Options override the command.

    Raises UserError.
    """
    stated = command or TrainingCommand()
    name = options.model or stated.model
    if name is None:
        raise UserError(_NO_MODEL if command is None else _UNKNOWN_MODEL)
    asked_task = merge_task_options(options.task, stated.task)
    lengths = (options.seq_len, stated.seq_len, asked_task.completion_len)
    if command is not None and all(length is None for length in lengths):
        raise UserError(_UNKNOWN_LENGTH)
    tune = options.tune or stated.tune or "full"
    chosen = next((known for known in TUNING_METHODS if known == tune), None)
    if chosen is None:
        raise UserError(
            translated("--tune {tune}: must be one of {known}").format(tune=tune, known=", ".join(TUNING_METHODS))
        )
    nodes = requested_nodes(options.gpus, options.nodes)
    machine = parse_machine(options.gpus, nodes or stated.nodes, options.host_memory, stated.gpus or _DEFAULT_GPU_COUNT)
    own_world = (options.gpus is None or stated.gpus == machine.count) and nodes in (None, stated.nodes)
    asked_length = options.seq_len or stated.seq_len
    task = resolve_task_settings(asked_task, asked_length, chosen, model_folder)
    length = (asked_length or _DEFAULT_SEQ_LEN) if task is None else task.prompt_len + task.completion_len
    half = machine.accelerator.device_type == "cuda" and machine.accelerator.compute_capability < _BF16_MIN_CAPABILITY
    request = PlanRequest(
        model=model_folder(name),
        name=name,
        machine=machine,
        seq_len=length,
        tune=chosen,
        lora_rank=options.lora_rank or stated.lora_rank or _DEFAULT_LORA_RANK,
        global_batch=options.global_batch or (stated.global_batch if own_world else None),
        nvme_bytes=None if options.nvme is None else parse_memory_size(options.nvme, "--nvme"),
        network_bytes_per_second=None if options.network is None else options.network * 1e9 / 8,
        dtype="fp16" if half else "bf16",
        timeout=options.timeout,
        task=task,
    )
    request = replace(request, sharding=_choose_sharding(options.sharding, request))
    check_rollout_engine(request)
    taken = [] if command is None else [_default_batch_note(request)]
    return request, [*taken, published_source_text(name)] if _local_model_folder(name) is None else taken


def _choose_sharding(requested: str | None, request: PlanRequest) -> Sharding:
    """The sharding to try; by default all that is supported. Raises UserError."""
    obstacle = _fsdp_obstacle(request)
    if requested is None:
        return "any" if obstacle is None else "zero"
    chosen = next((known for known in SHARDINGS if known == requested), None)
    if chosen is None:
        raise UserError(
            translated("--sharding {asked}: must be one of {known}").format(asked=requested, known=", ".join(SHARDINGS))
        )
    if chosen == "fsdp2" and obstacle is not None:
        raise UserError(translated("--sharding fsdp2: {why}; use --sharding zero").format(why=obstacle))
    return chosen if obstacle is None else "zero"


def _fsdp_obstacle(request: PlanRequest) -> Text | None:
    """Why FSDP2 isn't tried, or None."""
    if request.task is not None:
        return translated("with --task only ZeRO is supported")
    if request.tune == "qlora":
        return translated("4-bit weights are only planned with ZeRO")
    if request.machine.accelerator.device_type != "cuda" or request.dtype != "bf16":
        return translated("only GPUs with bf16 are supported")
    return translated("with one GPU there is nothing to shard") if request.world_size == 1 else None


def check_rollout_engine(request: PlanRequest) -> None:
    """Raise UserError if the rollout engine is not supported on such accelerators."""
    task, accelerator = request.task, request.machine.accelerator
    if task is None or not task.kind.rolls_out or task.engine == "none":
        return
    if accelerator.device_type != "cuda" or request.dtype != "bf16":
        raise UserError(
            translated(
                "--task {task} on {name}: vLLM's memory use there is not known; plan without it with --engine none"
            ).format(task=task.task, name=accelerator.name)
        )
    if task.engine == "server" and request.world_size < 2:
        raise UserError(translated("--engine server needs separate GPUs: with one GPU none is left for the trainer"))


_NO_MODEL = translated(
    "no model: give its folder or hub name, for example: gonogo plan Qwen/Qwen2.5-7B --gpus 8xA100-80G"
)
_UNKNOWN_MODEL = translated(
    "can't tell from the command which model it trains: give it before --, for example: gonogo plan MODEL -- COMMAND"
)
_UNKNOWN_LENGTH = translated("can't tell from the command how long its samples are: add --seq-len TOKENS")


def _default_batch_note(request: PlanRequest) -> Text:
    machine = request.machine
    return translated(
        "planned for the settings in the command: {model}, {task}{tune}, sequence length {length}, {nodes} "
        "node(s) x {count} GPUs, {batch} samples per step; override with options"
    ).format(
        model=request.name,
        task="" if request.task is None else Text(f"{request.task.task}, ", f"{request.task.task}，"),
        tune=request.tune,
        length=request.seq_len,
        nodes=machine.nodes,
        count=machine.count,
        batch=request.global_batch or translated("unstated"),
    )


def model_folder(name: str) -> Path:
    """The folder of a model: a path, a hub name whose config.json is in the hub's cache, or a bundled config.

    Raises UserError if it is none of them.
    """
    here = _local_model_folder(name) or find_published_folder(name)
    if here is not None:
        return here
    raise UserError(
        translated(
            "{name}: no such folder, and no model of that name in the hub cache or gonogo's table of "
            "published models: give a folder with its config.json"
        ).format(name=name)
    )


def _local_model_folder(name: str) -> Path | None:
    from gonogo.evidence.config.model import config_paths

    for path in config_paths(name, Path.cwd()):
        if is_file(path):
            return path.parent
    return expand_user(Path(name)) if exists(expand_user(Path(name))) else None


def check_packages(tune: TuningMethod, task: str = "sft") -> None:
    """Raise UserError if a package is missing that the tuning method or the task needs."""
    if task != "sft" and importlib.util.find_spec("trl") is None:
        raise UserError(
            translated(
                "--task {task} rehearses TRL's trainer, but TRL is not installed for {python}: pip install trl"
            ).format(task=task, python=sys.executable)
        )
    for name in _REQUIRED_PACKAGES.get(tune, ()):
        if importlib.util.find_spec(name) is None:
            raise UserError(
                translated(
                    "--tune {tune} needs {name}, which is not installed for {python}: pip install {name}"
                ).format(tune=tune, name=name, python=sys.executable)
            )


def check_model(path: Path, name: str) -> None:
    """Raise UserError if the folder has no readable config.json."""
    file = path / "config.json"
    try:
        config = json.loads(read_bytes(file))
    except OSError as error:
        raise UserError(
            translated("{name}: can't read {file} ({why}): give a folder with the model's config.json").format(
                name=name, file=file, why=error.strerror
            )
        ) from error
    except ValueError as error:
        raise UserError(translated("{file} is not valid JSON: {why}").format(file=file, why=error)) from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise UserError(translated("{file} has no model_type: not a transformers config").format(file=file))
