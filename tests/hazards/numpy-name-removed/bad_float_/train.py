import numpy as np
import torch


def positions(length):
    return torch.from_numpy(np.arange(length, dtype=np.float_))


print(positions(8))
