import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.x, self.y = torch.load(path)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]
