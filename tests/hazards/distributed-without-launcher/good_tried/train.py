import torch
import torch.distributed as dist


def main():
    try:
        dist.init_process_group("nccl")
    except ValueError:
        return
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = torch.nn.Linear(8, 8).cuda()
    torch.nn.parallel.DistributedDataParallel(model)


if __name__ == "__main__":
    main()
