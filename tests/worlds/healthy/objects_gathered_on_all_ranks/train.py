"""Names of skipped samples are gathered from all ranks, also from those that have none."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def main():
    deepspeed.init_distributed()
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Linear(16, 16)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    skipped = []
    for step in range(2):
        engine.backward(engine(torch.randn(1, 16, device=engine.device)).square().mean())
        engine.step()
        if rank == 1:
            skipped.append(f"a sample of step {step} with a very long name")
    everywhere = [None] * world
    dist.all_gather_object(everywhere, skipped)
    if any(everywhere):
        dist.barrier()
    gathered = [None] * world if rank == 0 else None
    dist.gather_object({"rank": rank, "skipped": len(skipped)}, gathered, dst=0)
    if rank == 0:
        assert [entry["skipped"] for entry in gathered] == [0, 2], gathered


if __name__ == "__main__":
    main()
