import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000):
        super().__init__()
        self.inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))

    def forward(self, x, t):
        freqs = torch.einsum("i,j->ij", t, self.inv_freq)
        return freqs.cos().to(x.dtype), freqs.sin().to(x.dtype)
