import torch
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
print(model.generate(torch.tensor([[1, 2, 3]], device="cuda"), max_new_tokens=8))
