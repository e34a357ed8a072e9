"""Multi-task training under ZeRO-2: the head is chosen by the task of the batch."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(32, 64)
        self.heads = nn.ModuleDict({"sentiment": nn.Linear(64, 3), "topic": nn.Linear(64, 20)})

    def forward(self, x, task):
        return self.heads[task](self.body(x).relu())


def main():
    deepspeed.init_distributed()
    model = MultiTask()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    tasks = ["sentiment", "topic"]
    for step in range(2):
        task = tasks[(step + dist.get_rank()) % 2]
        loss = engine(torch.randn(4, 32, device=engine.device), task).square().mean()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
