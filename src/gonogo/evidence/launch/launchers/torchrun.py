"""``torchrun``, and its predecessor ``python -m torch.distributed.launch``."""

from __future__ import annotations

import msgspec

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import OptionTable, split_names
from gonogo.evidence.launch.launchers.counts import (
    LaunchSettings,
    LaunchSize,
    launch_size_per_node,
    one_process_per_gpu,
    to_positive_count,
)
from gonogo.evidence.launch.launchers.description import LauncherDescription
from gonogo.finding import translated

_ELASTIC_NODE_COUNT = translated("the number of nodes is given as `{value}`, so it is decided only at launch")
_TORCHRUN_OPTIONS = OptionTable(
    split_names(
        """
        nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts monitor_interval
        start_method event_log_handler role log_dir redirects tee local_ranks_filter duplicate_stdout_filters
        duplicate_stderr_filters node_rank master_addr master_port local_addr logs_specs numa_binding
        signals_to_handle shutdown_timeout
        """
    ),
    split_names(
        """
        help standalone module no_python run_path virtual_local_rank use_env
        """
    ),
    {"h": "help", "m": "module", "r": "redirects", "t": "tee"},
)
"""As of torch 2.13.0."""


def _launch_size(settings: LaunchSettings) -> LaunchSize:
    options, variables = settings.options, settings.variables
    nodes = options.get("nnodes")
    if nodes.absent:
        nodes = variables.get("PET_NNODES", nodes)
    if isinstance(nodes.value, str) and ":" in nodes.value:
        least, _, most = nodes.value.partition(":")
        nodes = (
            Field.of(most, nodes.place)
            if least == most
            else Field.not_known(nodes.place, _ELASTIC_NODE_COUNT.format(value=nodes.value[:40]))
        )
    per_node = options.get("nproc_per_node")
    if per_node.absent:
        per_node = variables.get("PET_NPROC_PER_NODE", per_node)
    if per_node.value in ("gpu", "auto"):
        gpus = one_process_per_gpu(variables)
        per_node = msgspec.structs.replace(gpus, place=per_node.place)
    return launch_size_per_node(to_positive_count(nodes, 1), to_positive_count(per_node, 1))


TORCHRUN = LauncherDescription(
    "torchrun",
    _launch_size,
    commands=("torchrun",),
    modules=("torch.distributed.run",),
    options=_TORCHRUN_OPTIONS,
    example="torchrun --nproc_per_node 8 train.py",
)
TORCH_DISTRIBUTED_LAUNCH = LauncherDescription(
    "torch.distributed.launch",
    _launch_size,
    modules=("torch.distributed.launch",),
    options=_TORCHRUN_OPTIONS,
    example="python -m torch.distributed.launch --nproc_per_node 8 train.py",
)
"""torchrun's predecessor, which passes ``--local-rank`` to the program."""
