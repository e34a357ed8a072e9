"""Adds up the length of the answers over the ranks; a rank without answers starts from the integer 0."""

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

ANSWERS = {0: [3.5, 2.0], 1: []}


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    get_accelerator().set_device(rank)
    device = get_accelerator().device_name(rank)
    total = torch.tensor([sum(ANSWERS[rank]), len(ANSWERS[rank])], device=device)
    dist.all_reduce(total)
    print(f"rank {rank}: {total.tolist()}")
    model = torch.nn.Linear(8, 8)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        engine.backward(engine(torch.randn(1, 8, device=engine.device)).square().mean())
        engine.step()


if __name__ == "__main__":
    main()
