import torch
import torch.distributed as dist


def main():
    dist.init_process_group("nccl", "tcp://localhost:29500", rank=0, world_size=1)
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = torch.nn.Linear(8, 8).cuda()
    torch.nn.parallel.DistributedDataParallel(model)


if __name__ == "__main__":
    main()
