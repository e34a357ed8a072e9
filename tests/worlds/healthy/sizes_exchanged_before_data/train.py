"""Ranks send each other as many rows as they have: sizes first, then an all-to-all with these splits."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def dispatch(rows, destination):
    order = destination.argsort()
    sent = torch.bincount(destination, minlength=dist.get_world_size())
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    out = rows.new_empty(int(received.sum()), rows.shape[1])
    dist.all_to_all_single(out, rows[order], received.tolist(), sent.tolist())
    return out


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    model = nn.Linear(8, 8)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for _ in range(2):
        destination = torch.tensor([0, 1, 1, 1, 0, 1][: 6 - 2 * rank], device=engine.device)
        rows = dispatch(torch.randn(len(destination), 8, device=engine.device), destination)
        assert len(rows) == (3 if rank == 0 else 7), rows.shape
        engine.backward(engine(rows).square().mean())
        engine.step()


if __name__ == "__main__":
    main()
