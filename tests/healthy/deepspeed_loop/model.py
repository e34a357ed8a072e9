import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.after = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden):
        size, length, width = hidden.shape
        query, key, value = self.qkv(self.before(hidden)).chunk(3, dim=-1)
        query, key, value = (
            each.view(size, length, self.heads, width // self.heads).transpose(1, 2) for each in (query, key, value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(size, length, width))
        return hidden + self.down(F.gelu(self.up(self.after(hidden))))


class Decoder(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, longest=2048):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("steps", torch.arange(longest), persistent=False)

    def forward(self, ids, labels=None):
        hidden = self.tokens(ids) + self.positions(self.steps[: ids.shape[1]])
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(self.norm(hidden))
        if labels is None:
            return logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
