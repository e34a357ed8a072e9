import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)


net = Net()
torch.save(net, "net.pt")
again = torch.load("net.pt", map_location="cpu")
