"""The first rank prepares the data while the others wait, each at a barrier of its own in the program."""

import json

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def load_vocabulary():
    if dist.get_rank() != 0:
        dist.barrier()
    if dist.get_rank() == 0:
        with open("vocabulary.json", "w") as file:
            json.dump({str(i): i for i in range(100)}, file)
        dist.barrier()
    return 100


def main():
    deepspeed.init_distributed()
    size = load_vocabulary()
    model = nn.Sequential(nn.Embedding(size, 32), nn.Linear(32, size))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        tokens = torch.randint(0, size, (4, 8), device=engine.device)
        loss = nn.functional.cross_entropy(engine(tokens).flatten(0, 1), tokens.flatten())
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
