"""The first rank writes the vocabulary while the others wait for it."""

import json

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def prepare():
    if dist.get_rank() == 0:
        with open("vocabulary.json", "w") as file:
            json.dump({str(i): i for i in range(100)}, file)
    else:
        dist.barrier()


def main():
    deepspeed.init_distributed()
    prepare()
    model = nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 100))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        tokens = torch.randint(0, 100, (4, 8), device=engine.device)
        loss = nn.functional.cross_entropy(engine(tokens).flatten(0, 1), tokens.flatten())
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
