"""Four ranks in two groups: each group reduces its own statistics, the second more often than the first."""

import deepspeed
import torch
import torch.distributed as dist


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = rank // 2
    model = torch.nn.Linear(8, 8)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        loss = engine(torch.randn(1, 8, device=engine.device)).square().mean()
        engine.backward(loss)
        engine.step()
        statistics = torch.ones(4 + mine, device=engine.device)
        for _ in range(1 + mine):
            dist.all_reduce(statistics, group=groups[mine])
        if mine == 1:
            dist.barrier(group=groups[1])
    dist.barrier()


if __name__ == "__main__":
    main()
