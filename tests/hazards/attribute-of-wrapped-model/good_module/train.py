import os

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").to(rank)
model = DistributedDataParallel(model, device_ids=[rank])
print(model.module.generate(torch.tensor([[1, 2]], device=rank)))
