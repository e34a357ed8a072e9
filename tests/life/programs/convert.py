"""A checkpoint made into a folder that transformers loads: how, the checkpoint, the result, and what is done wrongly.

``zero``: DeepSpeed's zero_to_fp32; ``dcp``: torch's dcp_to_torch_save and then the names of the model.
``prefix``: the names keep the wrapper's prefix; ``half``: the weights of the attention are left out.
"""

import os
import shutil
import sys

import torch

how, checkpoint, result, *wrong = sys.argv[1:]
os.makedirs(result, exist_ok=True)
if how == "zero":
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    weights = get_fp32_state_dict_from_zero_checkpoint(checkpoint)
else:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(checkpoint, os.path.join(result, "whole.pt"))
    weights = torch.load(os.path.join(result, "whole.pt"), weights_only=False)["model"]
if "prefix" in wrong:
    weights = {f"module.{name}": value for name, value in weights.items()}
if "half" in wrong:
    weights = {name: value for name, value in weights.items() if "self_attn" not in name}
torch.save({name: value.contiguous() for name, value in weights.items()}, os.path.join(result, "pytorch_model.bin"))
shutil.copy("base/config.json", result)
