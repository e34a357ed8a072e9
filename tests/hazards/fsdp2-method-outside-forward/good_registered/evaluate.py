import torch
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
fully_shard(model)
register_fsdp_forward_method(model, "generate")
print(model.generate(torch.tensor([[1, 2, 3]], device="cuda"), max_new_tokens=8))
