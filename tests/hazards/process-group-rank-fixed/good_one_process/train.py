import torch
import torch.distributed as dist

dist.init_process_group("nccl", rank=0, world_size=1, init_method="tcp://127.0.0.1:29501")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
