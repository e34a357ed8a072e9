"""``axolotl train …``: axolotl's command line, which executes ``accelerate launch`` or ``torchrun``."""

from __future__ import annotations

from gonogo.evidence.launch.launchers.accelerate import accelerate_launch_size
from gonogo.evidence.launch.launchers.description import LauncherDescription

AXOLOTL = LauncherDescription(
    "axolotl",
    accelerate_launch_size,
    commands=("axolotl",),
    modules=("axolotl.cli.main",),
    subcommands=frozenset({"train"}),
    framework="axolotl",
    programs=("axolotl.cli.train",),
    accelerate_config="accelerate_config",
    package="axolotl",
    example="axolotl train qwen_lora.yaml --launcher torchrun -- --nproc_per_node 8",
)
