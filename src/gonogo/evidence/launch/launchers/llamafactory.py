"""``llamafactory-cli train …``: LLaMA-Factory, which starts itself through torchrun if there are several GPUs."""

from __future__ import annotations

from gonogo.evidence.field import Field
from gonogo.evidence.launch.launchers.counts import (
    LaunchSettings,
    LaunchSize,
    launch_size_per_node,
    one_process_per_gpu,
    to_positive_count,
)
from gonogo.evidence.launch.launchers.description import LauncherDescription


def _launch_size(settings: LaunchSettings) -> LaunchSize:
    variables = settings.variables
    per_node, nodes = variables.get("NPROC_PER_NODE", Field.missing()), variables.get("NNODES", Field.missing())
    gpus = to_positive_count(per_node) if not per_node.absent else one_process_per_gpu(variables)
    return launch_size_per_node(to_positive_count(nodes, 1), gpus)


LLAMAFACTORY = LauncherDescription(
    "llamafactory",
    _launch_size,
    commands=("llamafactory-cli", "lmf"),
    modules=("llamafactory.cli",),
    subcommands=frozenset({"train"}),
    framework="llamafactory",
    programs=("llamafactory.launcher", "llamafactory.cli", "src/train_bash.py"),
    package="llamafactory",
    example="llamafactory-cli train qwen_lora_sft.yaml",
)
