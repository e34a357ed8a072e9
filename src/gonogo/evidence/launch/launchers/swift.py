"""``swift sft …``: ms-swift, which starts itself through torchrun if ``NPROC_PER_NODE`` or ``NNODES`` is set."""

from __future__ import annotations

from gonogo.evidence.field import Field
from gonogo.evidence.launch.launchers.counts import (
    ALONE,
    LaunchSettings,
    LaunchSize,
    launch_size_per_node,
    to_positive_count,
)
from gonogo.evidence.launch.launchers.description import LauncherDescription


def _launch_size(settings: LaunchSettings) -> LaunchSize:
    variables = settings.variables
    per_node, nodes = variables.get("NPROC_PER_NODE", Field.missing()), variables.get("NNODES", Field.missing())
    if per_node.absent and nodes.absent:
        one = Field.of(1, None, ALONE)
        return LaunchSize(one, one, one)
    return launch_size_per_node(to_positive_count(nodes, 1), to_positive_count(per_node, 1))


_TRAINING_SUBCOMMANDS = frozenset({"sft", "pt", "rlhf"})

SWIFT = LauncherDescription(
    "swift",
    _launch_size,
    commands=("swift",),
    modules=("swift.cli.main",),
    subcommands=_TRAINING_SUBCOMMANDS,
    framework="ms-swift",
    programs=("swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"),
    package="ms-swift",
    example="NPROC_PER_NODE=8 swift sft --model model --deepspeed zero3",
)
MEGATRON_SWIFT = LauncherDescription(
    "swift", _launch_size, commands=("megatron",), subcommands=_TRAINING_SUBCOMMANDS, framework="ms-swift"
)
"""ms-swift on Megatron, which isn't rehearsed."""
