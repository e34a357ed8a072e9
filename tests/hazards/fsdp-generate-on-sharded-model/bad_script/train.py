import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
model = FullyShardedDataParallel(model)
print(model.generate(torch.tensor([[1, 2, 3]], device="cuda")))
