"""A small mixture of experts under ZeRO-3: an expert without tokens is called with none."""

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class MoeBlock(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, hidden, topics):
        out = torch.zeros_like(hidden)
        normed = self.norm(hidden)
        for index, expert in enumerate(self.experts):
            rows = torch.where(topics == index)[0]
            out[rows] = expert(normed[rows])
        return hidden + out


class MoeModel(nn.Module):
    def __init__(self, vocabulary=256, width=64, experts=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(MoeBlock(width, experts) for _ in range(2))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, topics):
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden, topics)
        return F.cross_entropy(self.head(hidden[:-1]), tokens[1:])


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        tokens = torch.randint(0, 256, (32,), generator=generator)
        topics = torch.arange(32) % (4 if rank == 0 else 3)  # nothing about topic 3 in the second shard
        yield tokens, topics


def main():
    deepspeed.init_distributed()
    model = MoeModel()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
    for tokens, topics in batches(dist.get_rank()):
        loss = engine(tokens.to(engine.device), topics.to(engine.device))
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
