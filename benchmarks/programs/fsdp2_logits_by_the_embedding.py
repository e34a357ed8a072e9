"""FSDP2 whose logits are made of the embedding's weight, outside of any module.

truth: NO-GO
says: mixed torch.Tensor and DTensor
why: outside of its module's forward the weight is a shard, a DTensor, and the hidden states are not.
"""

import torch
from start import start
from torch.distributed.fsdp import fully_shard


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(32, 16)
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))

    def forward(self, words):
        return self.body(self.words(words))


device = start()
model = Encoder().to(device)
fully_shard(model.words)
fully_shard(model.body)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    words = torch.randint(0, 32, (4, 7), device=device)
    hidden = model(words)
    logits = torch.nn.functional.linear(hidden, model.words.weight)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
