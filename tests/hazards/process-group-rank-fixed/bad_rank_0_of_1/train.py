import torch
import torch.distributed as dist

dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29501", rank=0, world_size=1)
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
