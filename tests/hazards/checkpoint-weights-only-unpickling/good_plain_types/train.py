import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="last.pt")
args = parser.parse_args()
model = nn.Linear(8, 8)


def save():
    torch.save({"model": model.state_dict(), "args": vars(args)}, args.out)


def resume():
    return torch.load(args.out)
