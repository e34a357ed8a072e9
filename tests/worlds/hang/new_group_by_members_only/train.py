"""Splits the ranks into two data-parallel groups; each rank makes its own group."""

import deepspeed
import torch
import torch.distributed as dist


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    members = [0, 1] if rank < 2 else [2, 3]
    group = dist.new_group(members)
    model = torch.nn.Linear(8, 8)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        loss = engine(torch.randn(1, 8, device=engine.device)).square().mean()
        engine.backward(loss)
        engine.step()
        report = loss.detach().clone()
        dist.all_reduce(report, group=group)


if __name__ == "__main__":
    main()
