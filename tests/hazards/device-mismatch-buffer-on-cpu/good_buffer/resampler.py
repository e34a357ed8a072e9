import torch
from torch import nn


class Resampler(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.proj = nn.Linear(size, size)
        self.register_buffer("pos_embed", torch.randn(1, 256, size))

    def forward(self, x):
        y = self.proj(x)
        return y + self.pos_embed[:, : y.shape[1]]
