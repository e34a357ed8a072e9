import numpy
import torch
from torch.utils.data import Dataset


class Tokens(Dataset):
    """Token ids of a split, cut into blocks."""

    def __init__(self, folder, split, length=1024):
        self.ids = numpy.memmap(f"{folder}/{split}.bin", dtype=numpy.uint16, mode="r")
        self.length = length

    def __len__(self):
        return len(self.ids) // self.length

    def __getitem__(self, index):
        block = self.ids[index * self.length : (index + 1) * self.length]
        return {"ids": torch.from_numpy(block.astype(numpy.int64))}
