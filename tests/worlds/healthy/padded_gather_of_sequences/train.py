"""Sequences of different lengths are padded to the longest on any rank, and then gathered."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def gather_padded(tokens):
    longest = torch.tensor(tokens.shape[1], device=tokens.device)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    padded = nn.functional.pad(tokens, (0, longest.item() - tokens.shape[1]))
    everywhere = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, padded)
    return torch.cat(everywhere)


def main():
    deepspeed.init_distributed()
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for step in range(2):
        length = 8 + 5 * dist.get_rank() + step
        tokens = torch.randint(0, 64, (1, length), device=engine.device)
        loss = nn.functional.cross_entropy(engine(tokens).flatten(0, 1), tokens.flatten())
        engine.backward(loss)
        engine.step()
        gathered = gather_padded(tokens)
        assert gathered.shape == (dist.get_world_size(), 13 + step)


if __name__ == "__main__":
    main()
