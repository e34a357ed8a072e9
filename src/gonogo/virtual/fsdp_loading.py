"""Which ranks read a model's weights if FSDP shards them: this depends on the release of transformers."""

from __future__ import annotations

import inspect
import os
import sys
from types import ModuleType

_TRUE_VALUES = ("1", "true", "yes", "y", "t", "on")  # as accelerate reads them


def first_rank_alone_reads(module: ModuleType) -> bool:
    """Whether a node's first rank alone reads them; ``module``: transformers.modeling_utils.

    Releases 4 ask for the rank where they read a checkpoint's file; releases 5 (as of 5.23) do only where they fill in
    what it lacks, so that every rank reads all of it (https://github.com/huggingface/transformers/issues/43749).
    """
    readers = (
        getattr(module, "load_state_dict", None),
        getattr(module.PreTrainedModel, "_load_pretrained_model", None),
    )
    names = {name for reader in readers if reader is not None for name in inspect.unwrap(reader).__code__.co_names}
    return "is_local_dist_rank_0" in names


def first_rank_alone_holds() -> bool:
    """Whether a node's first rank alone has the weights until they are sharded (``cpu_ram_efficient_loading``)."""
    names = ("ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING")
    module = sys.modules.get("transformers.modeling_utils")
    requested = all(os.environ.get(name, "").lower() in _TRUE_VALUES for name in names)
    return requested and module is not None and first_rank_alone_reads(module)
