"""Packed documents with a mask of each one's own, the short end left out.

truth: GO
why: whole blocks only; the mask is the size of the block.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

LENGTH = 32


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(100, 32)
        self.qkv = torch.nn.Linear(32, 96)
        self.out = torch.nn.Linear(32, 100)

    def forward(self, tokens, documents):
        q, k, v = self.qkv(self.embed(tokens)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        same = documents.unsqueeze(-1) == documents.unsqueeze(-2)
        mask = (same & torch.ones_like(same).tril()).unsqueeze(1)
        return self.out(scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(-2))


device = start()
model = DistributedDataParallel(Attention().to(device))
optimizer = torch.optim.AdamW(model.parameters())
stream = torch.randint(1, 100, (20 * 2 * LENGTH + 17,))
stream[::11] = 0
for start_of_block in range(0, stream.numel() - 2 * LENGTH + 1, 2 * LENGTH):
    tokens = stream[start_of_block:][: 2 * LENGTH].view(2, LENGTH).to(device)
    documents = (tokens == 0).cumsum(-1)
    logits = model(tokens, documents)
    cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
