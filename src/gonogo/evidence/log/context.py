"""Facts of a log that several hazards need: whether the run trains, uses ZeRO-3 or FSDP, and how many processes."""

from __future__ import annotations

from functools import lru_cache

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern

OTHER_PROGRAM_PATTERN = Pattern(
    r"(?i)text-generation-webui|koboldai|xinference|\[address=[\d.]+:\d+, pid=\d+\]"
    r"|llama\.cpp|tritonserver|\bollama\b|\bEngineCore(?:_\w+)?\b|\bVllmWorker"
    r"|\bvLLM (?:is using nccl|API server)"
    r"|[/\\](?:vllm|sglang|lmdeploy|gradio|streamlit|uvicorn|starlette|fastapi)[/\\]|multiproc_executor|AsyncLLMEngine"
    r"|\b(?:vllm serve|vllm\.entrypoints|sglang\.launch_server|lmdeploy serve|api_server)\b"
)
"""Text that only a server or another program that doesn't train writes."""
_TRAINING_PATTERN = Pattern(
    r"trainer\.py|training_step|_training_loop|trainer\.train|\.backward\(|in backward$|in train$"
    r"|deepspeed/runtime|微调|训练|accelerate launch"
    r"|(?i:fine-?_?tun|\bsft\b|train(?:er|ing)?\b|_train|dpo|grpo|rlhf|torchrun|zero[-_ ]?3|zero_stage)"
)
_INFERENCE_PATTERN = Pattern(
    r"generation/utils\.py|in generate$|model\.generate\(|pipelines/\w+\.py|\.chat\(|in chat$|web_demo|cli_demo"
    r"|(?i:\binference\b|\binfer\.py)|推理"
)
_ZERO3_PATTERN = Pattern(
    r"(?i)zero/stage3\.py|zero/partition_parameters\.py|partitioned_param|zero/parameter_offload\.py"
    r"|zero[-_ ]?(?:stage|optimization)?[-_ ]?3(?:\b|_offload)|\bds_?(?:z3|3|zero3)\b|deepspeed[-_ ]?3\b|stage[-_ ]?3\b"
)
_ZERO3_MENTION_PATTERN = Pattern(
    r"(?i)\b(?:with|under|using|use|uses|enable|to) (?:deepspeed )?zero[-_ ]?(?:stage[-_ ]?)?3\b"
    r"|(?:使用|用|采用|开启|改为|换成|改成) ?(?:deepspeed ?)?zero[-_ ]?3"
)
_FSDP_PATTERN = Pattern(r"(?i)fsdp|fully_shard")
REPLICA_ERROR_PATTERN = Pattern(r"Caught (?P<type>\w+) in replica \d+ on device \d+")
"""The message of torch.nn.DataParallel for an exception that one of its replicas raised."""
_VISIBLE_DEVICES_PATTERN = r"(?:CUDA|ASCEND_RT)_VISIBLE_DEVICES\s*=\s*[\"']?\d+\s*,\s*\d"
_SINGLE_VISIBLE_GPU_PATTERN = r"(?:CUDA|ASCEND_RT)_VISIBLE_DEVICES\s*=\s*[\"']?\d+[\"']?(?:\s|$)"
_VISIBLE_GPUS_PATTERN = Pattern(_VISIBLE_DEVICES_PATTERN)


@lru_cache(maxsize=1)
def is_outside_training(log: FailureLog) -> bool:
    """True for the log of another program (serving), or of a run that only generates."""
    if log.find(OTHER_PROGRAM_PATTERN) is not None:
        return not log.passes("transformers/trainer.py", "trl/trainer", "deepspeed/runtime", "/verl/", "openrlhf")
    if log.find(_INFERENCE_PATTERN) is None:
        return False
    return log.find(_TRAINING_PATTERN) is None and not log.setup.mentions(r"(?i)train|sft|finetun|deepspeed|torchrun")


@lru_cache(maxsize=1)
def is_under_zero3(log: FailureLog) -> bool | None:
    """True if the setup or the log mentions ZeRO-3, False if the setup says another stage, else None."""
    stage = log.setup.zero_stage
    if stage is not None:
        # The user may describe a changed command: "zero2 in the script, with zero3 it fails".
        return stage == 3 or log.find(_ZERO3_MENTION_PATTERN) is not None
    if log.find(_ZERO3_PATTERN) is not None or log.setup.mentions(r"(?i)zero[-_ ]?3|zero_stage[-_ :=\"']*3|ds_z3"):
        return True
    return None


@lru_cache(maxsize=1)
def uses_fsdp(log: FailureLog) -> bool:
    """True if the log or the setup mentions FSDP."""
    return log.find(_FSDP_PATTERN) is not None or log.setup.mentions(r"(?i)fsdp|fully_?shard")


@lru_cache(maxsize=1)
def has_several_processes(log: FailureLog) -> bool | None:
    """True if the log or the launch command shows several processes, False if only one is requested, else None."""
    processes = log.setup.processes_per_node
    if processes is not None and processes > 1:
        return True
    if len({line.rank for line in log.lines if line.rank is not None}) > 1:
        return True
    if processes is None and log.setup.launcher == "deepspeed" and has_several_visible_gpus(log):
        return True  # deepspeed starts a process for each GPU
    if processes == 1 or log.setup.launcher == "python":
        return False
    return None


def is_single_process_multi_gpu(log: FailureLog) -> bool | None:
    """True if one plain process is started with several GPUs visible, False if not, None if unknown."""
    if has_several_processes(log) or log.setup.launcher not in (None, "python", "swift", "llamafactory"):
        return False
    several = has_several_visible_gpus(log)
    return several if log.setup.launcher is not None or several is False else None


@lru_cache(maxsize=1)
def has_several_visible_gpus(log: FailureLog) -> bool | None:
    """True if CUDA_VISIBLE_DEVICES lists several, False if it names one, None if unknown."""
    if log.setup.mentions(_VISIBLE_DEVICES_PATTERN) or log.find(_VISIBLE_GPUS_PATTERN) is not None:
        return True
    return False if log.setup.mentions(_SINGLE_VISIBLE_GPU_PATTERN) else None
