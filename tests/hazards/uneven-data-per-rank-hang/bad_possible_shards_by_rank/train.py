import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from net import Net


class Shards(IterableDataset):
    def __init__(self, files, rank, world_size):
        self.files, self.rank, self.world_size = files, rank, world_size

    def __iter__(self):
        for file in self.files[self.rank :: self.world_size]:
            yield from torch.load(file)


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DistributedDataParallel(Net().cuda(), device_ids=[local_rank])
    for batch in DataLoader(Shards(sorted(os.listdir("shards")), dist.get_rank(), dist.get_world_size()), batch_size=8):
        model(batch.cuda()).mean().backward()


main()
