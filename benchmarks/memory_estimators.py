"""What other tools say of a cell: their own functions, asked as their documentation asks them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from memory_cells import Cell


def model_of(cell: Cell) -> object:
    """The cell's model, without memory, as its program tunes it."""
    import torch

    from gonogo.virtual.measuring.tuning import freeze_untuned
    from gonogo.virtual.synthetic.model import read_model

    with tempfile.TemporaryDirectory() as folder:
        cell.written(Path(folder))
        found = read_model(folder)
    with torch.device("meta"):
        return freeze_untuned(found.model_class(found.config), cell.tune, 16)


def deepspeed_says(cell: Cell, model: object) -> dict[str, int]:
    """``estimate_zero2_model_states_mem_needs`` (for stages 0 to 2: there is no other) or ``estimate_zero3_…``.

    Bytes of one rank. The sizes are counted as DeepSpeed's ``…_all_live`` functions count them, but for data pointers,
    which a model without memory does not have.
    """
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    total = sum(parameter.numel() for parameter in model.parameters())  # type: ignore[attr-defined]
    if cell.zero < 3:
        host, accelerator = estimate_zero2_model_states_mem_needs(total, cell.world, 1, cell.optimizer != "gpu")
    else:
        layer = max(
            sum(parameter.numel() for parameter in module.parameters(recurse=False))
            for module in model.modules()  # type: ignore[attr-defined]
        )
        host, accelerator, _ = estimate_zero3_model_states_mem_needs(
            total, layer, cell.world, 1, cell.optimizer != "gpu", cell.parameters != "gpu", zero_init=True
        )
    return {"accelerator": accelerator, "host": host // cell.world}


def accelerate_says(model: object) -> dict[str, int]:
    """``accelerate estimate-memory``'s "Training using Adam": for the whole model on one GPU, at batch size 1."""
    import torch
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    total, _ = calculate_maximum_sizes(model.to(torch.float32))  # type: ignore[attr-defined]  it loads in float32
    return {"accelerator": int(max(estimate_training_usage(total, "bfloat16").values()))}
