import os

import torch
import torch.distributed as dist


def main():
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = torch.nn.Linear(8, 8).cuda()
    torch.nn.parallel.DistributedDataParallel(model)


if __name__ == "__main__":
    main()
