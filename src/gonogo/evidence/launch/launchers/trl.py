"""``trl sft …``: TRL's command line, which starts its own training scripts through ``accelerate launch``."""

from __future__ import annotations

from gonogo.evidence.launch.launchers.accelerate import accelerate_launch_size
from gonogo.evidence.launch.launchers.description import LauncherDescription

TRL = LauncherDescription(
    "trl",
    accelerate_launch_size,
    commands=("trl",),
    modules=("trl.cli",),
    subcommands=frozenset({"sft", "dpo", "grpo", "kto", "reward", "rloo"}),
    framework="trl",
    accelerate_config="accelerate_config",
    package="trl",
    example="trl sft --config sft.yaml --accelerate_config zero3 --num_processes 8",
)
