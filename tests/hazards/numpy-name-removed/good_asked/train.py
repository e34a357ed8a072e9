import numpy as np
import torch

FLOAT = np.float_ if hasattr(np, "float_") else np.float64
try:
    INT = np.int
except AttributeError:
    INT = int


def positions(length):
    return torch.from_numpy(np.arange(length, dtype=FLOAT)), INT


print(positions(8))
